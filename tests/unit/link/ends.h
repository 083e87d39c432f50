/* ends.h - two ends of a peer link in one loop, and waiting for conditions instead of sleeping. */
#ifndef ENDS_H
#define ENDS_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "certs.h"
#include "link/link.h"

/* Fails the test (aborts) if the condition is not true within 30 s of running the loop. */
#define RUN_UNTIL(loop, condition)                                                                                   \
    do {                                                                                                             \
        struct watchdog watchdog_;                                                                                   \
        watchdog_start(&watchdog_, (loop), #condition);                                                              \
        while (!(condition))                                                                                         \
            uv_run((loop), UV_RUN_ONCE);                                                                             \
        watchdog_stop(&watchdog_, (loop));                                                                           \
    } while (0)

struct watchdog {
    uv_timer_t timer;
    bool closed;
    const char *condition;
};
void watchdog_start(struct watchdog *watchdog, uv_loop_t *loop, const char *condition);
void watchdog_stop(struct watchdog *watchdog, uv_loop_t *loop);

void run_for_ms(uv_loop_t *loop, unsigned ms); /* where nothing happening is what is tested */

struct end {
    struct sr_link *link;
    const char *name;
    unsigned ups, downs, msgs, site_msgs, writables;
    bool hold_drain;  /* do not call sr_link_drained by itself */
    bool refuse_peer; /* check_identity says no */
    bool keep_msgs;   /* keep the last message in `last` */
    bool echo;        /* answer each WRITE by sending its payload back in a WRITE */
    struct sr_peer_msg *last;
    struct sr_uuid last_collection;
    struct sr_link_peer peer;
    enum sr_link_cause cause;
    char down_text[SR_LINK_TEXT_BYTES];
    char log[16384]; /* all lines */
    unsigned log_lines;
    uint64_t payload_bytes, payload_sum; /* received */
    bool closed;
};

/* A configuration with short times; ids are fixed: site-a has the lower UUID. */
void end_config(struct sr_link_config *config, bool a, struct sr_tls *tls);
void end_open(struct end *end, uv_loop_t *loop, const struct sr_link_config *config);
/* Opens both, tells each the other's port, and starts them. */
void ends_start(struct end *a, const struct sr_link_config *config_a, struct end *b,
                const struct sr_link_config *config_b, uv_loop_t *loop);
void end_close(struct end *end, uv_loop_t *loop);
void loop_finish(uv_loop_t *loop); /* runs out, and closes */

struct sr_peer_msg *write_msg(uint32_t bytes, uint8_t seed, struct sr_budget *budget);

#endif
