/* nbd_proto.h - the NBD protocol, server side: bytes <-> structs, nothing else.
 *
 * Pure functions: no socket, no allocation, no state.  All integers on the wire are big-endian.  Source: the
 * protocol description of the NBD project (doc/proto.md), cited below by section.
 *
 *   greeting -> client flags -> { option header, option data -> option replies } -> requests -> replies
 *
 * Invariants
 *   1. A get_ function reads only the bytes that it was given and trusts none of them.
 *   2. A put_ function writes exactly the number of bytes that it returns or that its name's constant says.
 *   3. The codec holds every limit of the protocol that a client can run into; the server adds bounds of
 *      time and memory.
 */
#ifndef SR_CODEC_NBD_PROTO_H
#define SR_CODEC_NBD_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/units.h"

/* ---- numbers of the protocol ---------------------------------------------------------------------------- */

#define SR_NBD_MAGIC                  UINT64_C(0x4e42444d41474943) /* "NBDMAGIC" */
#define SR_NBD_OPTION_MAGIC           UINT64_C(0x49484156454f5054) /* "IHAVEOPT" */
#define SR_NBD_OPTION_REPLY_MAGIC     UINT64_C(0x0003e889045565a9)
#define SR_NBD_REQUEST_MAGIC          UINT32_C(0x25609513)
#define SR_NBD_SIMPLE_REPLY_MAGIC     UINT32_C(0x67446698)
#define SR_NBD_STRUCTURED_REPLY_MAGIC UINT32_C(0x668e33ef)

enum { /* handshake flags of the server, and the client's answer */
    SR_NBD_FLAG_FIXED_NEWSTYLE = 1 << 0,
    SR_NBD_FLAG_NO_ZEROES = 1 << 1
};

enum { /* transmission flags */
    SR_NBD_FLAG_HAS_FLAGS = 1 << 0,
    SR_NBD_FLAG_READ_ONLY = 1 << 1,
    SR_NBD_FLAG_SEND_FLUSH = 1 << 2,
    SR_NBD_FLAG_SEND_FUA = 1 << 3,
    SR_NBD_FLAG_ROTATIONAL = 1 << 4,
    SR_NBD_FLAG_SEND_TRIM = 1 << 5,
    SR_NBD_FLAG_SEND_WRITE_ZEROES = 1 << 6,
    SR_NBD_FLAG_SEND_DF = 1 << 7,
    SR_NBD_FLAG_CAN_MULTI_CONN = 1 << 8,
    SR_NBD_FLAG_SEND_RESIZE = 1 << 9, /* not offered */
    SR_NBD_FLAG_SEND_CACHE = 1 << 10,
    SR_NBD_FLAG_SEND_FAST_ZERO = 1 << 11
};

enum {
    SR_NBD_OPT_EXPORT_NAME = 1,
    SR_NBD_OPT_ABORT = 2,
    SR_NBD_OPT_LIST = 3,
    SR_NBD_OPT_STARTTLS = 5,
    SR_NBD_OPT_INFO = 6,
    SR_NBD_OPT_GO = 7,
    SR_NBD_OPT_STRUCTURED_REPLY = 8,
    SR_NBD_OPT_LIST_META_CONTEXT = 9,
    SR_NBD_OPT_SET_META_CONTEXT = 10
};

#define SR_NBD_REP_ACK             UINT32_C(1)
#define SR_NBD_REP_SERVER          UINT32_C(2)
#define SR_NBD_REP_INFO            UINT32_C(3)
#define SR_NBD_REP_META_CONTEXT    UINT32_C(4)
#define SR_NBD_REP_ERR_UNSUP       UINT32_C(0x80000001)
#define SR_NBD_REP_ERR_POLICY      UINT32_C(0x80000002)
#define SR_NBD_REP_ERR_INVALID     UINT32_C(0x80000003)
#define SR_NBD_REP_ERR_TLS_REQD    UINT32_C(0x80000005)
#define SR_NBD_REP_ERR_UNKNOWN     UINT32_C(0x80000006)
#define SR_NBD_REP_ERR_SHUTDOWN    UINT32_C(0x80000007)
#define SR_NBD_REP_ERR_TOO_BIG     UINT32_C(0x80000009)

enum { SR_NBD_INFO_EXPORT = 0, SR_NBD_INFO_NAME = 1, SR_NBD_INFO_DESCRIPTION = 2, SR_NBD_INFO_BLOCK_SIZE = 3 };

enum {
    SR_NBD_CMD_READ = 0,
    SR_NBD_CMD_WRITE = 1,
    SR_NBD_CMD_DISC = 2,
    SR_NBD_CMD_FLUSH = 3,
    SR_NBD_CMD_TRIM = 4,
    SR_NBD_CMD_CACHE = 5,
    SR_NBD_CMD_WRITE_ZEROES = 6,
    SR_NBD_CMD_BLOCK_STATUS = 7
};

enum { /* command flags */
    SR_NBD_CMD_FLAG_FUA = 1 << 0,
    SR_NBD_CMD_FLAG_NO_HOLE = 1 << 1,
    SR_NBD_CMD_FLAG_DF = 1 << 2,
    SR_NBD_CMD_FLAG_REQ_ONE = 1 << 3,
    SR_NBD_CMD_FLAG_FAST_ZERO = 1 << 4
};

enum {
    SR_NBD_REPLY_TYPE_NONE = 0,
    SR_NBD_REPLY_TYPE_OFFSET_DATA = 1,
    SR_NBD_REPLY_TYPE_OFFSET_HOLE = 2,
    SR_NBD_REPLY_TYPE_BLOCK_STATUS = 5,
    SR_NBD_REPLY_TYPE_ERROR = 0x8001
};

enum { SR_NBD_REPLY_FLAG_DONE = 1 << 0 };

enum { SR_NBD_STATE_HOLE = 1 << 0, SR_NBD_STATE_ZERO = 1 << 1 };

enum sr_nbd_errno { /* "Error values": the protocol's own numbers, whatever errno.h says */
    SR_NBD_OK = 0,
    SR_NBD_EPERM = 1,
    SR_NBD_EIO = 5,
    SR_NBD_ENOMEM = 12,
    SR_NBD_EINVAL = 22,
    SR_NBD_ENOSPC = 28,
    SR_NBD_EOVERFLOW = 75,
    SR_NBD_ENOTSUP = 95,
    SR_NBD_ESHUTDOWN = 108
};

#define SR_NBD_STRING_MAX_BYTES      4096u          /* "Conventions": no string is longer */
#define SR_NBD_OPTION_MAX_BYTES      (16u << 10)    /* option data that is looked at; more: TOO_BIG */
#define SR_NBD_OPTION_SKIP_MAX_BYTES (1u << 20)     /* option data that is skipped to stay in step */
#define SR_NBD_IO_MAX_BYTES          SR_IO_MAX_BYTES /* maximum block size that the server advertises */
#define SR_NBD_PREFERRED_BLOCK_BYTES 4096u
#define SR_NBD_DRAIN_MAX_BYTES       (4 * SR_IO_MAX_BYTES) /* payload of a refused write, skipped to stay in step */

#define SR_NBD_GREETING_BYTES          18u
#define SR_NBD_CLIENT_FLAGS_BYTES      4u
#define SR_NBD_OPTION_HEADER_BYTES     16u
#define SR_NBD_OPTION_REPLY_BYTES      20u
#define SR_NBD_EXPORT_NAME_REPLY_BYTES 134u
#define SR_NBD_REQUEST_BYTES           28u
#define SR_NBD_SIMPLE_REPLY_BYTES      16u
#define SR_NBD_CHUNK_BYTES             20u
#define SR_NBD_DATA_CHUNK_BYTES        28u /* before the data */
#define SR_NBD_HOLE_CHUNK_BYTES        32u
#define SR_NBD_ERROR_CHUNK_BYTES       26u /* before the message */
#define SR_NBD_STATUS_CHUNK_BYTES      24u /* before the descriptors */
#define SR_NBD_STATUS_EXTENT_BYTES     8u
#define SR_NBD_META_BASE_ALLOCATION_ID 1u

/* ---- handshake ------------------------------------------------------------------------------------------ */

void sr_nbd_put_greeting(uint8_t out[SR_NBD_GREETING_BYTES]);

struct sr_nbd_client_flags {
    bool fixed_newstyle;
    bool no_zeroes;
};

/* SR_E_PROTOCOL: a flag that was never offered; the connection must be dropped. */
enum sr_error sr_nbd_get_client_flags(const uint8_t in[SR_NBD_CLIENT_FLAGS_BYTES],
                                      struct sr_nbd_client_flags *flags);

struct sr_nbd_option {
    uint32_t option;
    uint32_t length_bytes; /* of the data that follows; anything up to UINT32_MAX */
};

/* SR_E_PROTOCOL: not an option; nothing after it can be understood. */
enum sr_error sr_nbd_get_option(const uint8_t in[SR_NBD_OPTION_HEADER_BYTES], struct sr_nbd_option *option);

/* Valid UTF-8 without NUL, at most SR_NBD_STRING_MAX_BYTES. */
bool sr_nbd_string_valid(const uint8_t *bytes, size_t length_bytes);

/* Data of NBD_OPT_GO and NBD_OPT_INFO.  name points into the data, and is a valid string on success. */
struct sr_nbd_go {
    const char *name; /* not terminated */
    uint32_t name_bytes;
    bool wants_name, wants_description, wants_block_size; /* unknown wishes are ignored, as they must be */
};

/* SR_E_INVALID: lengths that do not add up, or a name that is not a string.  SR_E_TOO_LARGE: a name over the
 * limit. */
enum sr_error sr_nbd_get_go(const uint8_t *data, size_t data_bytes, struct sr_nbd_go *go);

/* Data of NBD_OPT_LIST_META_CONTEXT and NBD_OPT_SET_META_CONTEXT. */
struct sr_nbd_meta {
    const char *name;
    uint32_t name_bytes;
    bool base_allocation; /* the queries select base:allocation (list: or ask for all there is) */
};

/* list tells the two options apart: only a list knows "everything" and "base:".  Errors as sr_nbd_get_go. */
enum sr_error sr_nbd_get_meta(const uint8_t *data, size_t data_bytes, bool list, struct sr_nbd_meta *meta);

/* Header of one reply to an option, followed by data_bytes of data. */
void sr_nbd_put_option_reply(uint8_t out[SR_NBD_OPTION_REPLY_BYTES], uint32_t option, uint32_t reply,
                             uint32_t data_bytes);

/* Whole replies, header included.  Each returns its size; room must hold the largest: the header, 8 bytes and
 * SR_NBD_STRING_MAX_BYTES.  Text longer than a string may be is cut off. */
#define SR_NBD_OPTION_REPLY_MAX_BYTES (SR_NBD_OPTION_REPLY_BYTES + 8u + SR_NBD_STRING_MAX_BYTES)
size_t sr_nbd_put_rep_text(uint8_t *out, uint32_t option, uint32_t reply, const char *text); /* "" or NULL: none */
size_t sr_nbd_put_rep_server(uint8_t *out, const char *name);
size_t sr_nbd_put_rep_info_export(uint8_t *out, uint32_t option, uint64_t size_bytes, uint16_t flags);
size_t sr_nbd_put_rep_info_block_size(uint8_t *out, uint32_t option);
size_t sr_nbd_put_rep_info_text(uint8_t *out, uint32_t option, uint16_t info, const char *text);
size_t sr_nbd_put_rep_meta_context(uint8_t *out, uint32_t option, uint32_t id); /* base:allocation */

/* The answer to NBD_OPT_EXPORT_NAME; returns its size: without the zeroes 10 bytes. */
size_t sr_nbd_put_export_name_reply(uint8_t out[SR_NBD_EXPORT_NAME_REPLY_BYTES], uint64_t size_bytes,
                                    uint16_t flags, bool no_zeroes);

/* ---- transmission --------------------------------------------------------------------------------------- */

struct sr_nbd_request_header {
    uint16_t flags;
    uint16_t command;
    uint64_t cookie; /* the client's own, given back unread */
    uint64_t offset_bytes;
    uint32_t length_bytes;
};

/* SR_E_PROTOCOL: no request begins here; the connection must be dropped. */
enum sr_error sr_nbd_get_request(const uint8_t in[SR_NBD_REQUEST_BYTES], struct sr_nbd_request_header *request);

/* What was negotiated, as far as it decides whether a request is allowed. */
struct sr_nbd_terms {
    uint64_t size_bytes;
    bool read_only;
    bool structured;      /* structured replies */
    bool base_allocation; /* the metadata context was selected */
    bool fast_zero;       /* NBD_FLAG_SEND_FAST_ZERO was set */
};

/* The transmission flags that go with the terms.  multi_conn: a flush covers all connections. */
uint16_t sr_nbd_transmission_flags(const struct sr_nbd_terms *terms, bool multi_conn);

/* The error that the request must be answered with, or SR_NBD_OK: then it lies within the export, is not
 * empty (but for FLUSH and DISC), not longer than SR_NBD_IO_MAX_BYTES where data travels, and carries
 * only flags that belong to it.  The protocol leaves empty requests undefined; they get EINVAL here. */
enum sr_nbd_errno sr_nbd_check_request(const struct sr_nbd_request_header *request, const struct sr_nbd_terms *terms);

/* Bytes of payload that follow the request header. */
uint32_t sr_nbd_request_payload_bytes(const struct sr_nbd_request_header *request);

/* What a client is told about one of our errors. */
enum sr_nbd_errno sr_nbd_errno_from(enum sr_error error);

void sr_nbd_put_simple_reply(uint8_t out[SR_NBD_SIMPLE_REPLY_BYTES], enum sr_nbd_errno error, uint64_t cookie);

/* The last (or only) chunk of a reply without content. */
void sr_nbd_put_none_chunk(uint8_t out[SR_NBD_CHUNK_BYTES], uint64_t cookie);

/* data_bytes of data follow.  done: no other chunk comes after it. */
void sr_nbd_put_data_chunk(uint8_t out[SR_NBD_DATA_CHUNK_BYTES], uint64_t cookie, bool done, uint64_t offset_bytes,
                           uint32_t data_bytes);

void sr_nbd_put_hole_chunk(uint8_t out[SR_NBD_HOLE_CHUNK_BYTES], uint64_t cookie, bool done, uint64_t offset_bytes,
                           uint32_t hole_bytes);

/* text_bytes (<= SR_NBD_STRING_MAX_BYTES) of text for people follow. */
void sr_nbd_put_error_chunk(uint8_t out[SR_NBD_ERROR_CHUNK_BYTES], uint64_t cookie, enum sr_nbd_errno error,
                            uint16_t text_bytes);

/* n_extents (> 0) descriptors follow, each put by sr_nbd_put_status_extent. */
void sr_nbd_put_status_chunk(uint8_t out[SR_NBD_STATUS_CHUNK_BYTES], uint64_t cookie, uint32_t n_extents);
void sr_nbd_put_status_extent(uint8_t out[SR_NBD_STATUS_EXTENT_BYTES], uint32_t length_bytes, bool hole);

#endif
