/* check.h - inside meta/: is an LMDB file whole?  Answered by reading the file, before LMDB maps it.
 *
 * LMDB trusts its file: a truncated one kills the process with SIGBUS, a damaged page sends it anywhere.  This
 * walk trusts nothing: it reads with pread, checks every number before using it, and calls `visit` for each
 * record, in key order.
 */
#ifndef SR_META_CHECK_H
#define SR_META_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "meta/format.h"

/* A non-OK result stops the walk and is returned; the visitor has then written error_text itself. */
typedef enum sr_error (*sr_meta_visit_fn)(void *arg, enum sr_meta_db db, const void *key, size_t key_bytes,
                                          const void *value, size_t value_bytes);

struct sr_meta_check {
    const char *path; /* of the file, for error_text */
    uint64_t txnid;   /* check this snapshot; 0: the newest */
    sr_meta_visit_fn visit;
    void *arg;
    char *error_text; /* one sentence that names path */
    size_t error_text_bytes;
    /* results */
    uint64_t used_pages, free_pages;
    uint64_t map_bytes; /* the file must be at least that long: see O2 in open.c */
};

/* fd: opened for reading; stays open.  Blocks.
 * SR_E_CORRUPT: truncated or damaged; SR_E_VERSION: another LMDB format, or a database that this version does
 * not know; SR_E_NOT_FOUND: the snapshot is not there (any more); SR_E_IO, SR_E_NO_MEMORY. */
enum sr_error sr_meta_check_file(int fd, struct sr_meta_check *check);

#endif
