/* peer_msg.h - the messages that the two cores of a collection exchange, as plain structs.
 *
 * codec/peer_frame turns them into frames (protobuf header, raw payload) and back.  Every message but HELLO
 * belongs to the session named in it; a message of another session is dropped unread.
 *
 *   HELLO      my greeting; opens `session` (higher than any seen on this link)
 *   BYE        I ended the session; cause says why
 *   MAP        follower to leader: part of my map, last = true closes it
 *   START      leader to follower: adopt this lineage, your map is mine now
 *   STARTED    follower: durable
 *   WRITE      leader: a host's write (data, zero or trim); durable before WRITTEN unless `cached`
 *   WRITTEN    follower: durable (`cached`: applied), or the error
 *   COPY       leader: resync of blocks (data or zero); COPIED as WRITTEN
 *   HASH       leader: digests of a run, 16 bytes a block; HASHED answers with the blocks that differ
 *   FETCH      leader: read these blocks for me; FETCHED carries them
 *   COMPLETE   leader: every block is there; COMPLETED: flushed, consistent and durable
 *   FLUSH      leader: make everything of the volume that was WRITTEN so far durable; FLUSHED: it is
 *   PREPARE    leader: will you take the active role?  READY: yes, or the error
 *   TAKE       leader: I gave the role away, durably; n_forwards FORWARDs follow.  TAKEN: durable, I lead from here
 *   FORWARD    the site that was active: a host's request that had waited there; FORWARDED: its answer
 *   PROBE      how do you stand?  PROBED: my greeting, as it is now.  These two belong to no session
 */
#ifndef SR_CORE_PEER_MSG_H
#define SR_CORE_PEER_MSG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/units.h"
#include "core/lineage.h"

/* Wire numbers: never reused. */
#define SR_PEER_MSGS(X)                                                                                              \
    X(HELLO, 16)                                                                                                     \
    X(BYE, 17) X(MAP, 18) X(START, 19) X(STARTED, 20) X(WRITE, 21) X(WRITTEN, 22) X(COPY, 23) X(COPIED, 24)          \
        X(HASH, 25) X(HASHED, 26) X(FETCH, 27) X(FETCHED, 28) X(COMPLETE, 29) X(COMPLETED, 30) X(FLUSH, 31)          \
            X(FLUSHED, 32) X(PREPARE, 33) X(READY, 34) X(TAKE, 35) X(TAKEN, 36) X(FORWARD, 37) X(FORWARDED, 38)      \
                X(PROBE, 39) X(PROBED, 40)

enum sr_peer_msg_type {
#define SR_PEER_MSG_ENUM(name, number) SR_MSG_##name = number,
    SR_PEER_MSGS(SR_PEER_MSG_ENUM)
#undef SR_PEER_MSG_ENUM
};

/* READ: only in FORWARD */
enum sr_content { SR_CONTENT_DATA = 0, SR_CONTENT_ZERO = 1, SR_CONTENT_TRIM = 2, SR_CONTENT_READ = 3 };

#define SR_DIGEST_BYTES    16
#define SR_RUN_MAX_BLOCKS  256  /* one COPY or HASH: at most 1 MiB */
#define SR_MAP_ENTRIES_MAX 4096 /* regions in one MAP message */

/* FORWARDs that are not answered yet carry, or ask for, at most so many bytes together: the largest request. */
#define SR_FORWARD_WINDOW_BYTES SR_IO_MAX_BYTES

/* Map entries travel as payload, packed little-endian: u32 volume, u32 region, 128 bytes of map. */
#define SR_MAP_ENTRY_BYTES (8 + SR_REGION_MAP_BYTES)
_Static_assert(SR_MAP_ENTRY_BYTES == 136, "wire layout of a map entry");

struct sr_peer_msg {
    enum sr_peer_msg_type type;
    uint64_t session;

    /* WRITE, WRITTEN, COPY, COPIED, HASH, HASHED, FETCH, FETCHED, FLUSH, FLUSHED: the leader's number; PREPARE,
     * READY, FORWARD, FORWARDED, PROBE, PROBED: the sender's of the first of the two */
    uint64_t id;
    uint32_t volume; /* index in the collection's list, which both sites agreed on */
    uint64_t offset_bytes, length_bytes;
    enum sr_content content; /* WRITE, COPY, FORWARD */
    bool may_trim;           /* zeroes may free space */
    bool cached;             /* WRITE: need not be durable before a FLUSH, the volume is write-back */
    bool fua;                /* FORWARD: durable at both sites before its answer */
    enum sr_error error;     /* WRITTEN, COPIED, HASHED, FETCHED, FLUSHED, COMPLETED, READY, FORWARDED */
    uint8_t differs[SR_RUN_MAX_BLOCKS / 8]; /* HASHED: bit i: block i of the run differs */

    uint32_t cause;      /* BYE: enum sr_cause */
    bool last;           /* MAP */
    uint32_t n_entries;  /* MAP: entries in the payload */
    bool everything;     /* MAP: every block of every volume is in the map */
    uint32_t n_forwards; /* TAKE */
    /* MAP, WRITE/COPY/FORWARD with data, HASH, FETCHED, FORWARDED of a read: payload_bytes from payload_offset of
     * payload, else NULL. The message holds one reference. */
    struct sr_buf *payload;
    uint32_t payload_offset, payload_bytes;

    /* Only these four types carry one; last, so that the others need not clear it. */
    union {
        struct sr_greeting greeting; /* HELLO, PROBED */
        struct sr_record lineage;    /* START: gen, made_by, paused, pause_counter; COMPLETE: ancestors */
    };
};

const char *sr_peer_msg_name(enum sr_peer_msg_type type);

#endif
