/* ends.c - see ends.h */
#include "ends.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_watchdog(uv_timer_t *timer)
{
    struct watchdog *watchdog = timer->data;

    fprintf(stderr, "waited in vain for: %s\n", watchdog->condition);
    abort();
}

static void on_watchdog_closed(uv_handle_t *handle)
{
    struct watchdog *watchdog = handle->data;

    watchdog->closed = true;
}

void watchdog_start(struct watchdog *watchdog, uv_loop_t *loop, const char *condition)
{
    watchdog->closed = false;
    watchdog->condition = condition;
    uv_timer_init(loop, &watchdog->timer);
    watchdog->timer.data = watchdog;
    uv_update_time(loop);
    uv_timer_start(&watchdog->timer, on_watchdog, 30000, 0);
}

void watchdog_stop(struct watchdog *watchdog, uv_loop_t *loop)
{
    uv_close((uv_handle_t *)&watchdog->timer, on_watchdog_closed);
    while (!watchdog->closed)
        uv_run(loop, UV_RUN_NOWAIT);
}

struct sleep {
    uv_timer_t timer;
    bool slept, closed;
};

static void on_slept(uv_timer_t *timer)
{
    ((struct sleep *)timer->data)->slept = true;
}

static void on_sleep_closed(uv_handle_t *handle)
{
    ((struct sleep *)handle->data)->closed = true;
}

void run_for_ms(uv_loop_t *loop, unsigned ms)
{
    struct sleep sleep = {.slept = false};

    uv_timer_init(loop, &sleep.timer);
    sleep.timer.data = &sleep;
    uv_update_time(loop);
    uv_timer_start(&sleep.timer, on_slept, ms, 0);
    while (!sleep.slept)
        uv_run(loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&sleep.timer, on_sleep_closed);
    while (!sleep.closed)
        uv_run(loop, UV_RUN_NOWAIT);
}

/* ---- callbacks ---------------------------------------------------------------------------------------- */

static void on_up(void *arg, const struct sr_link_peer *peer)
{
    struct end *end = arg;

    end->ups++;
    end->peer = *peer;
}

static void on_down(void *arg, enum sr_link_cause cause, const char *text)
{
    struct end *end = arg;

    end->downs++;
    end->cause = cause;
    snprintf(end->down_text, sizeof end->down_text, "%s", text);
    if (!end->hold_drain)
        sr_link_drained(end->link);
}

static void on_msg(void *arg, const struct sr_uuid *collection, struct sr_peer_msg *msg)
{
    struct end *end = arg;

    end->msgs++;
    end->last_collection = *collection;
    end->payload_bytes += msg->payload_bytes;
    for (uint32_t i = 0; i < msg->payload_bytes; i += 4096)
        end->payload_sum += msg->payload->data[msg->payload_offset + i];
    if (end->echo) {
        sr_link_send_msg(end->link, collection, msg);
        return;
    }
    if (!end->keep_msgs) {
        sr_peer_msg_free(msg);
        return;
    }
    sr_peer_msg_free(end->last);
    end->last = msg;
}

static void on_site_msg(void *arg, struct sr_site_msg *msg)
{
    struct end *end = arg;

    end->site_msgs++;
    sr_site_msg_free(msg);
}

static void on_writable(void *arg)
{
    struct end *end = arg;

    end->writables++;
}

static bool check_identity(void *arg, const struct sr_site_hello *hello, char *text)
{
    struct end *end = arg;

    snprintf(text, SR_SITE_TEXT_BYTES, "not the site of old: %s", hello->site_name);
    return !end->refuse_peer;
}

static void on_log(void *arg, enum sr_log_level level, const char *text)
{
    struct end *end = arg;
    size_t used = strlen(end->log);

    (void)level;
    end->log_lines++;
    snprintf(end->log + used, sizeof end->log - used, "%s\n", text);
    if (getenv("LINK_TEST_VERBOSE"))
        fprintf(stderr, "[%s] %s\n", end->name, text);
}

static void on_closed(void *arg)
{
    struct end *end = arg;

    end->closed = true;
}

/* ---- life --------------------------------------------------------------------------------------------- */

void end_config(struct sr_link_config *config, bool a, struct sr_tls *tls)
{
    static const struct sr_link_address any = {"127.0.0.1", 0};

    memset(config, 0, sizeof *config);
    config->site_name = a ? "site-a" : "site-b";
    config->peer_name = a ? "site-b" : "site-a";
    config->site.b[0] = a ? 1 : 2;
    config->group.b[0] = 77;
    config->boot = 5;
    config->n_listen = 1;
    config->listen = &any;
    config->tls = tls;
    config->insecure = tls == NULL;
    config->heartbeat_interval_ms = 50;
    config->heartbeat_timeout_ms = 2000;
    config->handshake_timeout_ms = 5000;
    config->retry_min_ms = 10;
    config->retry_max_ms = 100;
}

void end_open(struct end *end, uv_loop_t *loop, const struct sr_link_config *config)
{
    static const struct sr_link_callbacks callbacks = {on_up,       on_down,        on_msg, on_site_msg,
                                                       on_writable, check_identity, on_log};
    char text[SR_LINK_TEXT_BYTES];

    end->name = config->site_name;
    if (sr_link_new(loop, config, &callbacks, end, &end->link, text) != SR_OK) {
        fprintf(stderr, "%s\n", text);
        abort();
    }
}

void ends_start(struct end *a, const struct sr_link_config *config_a, struct end *b,
                const struct sr_link_config *config_b, uv_loop_t *loop)
{
    struct sr_link_address to_a, to_b;

    end_open(a, loop, config_a);
    end_open(b, loop, config_b);
    to_a = (struct sr_link_address){"127.0.0.1", sr_link_port(a->link, 0)};
    to_b = (struct sr_link_address){"127.0.0.1", sr_link_port(b->link, 0)};
    sr_link_set_peer_address(a->link, &to_b);
    sr_link_set_peer_address(b->link, &to_a);
    sr_link_start(a->link);
    sr_link_start(b->link);
}

void end_close(struct end *end, uv_loop_t *loop)
{
    sr_link_close(end->link, on_closed, end);
    RUN_UNTIL(loop, end->closed);
    sr_peer_msg_free(end->last);
}

void loop_finish(uv_loop_t *loop)
{
    struct watchdog watchdog;

    watchdog_start(&watchdog, loop, "the loop runs out");
    uv_unref((uv_handle_t *)&watchdog.timer);
    uv_run(loop, UV_RUN_DEFAULT);
    watchdog_stop(&watchdog, loop);
    if (uv_loop_close(loop) != 0) {
        fprintf(stderr, "handles are left in the loop\n");
        uv_print_all_handles(loop, stderr);
        abort();
    }
}

struct sr_peer_msg *write_msg(uint32_t bytes, uint8_t seed, struct sr_budget *budget)
{
    struct sr_peer_msg *msg = sr_peer_msg_new(SR_MSG_WRITE, 1);

    msg->length_bytes = msg->payload_bytes = bytes;
    msg->payload = sr_buf_alloc(budget, bytes);
    for (uint32_t i = 0; i < bytes; i++)
        msg->payload->data[i] = (uint8_t)(seed + i + (i >> 12) * 3);
    return msg;
}
