/* throttle.c - see throttle.h. */
#include "core/throttle.h"

#include <string.h>

#define JUDGE_EVERY_US 100000u /* the controller moves at most that often */
#define HOST_QUIET_US  500000u /* no host write for that long: nobody is disturbed */
#define BURST_US       50000u  /* the bucket holds that much of the rate */
#define SMOOTH         0.1
#define CALM_FLOOR_US  200.0 /* differences below that are noise */

void sr_throttle_begin(struct sr_throttle *throttle, uint64_t now_us)
{
    throttle->rate_bytes_per_s = 0; /* set by the first judgement */
    throttle->tokens_bytes = 0;
    throttle->filled_us = throttle->judged_us = throttle->window_began_us = now_us;
    throttle->window_bytes = throttle->measured_bytes_per_s = 0;
    throttle->latency_us = 0;
}

void sr_throttle_host_write(struct sr_throttle *throttle, uint64_t now_us, uint64_t latency_us, bool resyncing)
{
    double *smoothed = resyncing ? &throttle->latency_us : &throttle->calm_latency_us;
    *smoothed = *smoothed == 0 ? (double)latency_us : *smoothed + SMOOTH * ((double)latency_us - *smoothed);
    throttle->last_write_us = now_us;
}

uint64_t sr_throttle_latency_us(const struct sr_throttle *throttle)
{
    return (uint64_t)throttle->calm_latency_us;
}

static bool hosts_write(const struct sr_throttle *throttle, uint64_t now_us)
{
    return throttle->last_write_us && now_us - throttle->last_write_us < HOST_QUIET_US;
}

static void judge(struct sr_throttle *throttle, const struct sr_throttle_limits *limits, uint64_t now_us)
{
    uint64_t rate = throttle->rate_bytes_per_s;
    if (!rate) /* begin in the middle: what was measured, else four times the minimum */
        rate = throttle->measured_bytes_per_s ? throttle->measured_bytes_per_s : limits->min_bytes_per_s * 4;
    double calm = throttle->calm_latency_us < CALM_FLOOR_US ? CALM_FLOOR_US : throttle->calm_latency_us;
    double bound = calm * limits->latency_factor_percent / 100.0;
    if (throttle->latency_us > bound)
        rate /= 2;
    else
        rate += rate / 8 + 65536;
    throttle->latency_us *= 0.9; /* an old peak fades even if no write comes to correct it */
    if (limits->max_bytes_per_s && rate > limits->max_bytes_per_s)
        rate = limits->max_bytes_per_s;
    if (rate < limits->min_bytes_per_s)
        rate = limits->min_bytes_per_s;
    if (rate > UINT64_C(1) << 36)
        rate = UINT64_C(1) << 36;
    throttle->rate_bytes_per_s = rate;
    throttle->judged_us = now_us;
}

bool sr_throttle_may_start(struct sr_throttle *throttle, const struct sr_throttle_limits *limits, uint64_t now_us)
{
    bool disturbed = hosts_write(throttle, now_us);
    if (!disturbed && !limits->max_bytes_per_s) {
        throttle->filled_us = now_us;
        throttle->tokens_bytes = 0;
        return true;
    }
    if (!disturbed)
        throttle->rate_bytes_per_s = limits->max_bytes_per_s;
    else if (!throttle->rate_bytes_per_s || now_us - throttle->judged_us >= JUDGE_EVERY_US)
        judge(throttle, limits, now_us);
    uint64_t elapsed = now_us - throttle->filled_us;
    if (elapsed < 1000) /* so that rounding never eats a low rate */
        return throttle->tokens_bytes > 0;
    if (elapsed > 1000000)
        elapsed = 1000000;
    throttle->tokens_bytes += (int64_t)(throttle->rate_bytes_per_s / 1000 * elapsed / 1000);
    throttle->filled_us = now_us;
    int64_t most = (int64_t)(throttle->rate_bytes_per_s / 1000 * BURST_US / 1000) + 1;
    if (throttle->tokens_bytes > most)
        throttle->tokens_bytes = most;
    return throttle->tokens_bytes > 0;
}

uint64_t sr_throttle_next_us(const struct sr_throttle *throttle, uint64_t now_us)
{
    uint64_t rate = throttle->rate_bytes_per_s ? throttle->rate_bytes_per_s : 1;
    uint64_t missing = throttle->tokens_bytes > 0 ? 0 : (uint64_t)(1 - throttle->tokens_bytes);
    uint64_t wait = missing * 1000 / (rate / 1000 + 1);
    if (wait < 1000)
        wait = 1000;
    return now_us + (wait < 500000 ? wait : 500000);
}

void sr_throttle_spend(struct sr_throttle *throttle, uint64_t bytes)
{
    throttle->tokens_bytes -= (int64_t)bytes;
}

void sr_throttle_moved(struct sr_throttle *throttle, uint64_t now_us, uint64_t bytes)
{
    throttle->window_bytes += bytes;
    uint64_t elapsed = now_us - throttle->window_began_us;
    if (elapsed < 500000)
        return;
    uint64_t rate = (uint64_t)((double)throttle->window_bytes * 1e6 / (double)elapsed);
    throttle->measured_bytes_per_s =
        throttle->measured_bytes_per_s ? (throttle->measured_bytes_per_s + rate) / 2 : rate;
    throttle->window_bytes = 0;
    throttle->window_began_us = now_us;
}
