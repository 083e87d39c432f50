/* throttle.h - how fast a resync may go: hosts come first, yet it always moves.
 *
 * A token bucket whose rate a controller moves: while hosts write, their mean latency under resync may be at most
 * `latency_factor_percent` of what it was without; above that the rate halves, below it grows.  Never under
 * the minimum, never over the maximum.  Without host writes there is no limit but the maximum.
 */
#ifndef SR_CORE_THROTTLE_H
#define SR_CORE_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

struct sr_throttle {
    uint64_t rate_bytes_per_s;
    int64_t tokens_bytes;
    uint64_t filled_us;
    uint64_t judged_us;
    double calm_latency_us; /* smoothed, while no resync runs; 0: none yet */
    double latency_us;      /* smoothed, of this window */
    uint64_t last_write_us;
    /* what was moved of late, for status */
    uint64_t window_began_us, window_bytes;
    uint64_t measured_bytes_per_s;
};

struct sr_throttle_limits {
    uint64_t min_bytes_per_s, max_bytes_per_s; /* max 0: none */
    uint32_t latency_factor_percent;
};

void sr_throttle_begin(struct sr_throttle *throttle, uint64_t now_us);

/* A host's write took that long; resyncing: while copies were under way. */
void sr_throttle_host_write(struct sr_throttle *throttle, uint64_t now_us, uint64_t latency_us, bool resyncing);

/* Of a host's write of late, while no resync ran; 0: not known. */
uint64_t sr_throttle_latency_us(const struct sr_throttle *throttle);

/* May a copy start now?  Takes nothing. */
bool sr_throttle_may_start(struct sr_throttle *throttle, const struct sr_throttle_limits *limits, uint64_t now_us);

/* When to ask again, if not. */
uint64_t sr_throttle_next_us(const struct sr_throttle *throttle, uint64_t now_us);

/* A copy of that many bytes starts. */
void sr_throttle_spend(struct sr_throttle *throttle, uint64_t bytes);

/* That many bytes are settled at the peer: for the rate in the status. */
void sr_throttle_moved(struct sr_throttle *throttle, uint64_t now_us, uint64_t bytes);

#endif
