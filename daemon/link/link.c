/* link.c - the peer link as its owner sees it, and which connection counts.
 *
 * There may be several connections at a time: strangers that have not said who they are, one that is being dialled,
 * one that is authenticated and waits, and the one that is up.
 *
 * Invariants
 *  1. At most one connection is up (current), and at most one waits; each authenticated one beyond these was ended in
 * favour of the one with the higher number.
 *  2. on_up and on_down alternate, and sr_link_drained lies between a down and the next up.
 *  3. on_down is called from the idle handle, never from inside a call of the owner.
 *  4. The memory of the link lives until every handle and connection is closed.
 *
 * Nothing here is durable: what matters survives in the cores' sessions.
 */
#include "link/link_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "meta/meta.h"

_Static_assert(SR_VOLUME_PENDING == 1 && SR_VOLUME_LIVE == 2 && SR_VOLUME_DELETING == 3, "wire numbers of CATALOG");

#define ACCEPT_LINES_MAX 5 /* then one a second */

static uint64_t wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- what people read --------------------------------------------------------------------------------- */

void link_log(struct sr_link *link, enum sr_log_level level, const char *format, ...)
{
    char text[SR_LINK_TEXT_BYTES + 128];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (link->callbacks.log && !link->closed)
        link->callbacks.log(link->arg, level, text);
}

void link_report(struct sr_link *link, struct reason *reason, bool strangers, const char *text)
{
    uint64_t now_ms = uv_now(link->loop), refill = (now_ms - reason->last_ms) / 1000;

    if (strcmp(reason->text, text) == 0) {
        reason->repeats++;
        return;
    }
    if (strangers) {
        reason->tokens = reason->tokens + refill > ACCEPT_LINES_MAX ? ACCEPT_LINES_MAX : reason->tokens + refill;
        if (refill)
            reason->last_ms = now_ms;
        if (reason->tokens == 0) {
            reason->repeats++;
            return;
        }
        reason->tokens--;
    }
    if (reason->repeats)
        link_log(link, SR_LOG_WARNING, "peer link: %s (since the last line %llu more failures)", text,
                 (unsigned long long)reason->repeats);
    else
        link_log(link, SR_LOG_WARNING, "peer link: %s", text);
    snprintf(reason->text, sizeof reason->text, "%s", text);
    reason->repeats = 0;
}

static void reason_over(struct sr_link *link, struct reason *reason)
{
    if (reason->repeats)
        link_log(link, SR_LOG_NOTICE, "peer link: \"%s\" came %llu more times", reason->text,
                 (unsigned long long)reason->repeats);
    reason->text[0] = '\0';
    reason->repeats = 0;
}

static enum sr_link_state link_state(const struct sr_link *link)
{
    if (link->current)
        return SR_LINK_UP;
    if (link->waiting)
        return SR_LINK_DRAINING;
    if (link->dialling || link->resolving || link->unauthenticated)
        return SR_LINK_CONNECTING;
    return SR_LINK_IDLE;
}

void link_note_state(struct sr_link *link)
{
    enum sr_link_state state = link_state(link);

    if (state == link->last_state)
        return;
    link->last_state = state;
    link->since_wall_ms = wall_ms();
}

const char *sr_link_state_name(enum sr_link_state state)
{
    switch (state) {
    case SR_LINK_IDLE:
        return "idle";
    case SR_LINK_CONNECTING:
        return "connecting";
    case SR_LINK_DRAINING:
        return "draining";
    case SR_LINK_UP:
        return "up";
    }
    return "unknown";
}

/* ---- which connection counts -------------------------------------------------------------------------- */

/* The number of the site with the lower UUID, which both ends see alike. */
static int compare_numbers(const struct sr_link *link, const struct conn *a, const struct conn *b)
{
    bool mine = sr_uuid_compare(&link->config.site, &a->peer.hello.site) < 0;
    uint64_t boot_a = mine ? link->config.boot : a->peer.hello.boot;
    uint64_t boot_b = mine ? link->config.boot : b->peer.hello.boot;
    uint64_t number_a = mine ? a->number : a->peer.hello.connection;
    uint64_t number_b = mine ? b->number : b->peer.hello.connection;

    if (boot_a != boot_b)
        return boot_a < boot_b ? -1 : 1;
    return number_a == number_b ? 0 : number_a < number_b ? -1 : 1;
}

/* At first contact both sites dial.  The dial of the site with the lower UUID, which is the one that dials from then on,
 * wins while it is under way: else a link that is up would at once be replaced by its twin. */
static bool twin_is_on_its_way(struct sr_link *link, struct conn *conn)
{
    struct conn *dialling = link->dialling;
    bool mine = sr_uuid_compare(&link->config.site, &conn->peer.hello.site) < 0;

    if (!dialling || dialling == conn || conn->dialled)
        return false;
    if (mine && !link->current && !link->waiting) {
        conn_end(conn, SR_E_EXISTS, SR_LINK_REPLACED, true, "a connection in the other direction is under way");
        return true;
    }
    if (!mine)
        conn_end(dialling, SR_E_EXISTS, SR_LINK_REPLACED, true, "a connection in the other direction is there");
    return false;
}

bool link_authenticated(struct sr_link *link, struct conn *conn)
{
    if (twin_is_on_its_way(link, conn))
        return false;
    struct conn *others[2] = {link->current, link->waiting};

    for (int i = 0; i < 2; i++)
        if (others[i] && compare_numbers(link, conn, others[i]) <= 0) {
            conn_end(conn, SR_E_EXISTS, SR_LINK_REPLACED, true, "a newer connection of the same sites exists");
            return false;
        }
    SR_ASSERT(conn->state == CONN_HELLO);
    conn->state = CONN_WAITING;
    if (!conn->dialled)
        link->unauthenticated--;
    if (link->dialling == conn)
        link->dialling = NULL;
    link->peer = conn->peer.hello.site;
    link->waiting = conn;
    for (int i = 0; i < 2; i++)
        if (others[i])
            conn_end(others[i], SR_E_EXISTS, SR_LINK_REPLACED, true, "the peer opened a newer connection");
    link_note_state(link);
    return conn->state == CONN_WAITING;
}

void link_up(struct sr_link *link, struct conn *conn)
{
    SR_ASSERT(link->waiting == conn && !link->current && !link->undrained);
    link->waiting = NULL;
    link->current = conn;
    link->connects++;
    link->up_since_ms = uv_now(link->loop);
    link->last_peer = conn->peer;
    link->peer_expires_s = link->config.insecure ? 0 : sr_tls_peer_expires_s(sr_stream_ssl(conn->stream));
    uv_timer_stop(&link->dial_timer);
    link_note_state(link);
    reason_over(link, &link->dial_reason);
    link_log(link, SR_LOG_NOTICE, "peer link: up, site \"%s\" at %s (%s, protocol %u, %s)",
             conn->peer.hello.site_name, conn->address, conn->peer.hello.software, conn->peer.version,
             link->config.insecure ? "WITHOUT encryption" : "TLS 1.3");
    conn_apply_pause(conn);
    link->callbacks.on_up(link->arg, &link->last_peer);
}

/* Invariant 3. */
static void on_idle(uv_idle_t *idle)
{
    struct sr_link *link = idle->data;

    uv_idle_stop(idle);
    if (!link->down_due)
        return;
    link->down_due = false;
    link->callbacks.on_down(link->arg, link->down_cause, link->down_text);
}

static void went_down(struct sr_link *link, enum sr_link_cause cause, const char *text)
{
    SR_ASSERT(!link->undrained);
    link->undrained = true;
    link->down_due = true;
    link->down_cause = cause;
    snprintf(link->down_text, sizeof link->down_text, "%s", text);
    uv_idle_start(&link->idle, on_idle);
    link_log(link, cause == SR_LINK_REPLACED ? SR_LOG_NOTICE : SR_LOG_WARNING, "peer link: down: %s", text);
}

void link_ended(struct sr_link *link, struct conn *conn, enum sr_link_cause cause, const char *text, bool quiet)
{
    bool was_up = conn->state == CONN_UP;
    bool dialled = conn->dialled;
    bool stable = was_up && uv_now(link->loop) - link->up_since_ms >= link->config.retry_max_ms;
    char where[SR_LINK_TEXT_BYTES];

    snprintf(where, sizeof where, "%s %s: %s", dialled ? "dialling" : "connection from", conn->address, text);
    conn_close(conn, cause != SR_LINK_SILENT);
    dial_refill_reserve(link);
    if (!was_up)
        link->refused += !quiet;
    if (!quiet || was_up)
        snprintf(link->last_error, sizeof link->last_error, "%s", was_up ? text : where);
    if (was_up)
        went_down(link, cause, text);
    else if (!quiet)
        link_report(link, dialled ? &link->dial_reason : &link->accept_reason, !dialled, where);
    link_note_state(link);
    if (stable)
        link->failures = 0;
    dial_schedule(link, (dialled || was_up) && !stable);
}

/* ---- budget ------------------------------------------------------------------------------------------- */

static void on_budget_timer(uv_timer_t *timer)
{
    sr_link_budget_freed(timer->data);
}

void link_budget_blocked(struct sr_link *link)
{
    if (!uv_is_active((uv_handle_t *)&link->budget_timer))
        uv_timer_start(&link->budget_timer, on_budget_timer, LINK_BUDGET_RETRY_MS, LINK_BUDGET_RETRY_MS);
}

void sr_link_budget_freed(struct sr_link *link)
{
    bool blocked = false;

    for (struct conn *conn = link->conns; conn; conn = conn->next) {
        conn_retry_payload(conn);
        blocked = blocked || (conn->state != CONN_DEAD && conn->budget_blocked);
    }
    if (!blocked)
        uv_timer_stop(&link->budget_timer);
}

/* ---- life --------------------------------------------------------------------------------------------- */

static void free_strings(struct sr_link *link)
{
    free((char *)link->config.site_name);
    free((char *)link->config.peer_name);
    free(link->peer_host);
}

void link_release(struct sr_link *link)
{
    if (--link->handles > 0)
        return;
    SR_ASSERT(link->closed && !link->conns);
    sr_tls_unref(link->config.tls);
    free_strings(link);
    if (link->closed_cb)
        link->closed_cb(link->closed_arg);
    free(link);
}

static void on_handle_closed(uv_handle_t *handle)
{
    link_release(handle->data);
}

static void set_defaults(struct sr_link_config *config)
{
    if (!config->handshake_timeout_ms)
        config->handshake_timeout_ms = 10000;
    if (!config->retry_min_ms)
        config->retry_min_ms = 50;
    if (!config->retry_max_ms)
        config->retry_max_ms = 5000;
    if (!config->unauthenticated_max)
        config->unauthenticated_max = 16;
    if (!config->queue_high_bytes) {
        config->queue_high_bytes = 16u << 20;
        config->queue_low_bytes = 4u << 20;
    }
    if (!config->version_min) {
        config->version_min = SR_WIRE_VERSION_MIN;
        config->version_max = SR_WIRE_VERSION_MAX;
    }
}

static bool copy_config(struct sr_link *link, const struct sr_link_config *config)
{
    link->config = *config;
    set_defaults(&link->config);
    link->config.listen = NULL;
    link->config.site_name = strdup(config->site_name);
    link->config.peer_name = strdup(config->peer_name);
    link->peer_host = config->peer_address.host ? strdup(config->peer_address.host) : NULL;
    link->peer_port = config->peer_address.port;
    return link->config.site_name && link->config.peer_name && (link->peer_host || !config->peer_address.host);
}

static void init_handles(struct sr_link *link)
{
    uv_idle_init(link->loop, &link->idle);
    uv_timer_init(link->loop, &link->dial_timer);
    uv_timer_init(link->loop, &link->budget_timer);
    uv_timer_init(link->loop, &link->accept_timer);
    link->idle.data = link->dial_timer.data = link->budget_timer.data = link->accept_timer.data = link;
    link->handles = 4;
}

enum sr_error sr_link_new(uv_loop_t *loop, const struct sr_link_config *config,
                          const struct sr_link_callbacks *callbacks, void *arg, struct sr_link **result, char *text)
{
    struct sr_link *link = calloc(1, sizeof *link);
    enum sr_error error = SR_E_NO_MEMORY;

    SR_ASSERT(config->n_listen <= SR_LINK_LISTEN_MAX && config->boot > 0);
    SR_ASSERT(config->insecure == (config->tls == NULL));
    if (config->heartbeat_interval_ms == 0 || config->heartbeat_timeout_ms <= config->heartbeat_interval_ms) {
        snprintf(text, SR_LINK_TEXT_BYTES,
                 "heartbeat: the timeout must be longer than the interval, which is not zero");
        return SR_E_INVALID;
    }
    snprintf(text, SR_LINK_TEXT_BYTES, "peer link: no memory");
    if (!link)
        return error;
    link->spare_fd = link->reserve_fd = -1;
    if (!copy_config(link, config))
        goto fail;
    link->loop = loop;
    link->callbacks = *callbacks;
    link->arg = arg;
    link->peer = config->peer;
    link->since_wall_ms = wall_ms();
    link->accept_reason.tokens = ACCEPT_LINES_MAX;
    for (size_t i = 0; i < config->n_listen; i++) {
        error = dial_bind(link, &config->listen[i], &link->listeners[i], text);
        if (error != SR_OK)
            goto fail_listeners;
        link->n_listeners++;
    }
    sr_tls_ref(link->config.tls);
    init_handles(link);
    *result = link;
    return SR_OK;

fail_listeners:
    dial_close(link);
fail:
    free_strings(link);
    free(link);
    return error;
}

void sr_link_start(struct sr_link *link)
{
    SR_ASSERT(!link->started && !link->closed);
    link->started = true;
    dial_refill_reserve(link);
    dial_listen(link);
    dial_schedule(link, false);
}

void sr_link_close(struct sr_link *link, void (*closed)(void *arg), void *arg)
{
    SR_ASSERT(!link->closed);
    link->closed = true;
    link->closed_cb = closed;
    link->closed_arg = arg;
    link->down_due = false;
    for (struct conn *conn = link->conns; conn; conn = conn->next)
        if (conn->state != CONN_DEAD)
            conn_close(conn, conn->state >= CONN_WAITING);
    dial_close(link);
    uv_close((uv_handle_t *)&link->idle, on_handle_closed);
    uv_close((uv_handle_t *)&link->dial_timer, on_handle_closed);
    uv_close((uv_handle_t *)&link->budget_timer, on_handle_closed);
    uv_close((uv_handle_t *)&link->accept_timer, on_handle_closed);
}

/* ---- what the owner does ------------------------------------------------------------------------------ */

void sr_link_set_tls(struct sr_link *link, struct sr_tls *tls)
{
    SR_ASSERT(!link->config.insecure && tls);
    sr_tls_ref(tls);
    sr_tls_unref(link->config.tls);
    link->config.tls = tls;
}

bool sr_link_is_up(const struct sr_link *link)
{
    return link->current != NULL;
}

bool sr_link_send_msg(struct sr_link *link, const struct sr_uuid *collection, struct sr_peer_msg *msg)
{
    uint8_t out[SR_FRAME_MSG_MAX_BYTES];
    struct conn *conn = link->current;
    bool sent = false;

    if (conn) {
        size_t bytes = sr_frame_encode_msg(out, sizeof out, conn->peer.version, collection, msg);

        sent = sr_stream_queue(conn->stream, out, bytes, msg->payload, msg->payload_offset, msg->payload_bytes);
        if (!sent)
            sr_link_fault(link, "a message could not be queued");
    }
    sr_peer_msg_free(msg);
    return sent;
}

bool sr_link_send_site(struct sr_link *link, struct sr_site_msg *msg)
{
    bool sent = false;

    if (link->current) {
        sent = conn_send_site(link->current, msg);
        if (!sent)
            sr_link_fault(link, "a message could not be queued");
    }
    sr_site_msg_free(msg);
    return sent;
}

size_t sr_link_queue_bytes(const struct sr_link *link)
{
    return link->current ? sr_stream_queue_bytes(link->current->stream) : 0;
}

void sr_link_fault(struct sr_link *link, const char *text)
{
    if (link->current)
        conn_end(link->current, SR_E_PROTOCOL, SR_LINK_FAULTY, false, "%s", text);
}

void sr_link_drained(struct sr_link *link)
{
    if (!link->undrained || link->down_due) /* on_down is still to come, and the answer to it */
        return;
    link->undrained = false;
    if (link->waiting && !link->closed)
        conn_drained(link->waiting);
}

void sr_link_pause_reading(struct sr_link *link)
{
    link->paused = true;
    if (link->current)
        conn_apply_pause(link->current);
}

void sr_link_resume_reading(struct sr_link *link)
{
    link->paused = false;
    if (link->current)
        conn_apply_pause(link->current);
}

void sr_link_status(const struct sr_link *link, struct sr_link_status *status)
{
    memset(status, 0, sizeof *status);
    status->state = link_state(link);
    status->since_wall_ms = link->since_wall_ms;
    snprintf(status->last_error, sizeof status->last_error, "%s", link->last_error);
    status->bytes_in = link->bytes_in;
    status->bytes_out = link->bytes_out;
    for (const struct conn *conn = link->conns; conn; conn = conn->next) {
        if (conn->state == CONN_DEAD)
            continue;
        status->bytes_in += sr_stream_bytes_in(conn->stream);
        status->bytes_out += sr_stream_bytes_out(conn->stream);
    }
    if (link->current)
        status->rtt_us = link->current->rtt_us;
    status->queue_bytes = sr_link_queue_bytes(link);
    status->connects = link->connects;
    status->refused = link->refused;
    status->budget_waits = link->budget_waits;
    status->secure = !link->config.insecure;
    status->peer_certificate_expires_s = link->peer_expires_s;
    status->peer = link->last_peer;
}
