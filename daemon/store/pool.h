/* pool.h - a pool: a directory of image files that belongs to one site, and proves it.
 *
 *     DIR/.syncrep-pool        who the pool is: its UUID, name, group and site, with a CRC
 *     DIR/NAME.img             the copy of volume NAME, marked with the volume's UUID (an extended attribute)
 *     DIR/.new-UUID            an image being made; swept away at the next open
 *     DIR/.deleted-UUID        an image being deleted; likewise
 *
 * A directory without identity, or with another's, is refused: its file system is not mounted, or it is the wrong
 * disk.  It is made a pool only when that is allowed (the site never had this pool) and it is empty.
 *
 * All functions but the *_start ones block (they are for start-up and for threads); text (may be NULL) gets one
 * sentence that names the place and says what to do.  Volume names are checked with sr_name_valid by whoever takes
 * them from outside; here a bad one is refused with SR_E_INVALID.
 */
#ifndef SR_STORE_POOL_H
#define SR_STORE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"
#include "base/uuid.h"

#define SR_POOL_PATH_BYTES 1024

struct sr_pool;

struct sr_pool_identity {
    const char *name;
    struct sr_uuid group, site;
    struct sr_uuid expected; /* the pool that was here before; none: never had one */
    bool create_allowed;     /* an empty directory may become this pool; never if `expected` is set */
};

/* SR_E_NOT_FOUND: no such directory.  SR_E_IDENTITY: no identity, or another's.  SR_E_CORRUPT, SR_E_VERSION: an
 * identity file that is damaged or newer than this program. */
enum sr_error sr_pool_open(const char *directory, const struct sr_pool_identity *identity, struct sr_pool **pool,
                           char *text, size_t text_bytes);
/* An empty directory becomes the pool `expected`, which whoever calls makes known in between.  Prepare: checks that it is
 * there, empty and without identity, and writes the identity under a temporary name, which still counts as empty.  Renew:
 * gives it its name and opens the pool.  Errors as above; SR_E_EXISTS: there is an identity already, which is not
 * touched. */
enum sr_error sr_pool_renew_prepare(const char *directory, const struct sr_pool_identity *identity, char *text,
                                    size_t text_bytes);
enum sr_error sr_pool_renew(const char *directory, const struct sr_pool_identity *identity, struct sr_pool **pool,
                            char *text, size_t text_bytes);
void sr_pool_close(struct sr_pool *pool); /* no job may be running */

const char *sr_pool_name(const struct sr_pool *pool);
const char *sr_pool_directory(const struct sr_pool *pool);
const struct sr_uuid *sr_pool_uuid(const struct sr_pool *pool);

/* Room for an unprivileged writer and in all, in bytes. */
enum sr_error sr_pool_space(const struct sr_pool *pool, uint64_t *free_bytes, uint64_t *total_bytes);

/* DIR/NAME.img.  SR_E_INVALID: a bad name; SR_E_TOO_LARGE: a path that does not fit. */
enum sr_error sr_pool_image_path(const struct sr_pool *pool, const char *volume_name, char path[SR_POOL_PATH_BYTES]);

/* Is a file of that name there, whosever it is?  For refusing a creation before anything of it is recorded, so that undoing
 * it never meets a file that was not its own. */
bool sr_pool_image_present(const struct sr_pool *pool, const char *volume_name);

/* ---- images ------------------------------------------------------------------------------------------- */

struct sr_pool_image {
    const char *volume_name;
    struct sr_uuid volume;
    uint64_t size_bytes; /* a multiple of 4 KiB */
    bool preallocate;    /* write zeroes through all of it, once; else sparse */
};

/* Called now and then while zeroes are written.  False: stop (SR_E_CANCELLED). */
typedef bool (*sr_pool_progress_fn)(void *arg, uint64_t done_bytes, uint64_t total_bytes);

/* Makes DIR/NAME.img: all zeroes, of that size, durable with its directory entry when it returns OK.  It appears
 * under its name only when it is complete, and never in place of anything: SR_E_EXISTS if there is something already
 * (an image left behind is never taken for a new one).  After any error nothing is left.  progress may be NULL. */
enum sr_error sr_pool_image_create(struct sr_pool *pool, const struct sr_pool_image *image,
                                   sr_pool_progress_fn progress, void *arg, char *text, size_t text_bytes);

/* Deletes DIR/NAME.img if it is that volume's; durable when it returns OK.  SR_E_NOT_FOUND: not there (so it is
 * deleted).  SR_E_IDENTITY: it is marked as another volume's, or not marked where that is possible.
 * SR_E_LOCKED: in use. */
enum sr_error sr_pool_image_delete(struct sr_pool *pool, const char *volume_name, const struct sr_uuid *volume,
                                   char *text, size_t text_bytes);

/* The same two on a thread of their own, for the loop.  done is called on the loop exactly once, not before start
 * has returned; the job is gone afterwards.  on_progress (may be NULL) is called on the loop.  The pool must stay
 * open, image is copied. SR_E_INVALID (a bad name), SR_E_NO_MEMORY: not started, done is not called. */
struct sr_pool_job;
typedef void (*sr_pool_done_fn)(void *arg, enum sr_error error, const char *text);
typedef void (*sr_pool_on_progress_fn)(void *arg, uint64_t done_bytes, uint64_t total_bytes);

enum sr_error sr_pool_create_start(struct sr_pool *pool, uv_loop_t *loop, const struct sr_pool_image *image,
                                   sr_pool_on_progress_fn on_progress, sr_pool_done_fn done, void *arg,
                                   struct sr_pool_job **job);
enum sr_error sr_pool_delete_start(struct sr_pool *pool, uv_loop_t *loop, const char *volume_name,
                                   const struct sr_uuid *volume, sr_pool_done_fn done, void *arg,
                                   struct sr_pool_job **job);
/* Asks a creation to stop; done still comes, with SR_E_CANCELLED unless it was too late. */
void sr_pool_job_cancel(struct sr_pool_job *job);

/* ---- import: existing block devices and files with data ------------------------------------------------ */

/* May path become a replica?  A block device that is writable and not mounted or claimed, or a regular file that nobody has open;
 * size a multiple of 4 KiB within the bounds of a volume; not inside a pool; not marked as a volume's copy. */
enum sr_error sr_pool_import_check(const char *path, uint64_t *size_bytes, char *text, size_t text_bytes);
/* What is behind a path: which bytes of which file or device; for a loop device those of its file. */
struct sr_pool_backing {
    bool device;
    uint64_t dev, ino; /* device: its number in dev */
    uint64_t begin_bytes, end_bytes;
};
bool sr_pool_import_backing(const char *path, struct sr_pool_backing *backing); /* false: cannot be told */
bool sr_pool_backings_meet(const struct sr_pool_backing *a, const struct sr_pool_backing *b);
/* Marks it as the copy of volume (a file; devices cannot be marked). */
enum sr_error sr_pool_import_mark(const char *path, const struct sr_uuid *volume, char *text, size_t text_bytes);
/* Takes the mark off when its volume is deleted; the data stays. */
void sr_pool_import_release(const char *path, const struct sr_uuid *volume);

#endif
