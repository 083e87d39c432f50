/* pool_impl.h - shared by pool.c, image.c, import.c and job.c. */
#ifndef SR_STORE_POOL_IMPL_H
#define SR_STORE_POOL_IMPL_H

#include "store/pool.h"

#define SR_POOL_IDENTITY_FILE  ".syncrep-pool"
#define SR_POOL_IDENTITY_NEW   ".syncrep-pool.new"
#define SR_POOL_NEW_PREFIX     ".new-"
#define SR_POOL_DELETED_PREFIX ".deleted-"
#define SR_POOL_ENTRY_BYTES    128

struct sr_pool {
    int fd; /* the directory: keeps its file system mounted, and later calls on it */
    char *directory;
    char *name;
    struct sr_uuid uuid;
};

/* Writes the sentence, returns error. */
__attribute__((format(printf, 4, 5))) enum sr_error sr_pool_fail(char *text, size_t text_bytes, enum sr_error error,
                                                                 const char *format, ...);
/* Renames within the directory, never over anything: 0 or an errno. */
int sr_pool_rename_new(int directory_fd, const char *from, const char *to);
/* PREFIX-UUID into entry. */
void sr_pool_entry(char entry[SR_POOL_ENTRY_BYTES], const char *prefix, const struct sr_uuid *uuid);

#endif
