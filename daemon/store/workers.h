/* workers.h - primitives, and a small pool of threads that carries them out.
 *
 * A primitive is one system call (or one `work` function) on one descriptor.  It belongs to the pool from push
 * until it comes out of sr_workers_drain; the mutex orders its fields between the threads.
 */
#ifndef SR_STORE_WORKERS_H
#define SR_STORE_WORKERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"

enum sr_prim_op {
    SR_PRIM_READ,      /* length bytes at offset into data */
    SR_PRIM_WRITE,     /* from data, with rw_flags */
    SR_PRIM_FALLOCATE, /* mode, offset, length */
    SR_PRIM_SYNC,      /* fdatasync */
    SR_PRIM_WORK       /* result = work(prim), always on a thread */
};

struct sr_prim {
    enum sr_prim_op op;
    int fd;
    void *data;
    uint64_t offset, length;
    int rw_flags;
    int mode;
    bool zeroing; /* a WRITE that is part of a ZERO; for injected faults */
    int64_t (*work)(struct sr_prim *prim);
    int64_t result;                                     /* count or -errno */
    uint32_t delay_ms;                                  /* injected: its completion waits that long */
    void (*done)(struct sr_prim *prim, int64_t result); /* on the loop */
    struct sr_prim *next;
};

struct sr_prim_list {
    struct sr_prim *head, *tail;
    uint32_t n;
};

void sr_prim_list_push(struct sr_prim_list *list, struct sr_prim *prim);
struct sr_prim *sr_prim_list_pop(struct sr_prim_list *list); /* NULL: empty */

/* Carries it out, blocking; any thread. */
int64_t sr_prim_execute(struct sr_prim *prim);

#define SR_WORKERS_MAX 64

struct sr_workers {
    pthread_mutex_t mutex;
    pthread_cond_t work_came;
    struct sr_prim_list queue; /* to do */
    struct sr_prim_list ended; /* done; for drain */
    bool stopping;
    uint32_t idle;
    uint32_t n, max; /* threads; loop thread only */
    pthread_t threads[SR_WORKERS_MAX];
    uv_async_t *wake; /* sent when something has ended */
};

/* No thread is started before it is needed. */
void sr_workers_init(struct sr_workers *workers, uint32_t max, uv_async_t *wake);
/* Queues prim; if not even one thread can be had, carries it out here and now (it still comes out of drain). */
void sr_workers_push(struct sr_workers *workers, struct sr_prim *prim);
/* All that have ended. */
struct sr_prim_list sr_workers_drain(struct sr_workers *workers);
/* Nothing may be queued.  Joins the threads. */
void sr_workers_stop(struct sr_workers *workers);

#endif
