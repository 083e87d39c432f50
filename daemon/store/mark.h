/* mark.h - the identity of an image file: its volume's UUID in an extended attribute.
 *
 * Best effort: not every file system keeps attributes, and device nodes have none.  A mark that is there and names
 * another volume is always believed; a missing one proves nothing.
 */
#ifndef SR_STORE_MARK_H
#define SR_STORE_MARK_H

#include <stdbool.h>

#include "base/error.h"
#include "base/uuid.h"

#define SR_MARK_ATTRIBUTE "user.syncrep.volume"

/* True and the volume, if the file is marked.  An unreadable mark counts as none; a damaged one as all ones. */
bool sr_mark_read(int fd, struct sr_uuid *volume);
/* True if the file could be marked and is not: then it is none that we made. */
bool sr_mark_missing(int fd);
/* OK also where the file system keeps no attributes. */
enum sr_error sr_mark_write(int fd, const struct sr_uuid *volume);
void sr_mark_remove(int fd);

#endif
