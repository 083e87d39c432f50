/* fault.h - injected disk faults, for tests and for people who want to see what their set-up does.
 *
 * Faults sit behind the store interface, so that they hit both engines (io_uring passes by anything that is
 * preloaded into the process).  They are off unless the environment variable SYNCREP_FAULT_FILE names a file when
 * the daemon starts.  The file is read again whenever it changes (it may be missing: no faults), and each reading
 * starts the counts anew.  One rule a line; `#` starts a comment; the first rule that applies is used:
 *
 *     PATH-SUFFIX [key=value]...
 *
 *   PATH-SUFFIX   the end of the replica's path ("vol1.img", "b/pool/vol1.img"), or * for every replica
 *   op=           read, write, zero, flush, open (the fsync when a replica is opened) or any; default any
 *   error=        EIO, ENOSPC, EDQUOT, EOPNOTSUPP, ENOMEM ... : the call is not made and answers that
 *                 short : only half is transferred.  zero : nothing is, though the call succeeds
 *   delay_ms=     the completion is held back that long (without error=: of what was really done)
 *   after=N       let the first N matching calls pass; default 0
 *   count=N       then apply to N of them; default: to all
 *   offset=N      only calls whose range covers this byte (a flush covers everything)
 *
 * Examples
 *     vol1.img op=flush error=EIO count=1           the next fdatasync fails, and only that one
 *     b/pool/vol1.img op=write delay_ms=300         site b's copy is stable 300 ms late
 *     vol1.img op=write error=ENOSPC after=100      full after 100 more writes
 *
 * A call is a system call, not a request: a write that ends short is followed by another for the rest, an unaligned
 * write reads first, and all requests that wait for a flush share one.  To change the rules while the daemon
 * runs, write a new file and rename it over the old one.
 */
#ifndef SR_STORE_FAULT_H
#define SR_STORE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

enum sr_fault_op {
    SR_FAULT_READ = 1 << 0,
    SR_FAULT_WRITE = 1 << 1,
    SR_FAULT_ZERO = 1 << 2,
    SR_FAULT_FLUSH = 1 << 3,
    SR_FAULT_OPEN = 1 << 4
};

struct sr_fault_hit {
    int64_t result; /* <= 0: do not call, answer this.  1: call */
    bool cut_short; /* transfer half of it */
    uint32_t delay_ms;
};

/* Looks SYNCREP_FAULT_FILE up; at the start of an engine. */
void sr_fault_init(void);

/* True if a rule applies to this call, which then counts.  Any thread; cheap when faults are off. */
bool sr_fault_check(const char *path, enum sr_fault_op op, uint64_t offset, uint64_t length,
                    struct sr_fault_hit *hit);

#endif
