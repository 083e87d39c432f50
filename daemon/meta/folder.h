/* folder.h - inside meta/: the state folder around the LMDB environment: its lock, and the marker of its site. */
#ifndef SR_META_FOLDER_H
#define SR_META_FOLDER_H

#include "meta/meta.h"

/* Makes the folder (0700) if only it is missing, and takes the lock on it: *fd holds it until it is closed, or
 * until the process is gone with all its children that inherited it (none do: close-on-exec).
 * SR_E_LOCKED, SR_E_NOT_FOUND, SR_E_PERMISSION, SR_E_IO.  Blocks. */
enum sr_error sr_meta_folder_lock(const char *state_dir, int *fd, char *error_text, size_t error_text_bytes);

/* The UUID in state_dir/site.  SR_E_NOT_FOUND: there is no such file; error_text is then left alone. */
enum sr_error sr_meta_folder_read_site(const char *state_dir, struct sr_uuid *site, char *error_text,
                                       size_t error_text_bytes);

/* Writes it; durable when it returns.  Blocks. */
enum sr_error sr_meta_folder_write_site(const char *state_dir, const struct sr_uuid *site, char *error_text,
                                        size_t error_text_bytes);

/* The folder of the environment, also before it has its name: see open.c. */
#define SR_META_ENV_NAME     "meta"
#define SR_META_ENV_NEW_NAME "meta.new"

/* Removes data.mdb, lock.mdb and the folder meta.new itself, if they are there. */
enum sr_error sr_meta_folder_remove_new(const char *state_dir, char *error_text, size_t error_text_bytes);

#endif
