/* fuzz_meta_file.c - a damaged data.mdb to the walk that checks it: refused or walked, never trusted.
 *
 * Input: an LMDB file, whose map size is made to fit so that the trees are reached.
 */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "meta/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static enum sr_error visit(void *arg, enum sr_meta_db db, const void *key, size_t key_bytes, const void *value,
                           size_t value_bytes)
{
    struct sr_meta_entry entry;
    const char *why;

    (void)arg;
    return sr_meta_parse(db, key, key_bytes, value, value_bytes, &entry, &why) == SR_E_NO_MEMORY ? SR_E_NO_MEMORY
                                                                                                 : SR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char text[512] = "";
    struct sr_meta_check check = {.path = "x", .visit = visit, .error_text = text, .error_text_bytes = sizeof(text)};

    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    SR_ASSERT(fd >= 0);
    SR_ASSERT(write(fd, data, bytes) == (ssize_t)bytes);
    if (bytes >= 4096 + 40) {
        uint64_t map_bytes = bytes;
        SR_ASSERT(pwrite(fd, &map_bytes, 8, 32) == 8 && pwrite(fd, &map_bytes, 8, 4096 + 32) == 8);
    }
    enum sr_error error = sr_meta_check_file(fd, &check);
    SR_ASSERT((error == SR_OK) == (text[0] == '\0'));
    close(fd);
    return 0;
}
