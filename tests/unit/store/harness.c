/* harness.c - a loop, an engine and a replica in a temporary place. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[128], base[96], fault_file[160];
static bool mounted;
static unsigned completions;

static bool cannot(const char *place, const char *why)
{
    printf("SKIPPED: the tests on %s: %s\n", place, why);
    return false;
}

static bool mount_own(const char *place)
{
    char command[1024], image[128];

    if (geteuid() != 0)
        return cannot(place, "only root can mount");
    /* Mounts of a namespace of our own are gone when we are, however we end. */
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return cannot(place, "no mount namespace");
    if (strcmp(place, "tmpfs") == 0) {
        if (mount("tmpfs", folder, "tmpfs", 0, "size=64m") < 0)
            return cannot(place, strerror(errno));
        mounted = true;
        return true;
    }
    snprintf(image, sizeof(image), "%s/image", base);
    snprintf(command, sizeof(command), "truncate -s %s %s && mkfs.%s -q %s %s && mount -o loop -t %s %s %s",
             strcmp(place, "xfs") == 0 ? "320M" : "64M", image, place, strcmp(place, "ext4") == 0 ? "-m 0" : "",
             image, place, image, folder);
    if (system(command) != 0)
        return cannot(place, "mkfs or a loop mount does not work here");
    mounted = true;
    return true;
}

bool place_make(const char *place)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(60);  /* a hang is a failure */
    snprintf(base, sizeof(base), "/var/tmp/syncrep-store-XXXXXX");
    if (!mkdtemp(base))
        return cannot(place, strerror(errno));
    snprintf(folder, sizeof(folder), "%s/d", base);
    if (mkdir(folder, 0700) < 0 || (strcmp(place, "folder") != 0 && !mount_own(place))) {
        place_remove();
        return false;
    }
    return true;
}

bool place_is_small(void)
{
    return mounted;
}

const char *place_folder(void)
{
    return folder;
}

void place_remove(void)
{
    char command[256];

    if (mounted)
        umount(folder);
    snprintf(command, sizeof(command), "rm -rf '%s'", base);
    if (system(command) != 0)
        printf("cannot remove %s\n", base);
}

static void open_store(struct rig *rig)
{
    char text[256] = "";
    enum sr_error error = sr_store_open(rig->engine, rig->path, VOLUME_BYTES, &rig->store, text, sizeof(text));

    if (error)
        printf("%s\n", text);
    assert_int_equal(error, SR_OK);
}

void rig_open(struct rig *rig, enum sr_store_engine_kind kind, const char *name)
{
    char why[200] = "";
    int fd;

    assert_int_equal(uv_loop_init(&rig->loop), 0);
    if (sr_store_engine_new(&rig->loop, kind, &rig->engine, why, sizeof(why)) != SR_OK)
        fail_msg("no engine: %s", why);
    snprintf(rig->path, sizeof(rig->path), "%s/%s.img", folder, name);
    fd = open(rig->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, VOLUME_BYTES), 0);
    close(fd);
    open_store(rig);
}

void rig_reopen(struct rig *rig)
{
    sr_store_close(rig->store);
    open_store(rig);
}

static void closed(void *arg)
{
    *(bool *)arg = true;
}

void rig_close(struct rig *rig)
{
    bool is_closed = false;

    if (rig->store)
        sr_store_close(rig->store);
    sr_store_engine_close(rig->engine, closed, &is_closed);
    uv_run(&rig->loop, UV_RUN_DEFAULT);
    assert_true(is_closed);
    assert_int_equal(uv_loop_close(&rig->loop), 0);
    unlink(rig->path);
}

static void done(void *arg, uint64_t io, enum sr_error error, bool all_zero)
{
    struct op *op = arg;

    assert_int_equal(io, (uintptr_t)op & 0xffffff);
    assert_false(op->done);
    op->done = true;
    op->error = error;
    op->all_zero = all_zero;
    op->order = ++completions;
}

void op_start(struct rig *rig, struct op *op, const struct sr_disk_io *io)
{
    struct sr_disk_io mine = *io;

    memset(op, 0, sizeof(*op));
    mine.io = (uintptr_t)op & 0xffffff;
    sr_store_submit(rig->store, &mine, done, op);
    assert_false(op->done); /* never from inside submit */
}

void op_wait(struct rig *rig, struct op *op)
{
    while (!op->done)
        if (!uv_run(&rig->loop, UV_RUN_ONCE))
            assert_true(op->done); /* the loop had nothing left that could complete it */
}

static enum sr_error do_io(struct rig *rig, const struct sr_disk_io *io)
{
    struct op op;

    op_start(rig, &op, io);
    op_wait(rig, &op);
    return op.error;
}

enum sr_error do_write(struct rig *rig, uint64_t offset, uint64_t length, struct sr_buf *buf, uint32_t buf_offset)
{
    return do_io(rig, &(struct sr_disk_io){.op = SR_DISK_WRITE,
                                           .offset_bytes = offset,
                                           .length_bytes = length,
                                           .buf = buf,
                                           .buf_offset = buf_offset});
}

enum sr_error do_read(struct rig *rig, uint64_t offset, uint64_t length, struct sr_buf *buf, uint32_t buf_offset)
{
    return do_io(rig, &(struct sr_disk_io){.op = SR_DISK_READ,
                                           .offset_bytes = offset,
                                           .length_bytes = length,
                                           .buf = buf,
                                           .buf_offset = buf_offset});
}

enum sr_error do_zero(struct rig *rig, uint64_t offset, uint64_t length, bool may_trim)
{
    return do_io(rig, &(struct sr_disk_io){
                          .op = SR_DISK_ZERO, .offset_bytes = offset, .length_bytes = length, .may_trim = may_trim});
}

enum sr_error do_flush(struct rig *rig)
{
    return do_io(rig, &(struct sr_disk_io){.op = SR_DISK_FLUSH});
}

void fill_random(uint8_t *data, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 1664525 + 1013904223;
        data[i] = (uint8_t)(seed >> 24);
    }
}

void faults_enable(void)
{
    snprintf(fault_file, sizeof(fault_file), "%s/faults", base);
    setenv("SYNCREP_FAULT_FILE", fault_file, 1);
}

void faults_set(const char *rules)
{
    char new[176];
    FILE *file;

    snprintf(new, sizeof(new), "%s.new", fault_file);
    file = fopen(new, "w");
    assert_non_null(file);
    fputs(rules, file);
    fclose(file);
    assert_int_equal(rename(new, fault_file), 0);
}
