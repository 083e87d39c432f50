/* edges.c - the edges between modes that the state table of daemon/core/internal.h allows, as one step can take them.
 *
 * An edge that is not listed is a violation; one that is listed and that a long run never takes is a hole in the
 * simulator, or does not belong here.  The modes are seen from outside, by the name in sr_core_status: where one step
 * passes through two of them, only the last one shows (a paused site that greets again goes from STANDBY through
 * HOLDING to ALONE).
 */
#include <string.h>

#include "sim.h"

static const struct {
    const char *from, *to, *why;
} allowed[] = {
    {"standby", "catching-up", "START was adopted"},
    {"standby", "resyncing", "a restarted active site leads"},
    {"standby", "holding", "the role was taken just after its session had ended"},
    {"standby", "alone", "failover; or it leads a peer that is paused or has failed"},
    {"holding", "standby", "the peer leads; or the copy failed"},
    {"holding", "resyncing", "a new session opened"},
    {"holding", "alone", "the peer was away for the stall budget; pause"},
    {"alone", "standby", "the peer leads; a conflict; the copy failed; its writes were given up"},
    {"alone", "resyncing", "a session opened"},
    {"resyncing", "standby", "the copy failed"},
    {"resyncing", "holding", "the session ended"},
    {"resyncing", "alone", "stall, pause, no space at the peer"},
    {"resyncing", "mirroring", "COMPLETED is durable"},
    {"mirroring", "standby", "the copy failed"},
    {"mirroring", "holding", "the session ended"},
    {"mirroring", "alone", "stall, pause, no space at the peer"},
    {"mirroring", "handing-over", "switchover"},
    {"handing-over", "mirroring", "... undone"},
    {"handing-over", "handed-over", "... the role is given away"},
    {"handing-over", "holding", "the session ended"},
    {"handing-over", "alone", "stall, no space at the peer"},
    {"handing-over", "standby", "the copy failed"},
    {"handed-over", "following", "TAKEN"},
    {"handed-over", "standby", "the session ended"},
    {"catching-up", "following", "COMPLETE is durable"},
    {"catching-up", "standby", "the session ended"},
    {"catching-up", "alone", "a forced failover"},
    {"following", "standby", "the session ended"},
    {"following", "mirroring", "the role was taken"},
};
#define N_ALLOWED (sizeof(allowed) / sizeof(allowed[0]))

bool sim_edge_allowed(const char *from, const char *to)
{
    for (size_t i = 0; i < N_ALLOWED; i++)
        if (strcmp(allowed[i].from, from) == 0 && strcmp(allowed[i].to, to) == 0)
            return true;
    return false;
}

static uint64_t times(const struct sim_stats *stats, const char *from, const char *to)
{
    for (uint32_t a = 0; a < stats->n_modes; a++)
        for (uint32_t b = 0; b < stats->n_modes; b++)
            if (strcmp(stats->modes[a], from) == 0 && strcmp(stats->modes[b], to) == 0)
                return stats->edges[a][b];
    return 0;
}

unsigned sim_edges_print(const struct sim_stats *stats)
{
    unsigned taken = 0;

    printf("edges of the state table:\n");
    for (size_t i = 0; i < N_ALLOWED; i++) {
        uint64_t n = times(stats, allowed[i].from, allowed[i].to);
        taken += n > 0;
        printf("  %-13s -> %-13s %10llu%s  %s\n", allowed[i].from, allowed[i].to, (unsigned long long)n,
               n == 0 ? " NEVER" : "", allowed[i].why);
    }
    printf("%u of %zu allowed edges taken\n", taken, N_ALLOWED);
    return (unsigned)N_ALLOWED - taken;
}
