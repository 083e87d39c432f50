/* shutdown.c - the end of a site, in order and in time.
 *
 *   hosts disconnected -> every core stopped (maps exact, the peer told) -> link, control closed -> loop left
 *
 * The whole takes at most SR_STOP_DEADLINE_MS; what is not finished then is what a crash leaves, and a crash is
 * harmless: all that was acknowledged is durable, and intents cover what was in flight.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "operation.h"

#define HOSTS_DEADLINE_MS 7000u

struct stopping {
    struct sr_site *site;
    uv_timer_t deadline;
    uint32_t cores_left;
    uint32_t closing_left;
};

static void leave(struct sr_site *site)
{
    if (site->stop_fn)
        site->stop_fn(site);
}

static void closed(void *arg)
{
    struct stopping *stopping = arg;

    if (--stopping->closing_left == 0)
        leave(stopping->site);
}

static void close_rest(struct stopping *stopping)
{
    struct sr_site *site = stopping->site;

    stopping->closing_left = 2;
    sr_link_events_close(site, closed, stopping);
    struct sr_control *control = site->control;
    site->control = NULL;
    sr_control_close(control, closed, stopping);
}

static void core_stopped(void *arg, struct sr_collection *collection, enum sr_error error, const char *text)
{
    struct stopping *stopping = arg;

    if (error != SR_OK && error != SR_E_CANCELLED)
        sr_log(SR_LOG_WARNING, "%s", text);
    (void)collection;
    if (--stopping->cores_left == 0)
        close_rest(stopping);
}

static void hosts_gone(void *arg)
{
    struct stopping *stopping = arg;
    struct sr_site *site = stopping->site;
    struct sr_collection *collection, *next;

    site->nbd = NULL;
    stopping->cores_left = 1;
    for (collection = TAILQ_FIRST(&site->collections); collection; collection = next) {
        next = TAILQ_NEXT(collection, link);
        if (!collection->core || collection->dead)
            continue;
        stopping->cores_left++;
        sr_driver_admin(collection, SR_ADMIN_STOP, false, core_stopped, stopping);
    }
    if (--stopping->cores_left == 0)
        close_rest(stopping);
}

static void too_late(uv_timer_t *timer)
{
    struct stopping *stopping = timer->data;

    sr_log(SR_LOG_WARNING, "not everything ended in time; the next start goes on from the metadata");
    leave(stopping->site);
}

void sr_shutdown_begin(struct sr_site *site)
{
    struct stopping *stopping;

    if (site->stopping)
        return;
    site->stopping = true;
    stopping = calloc(1, sizeof(*stopping));
    if (!stopping) {
        leave(site);
        return;
    }
    site->shutdown = stopping;
    stopping->site = site;
    uv_timer_init(site->loop, &stopping->deadline);
    stopping->deadline.data = stopping;
    uv_timer_start(&stopping->deadline, too_late, SR_STOP_DEADLINE_MS, 0);
    sr_control_emit(site->control, SR_LOG_NOTICE, "daemon", "", sr_driver_wall_ms(), "stopping");
    sr_nbd_server_close(site->nbd, HOSTS_DEADLINE_MS, hosts_gone, stopping);
}

/* ---- after the loop ----------------------------------------------------------------------------------------------
 */

static void ignore(void *arg)
{
    (void)arg;
}

static bool all_idle(const struct sr_site *site)
{
    const struct sr_collection *collection;
    const struct sr_volume *volume;

    TAILQ_FOREACH (collection, &site->collections, link) {
        if (collection->n_ios)
            return false;
    }
    TAILQ_FOREACH (volume, &site->volumes, link) {
        if (volume->operation)
            return false;
    }
    return site->move == NULL;
}

static void drop_all(struct sr_site *site)
{
    struct sr_volume *volume;

    while (!TAILQ_EMPTY(&site->collections)) {
        struct sr_collection *collection = TAILQ_FIRST(&site->collections);
        sr_core_free(collection->core);
        collection->core = NULL;
        sr_table_drop_collection(collection);
    }
    while ((volume = TAILQ_FIRST(&site->volumes))) {
        if (volume->store)
            sr_store_close(volume->store);
        volume->store = NULL;
        sr_table_drop_volume(volume);
    }
    for (size_t i = 0; i < site->n_pools; i++) {
        if (site->pools[i].pool)
            sr_pool_close(site->pools[i].pool);
    }
    if (site->engine)
        sr_store_engine_close(site->engine, ignore, NULL);
    sr_tls_unref(site->tls);
    sr_tls_unref(site->nbd_tls);
    sr_actions_free(&site->actions);
    sr_reconcile_reset(site);
    sr_accept_link_down(site);
    free(site->shutdown);
    site->shutdown = NULL;
}

void sr_shutdown_finish(struct sr_site *site)
{
    if (site->halted)
        return; /* the process ends at once */
    if (site->nbd)
        sr_nbd_server_close(site->nbd, 0, ignore, NULL);
    site->nbd = NULL;
    if (site->control)
        sr_control_close(site->control, ignore, NULL);
    site->control = NULL;
    if (site->link)
        sr_link_events_close(site, ignore, NULL);
    site->halted = true; /* no core steps any more: it could not commit */
    sr_meta_close(site->meta); /* waits for the commits that are out */
    site->meta = NULL;
    if (site->shutdown)
        uv_close((uv_handle_t *)&((struct stopping *)site->shutdown)->deadline, NULL);
    if (site->watch_timer_open)
        uv_close((uv_handle_t *)&site->watch_timer, NULL);
    if (site->members_timer_open)
        uv_close((uv_handle_t *)&site->members_timer, NULL);
    if (site->retry_timer_open)
        uv_close((uv_handle_t *)&site->retry_timer, NULL);
    site->finished = all_idle(site);
    if (!site->finished)
        return;
    uv_run(site->loop, UV_RUN_NOWAIT);
    uv_run(site->loop, UV_RUN_NOWAIT);
    drop_all(site);
    uv_run(site->loop, UV_RUN_DEFAULT);
}
