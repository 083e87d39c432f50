/* site_msg.h - what two sites say to each other outside any collection, as plain structs.
 *
 * codec/peer_frame turns them into frames and back.
 *
 *   HELLO, HELLO_ACK, REFUSED, PING, PONG   the link's own; its owner never sees them
 *   CATALOG             the volumes here, in parts of at most SR_CATALOG_PART_MAX; last closes the list
 *   VOLUME_REQUEST      creating and deleting across the sites; VOLUME_REPLY has the same request number
 *   COLLECTION_ABSENT   you named a collection that I do not have
 */
#ifndef SR_CODEC_SITE_MSG_H
#define SR_CODEC_SITE_MSG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/names.h"
#include "base/uuid.h"

/* Wire numbers: never reused, and apart from those of core/peer_msg.h (16 and up).
 * Types of 0x8000 and above that a reader does not know are skipped; any other unknown one is a fault. */
#define SR_SITE_MSGS(X)                                                                                              \
    X(HELLO, 1)                                                                                                      \
    X(HELLO_ACK, 2) X(REFUSED, 3) X(PING, 4) X(PONG, 5) X(CATALOG, 6) X(VOLUME_REQUEST, 7) X(VOLUME_REPLY, 8)        \
        X(COLLECTION_ABSENT, 9)

enum sr_site_msg_type {
#define SR_SITE_MSG_ENUM(name, number) SR_SITE_##name = number,
    SR_SITE_MSGS(SR_SITE_MSG_ENUM)
#undef SR_SITE_MSG_ENUM
};

#define SR_SITE_TEXT_BYTES  256 /* with the final NUL; longer texts are cut when sent */
#define SR_SOFTWARE_BYTES   65
#define SR_CATALOG_PART_MAX 256

struct sr_site_hello {
    uint16_t version_min, version_max; /* 1 <= min <= max */
    uint64_t features;                 /* unknown bits are ignored */
    struct sr_uuid site, group;
    char site_name[SR_NAME_BYTES];
    uint64_t boot, connection;
    char software[SR_SOFTWARE_BYTES];
};

/* Bits of `features`. */
#define SR_FEATURE_WRITE_BACK UINT64_C(1) /* write-back volumes: cached writes, FLUSH, `boot` in greetings */

struct sr_catalog_volume {
    struct sr_uuid uuid, collection;
    struct sr_uuid pending_collection; /* none: nothing is pending */
    char name[SR_NAME_BYTES];
    uint64_t size_bytes;
    uint32_t state; /* enum sr_volume_state of meta/meta.h, 1 to 3 */
    bool creator, imported, write_back;
};

struct sr_site_catalog {
    uint32_t part; /* 0, 1, 2 ... */
    bool last;
    uint32_t n_volumes;
    struct sr_catalog_volume *volumes; /* malloc'd, owned by the message */
};

enum sr_volume_verb {
    SR_VOLUME_PREPARE_CREATE = 1,
    SR_VOLUME_COMMIT_CREATE = 2,
    SR_VOLUME_ABORT_CREATE = 3,
    SR_VOLUME_DELETE = 4,
    SR_VOLUME_CHECK_DELETE = 5, /* would DELETE be refused now? changes nothing */
    /* about a collection: `uuid` is its */
    SR_COLLECTION_SWITCHOVER = 6, /* you are active: hand it over to me */
    SR_COLLECTION_DISCARD = 7,    /* we are in conflict: give up what only you hold */
    /* about the volume `uuid`: it goes to `collection`, called `name`, which is new if `active` is set */
    SR_MEMBER_PREPARE = 8, /* keep that as pending */
    SR_MEMBER_COMMIT = 9,  /* it is there now: follow */
    SR_MEMBER_ABORT = 10,  /* it stays where it is */
    SR_MEMBER_ADOPTED = 11, /* what I had as pending is done here, too */
    SR_MEMBER_MOVE = 12,    /* you are active: move it there */
    SR_MEMBER_YIELD = 13    /* I was made active without having heard of it: move it back, there */
};
#define SR_VOLUME_VERB_LAST SR_MEMBER_YIELD

/* VOLUME_REQUEST and VOLUME_REPLY.  Which fields a verb uses is the owner's business, but uuid, verb are always
 * there; PREPARE_CREATE also has name, collection, pool and a size of whole blocks within the limits. */
struct sr_volume_rpc {
    uint64_t request; /* chosen by the asking site */
    enum sr_volume_verb verb;
    struct sr_uuid uuid, collection;
    char name[SR_NAME_BYTES]; /* may be empty where a verb does not need it */
    char pool[SR_NAME_BYTES];
    uint64_t size_bytes;
    bool imported, preallocate, active, write_back;
    struct sr_uuid generation;
    enum sr_error error;           /* reply */
    char text[SR_SITE_TEXT_BYTES]; /* reply: for people; may be empty */
};

struct sr_site_msg {
    enum sr_site_msg_type type;
    union {
        struct sr_site_hello hello;
        struct {
            uint16_t version;
            uint64_t features;
        } ack;
        struct {
            enum sr_error code;
            char text[SR_SITE_TEXT_BYTES];
        } refused;
        uint64_t stamp; /* PING, PONG */
        struct sr_site_catalog catalog;
        struct sr_volume_rpc rpc;
        struct sr_uuid collection; /* COLLECTION_ABSENT */
    };
};

/* All zero but the type; NULL without memory. */
struct sr_site_msg *sr_site_msg_new(enum sr_site_msg_type type);
void sr_site_msg_free(struct sr_site_msg *msg); /* with its catalogue; NULL is fine */

const char *sr_site_msg_name(enum sr_site_msg_type type); /* "unknown" for a number that is not listed */

#endif
