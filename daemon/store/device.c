/* device.c - see device.h.  From /sys/dev/block/MAJOR:MINOR; a file that is not there is left out. */
#include "store/device.h"

#include <ctype.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct text {
    char *bytes;
    size_t used;
};

static void add(struct text *text, const char *what, const char *value)
{
    int n = snprintf(text->bytes + text->used, SR_DEVICE_IDENTITY_BYTES - text->used, "%s%s=%s", text->used ? " " : "",
                     what, value);

    text->used += n > 0 ? (size_t)n : 0;
    if (text->used >= SR_DEVICE_IDENTITY_BYTES)
        text->used = SR_DEVICE_IDENTITY_BYTES - 1;
}

/* One line without blanks around and with printable characters only. */
static void tidy(char *line)
{
    char *to = line, *from = line;

    while (isspace((unsigned char)*from))
        from++;
    for (; *from && *from != '\n'; from++)
        *to++ = isprint((unsigned char)*from) ? *from : '?';
    while (to > line && to[-1] == ' ')
        to--;
    *to = '\0';
}

static void add_file(struct text *text, const char *folder, const char *name, const char *what)
{
    char path[160], line[128] = "";
    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = read(fd, line, sizeof(line) - 1);
    close(fd);
    line[n > 0 ? n : 0] = '\0';
    tidy(line);
    if (line[0])
        add(text, what, line);
}

void sr_device_identity(int fd, char identity[SR_DEVICE_IDENTITY_BYTES])
{
    struct text text = {.bytes = identity};
    char folder[64], number[32];
    uint64_t bytes = 0;
    struct stat st;

    identity[0] = '\0';
    if (fstat(fd, &st) < 0 || !S_ISBLK(st.st_mode))
        return;
    snprintf(folder, sizeof(folder), "/sys/dev/block/%u:%u", major(st.st_rdev), minor(st.st_rdev));
    add_file(&text, folder, "wwid", "wwid"); /* nvme */
    add_file(&text, folder, "device/wwid", "wwid");
    add_file(&text, folder, "serial", "serial"); /* virtio */
    add_file(&text, folder, "device/serial", "serial");
    add_file(&text, folder, "dm/uuid", "dm");
    add_file(&text, folder, "loop/backing_file", "loop");
    add_file(&text, folder, "partition", "partition");
    add_file(&text, folder, "start", "start");
    add_file(&text, folder, "../wwid", "disk"); /* of a partition */
    add_file(&text, folder, "../device/wwid", "disk");
    add_file(&text, folder, "../serial", "disk");
    if (ioctl(fd, BLKGETSIZE64, &bytes) == 0) {
        snprintf(number, sizeof(number), "%llu", (unsigned long long)bytes);
        add(&text, "size", number);
    }
}
