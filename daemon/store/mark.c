/* mark.c - the volume's UUID in an extended attribute of its image. */
#include "store/mark.h"

#include <errno.h>
#include <string.h>
#include <sys/xattr.h>

bool sr_mark_read(int fd, struct sr_uuid *volume)
{
    char text[SR_UUID_TEXT_BYTES + 1];
    ssize_t n = fgetxattr(fd, SR_MARK_ATTRIBUTE, text, sizeof(text) - 1);

    if (n < 0 && errno != ERANGE)
        return false;
    if (n >= 0)
        text[n] = 0;
    /* Somebody's mark that we cannot read is still somebody's: it equals no volume. */
    if (n < 0 || !sr_uuid_parse(text, volume))
        memset(volume, 0xff, sizeof(*volume));
    return true;
}

bool sr_mark_missing(int fd)
{
    return fgetxattr(fd, SR_MARK_ATTRIBUTE, NULL, 0) < 0 && errno == ENODATA;
}

enum sr_error sr_mark_write(int fd, const struct sr_uuid *volume)
{
    char text[SR_UUID_TEXT_BYTES];

    sr_uuid_format(volume, text);
    if (fsetxattr(fd, SR_MARK_ATTRIBUTE, text, strlen(text), 0) == 0)
        return SR_OK;
    if (errno == EOPNOTSUPP || errno == EPERM || errno == ENOSYS)
        return SR_OK;
    return sr_error_from_errno(errno);
}

void sr_mark_remove(int fd)
{
    (void)!fremovexattr(fd, SR_MARK_ATTRIBUTE);
}
