/* sync.c - fdatasync, shared by all who wait for one.
 *
 *   join:  waiting  --(none in flight: start)-->  running  --(ended)-->  finished
 *
 * Invariants
 *   1. A request is finished by an fdatasync that began after it joined: who comes while one is in flight waits
 *      for the next.
 *   2. A failed fdatasync fails everyone who runs or waits, and none is started on this store again: the kernel
 *      reports an error once and would then say that all is well.
 * A crash is harmless: nothing was reported that an fdatasync had not confirmed.
 */
#include "store/store_impl.h"

static void sync_start(struct sr_store *store);

static void finish_all(struct sr_request_list list, enum sr_error error)
{
    struct sr_request *request;

    while ((request = sr_request_list_pop(&list)))
        sr_request_finish(request, error);
}

static void sync_done(struct sr_prim *prim, int64_t result)
{
    struct sr_store *store = (struct sr_store *)((char *)prim - offsetof(struct sr_store, sync_prim));
    struct sr_request_list running = store->sync_running;
    struct sr_request_list waiting = {NULL, NULL};

    store->sync_running = waiting;
    store->syncing = false;
    if (result < 0 || store->failed) { /* failed: by a write meanwhile, which may have eaten the error */
        store->failed = true;
        waiting = store->sync_waiting;
        store->sync_waiting = (struct sr_request_list){NULL, NULL};
        /* No room is no excuse here: data that was said to be written is not. */
        finish_all(running, SR_E_IO);
        finish_all(waiting, SR_E_IO);
        return;
    }
    if (store->sync_waiting.head)
        sync_start(store);
    finish_all(running, SR_OK); /* the last one may close the store */
}

static void sync_start(struct sr_store *store)
{
    SR_ASSERT(!store->syncing && !store->failed);
    store->syncing = true;
    store->sync_running = store->sync_waiting;
    store->sync_waiting = (struct sr_request_list){NULL, NULL};
    store->sync_prim.op = SR_PRIM_SYNC;
    store->sync_prim.fd = store->fd;
    store->sync_prim.offset = 0;
    store->sync_prim.length = store->size_bytes;
    store->sync_prim.done = sync_done;
    sr_engine_submit(store, &store->sync_prim);
}

void sr_sync_join(struct sr_request *request)
{
    struct sr_store *store = request->store;

    SR_ASSERT(!store->failed);
    sr_request_list_push(&store->sync_waiting, request);
    if (!store->syncing)
        sync_start(store);
}
