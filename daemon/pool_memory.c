/* pool_memory.c - which pools this site has had: STATE/pools, one line "NAME UUID" each.
 *
 * A volume's record names its pool's UUID; this file does the same for pools without volumes.  So a mount point
 * without its file system is never taken for a new, empty pool once the pool was seen.
 *
 * The file is replaced as a whole (temporary name, fsync, rename, fsync of the folder), so a crash leaves the old or
 * the new one.  A pool whose line was lost with a crash is read back from its own identity file at the next start.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "site.h"

#define PATH_BYTES 1100
#define LINE_BYTES (SR_NAME_BYTES + SR_UUID_TEXT_BYTES + 2)

static enum sr_error fail(const char *path, const char *what, char *text, size_t text_bytes)
{
    int errnum = errno;

    snprintf(text, text_bytes, "%.200s: %s: %s", path, what, strerror(errnum));
    return sr_error_from_errno(errnum);
}

static bool parse(char *line, char **name, struct sr_uuid *uuid)
{
    char *end = strchr(line, '\n'), *space = strchr(line, ' ');

    if (!end || !space)
        return false;
    *end = *space = '\0';
    *name = line;
    return sr_name_valid(line, NULL) && sr_uuid_parse(space + 1, uuid);
}

enum sr_error sr_pool_memory_find(const struct sr_site *site, const char *name, struct sr_uuid *uuid, char *text,
                                  size_t text_bytes)
{
    char path[PATH_BYTES], line[LINE_BYTES], *found;
    struct sr_uuid candidate;
    enum sr_error error = SR_OK;

    memset(uuid, 0, sizeof(*uuid));
    snprintf(path, sizeof(path), "%s/pools", site->config->state);
    FILE *file = fopen(path, "re");
    if (!file)
        return errno == ENOENT ? SR_OK : fail(path, "cannot be read", text, text_bytes);
    while (error == SR_OK && fgets(line, sizeof(line), file)) {
        if (!parse(line, &found, &candidate)) {
            snprintf(text, text_bytes, "%.200s: is damaged: expected lines of a pool's name and UUID", path);
            error = SR_E_CORRUPT;
        } else if (strcmp(found, name) == 0) {
            *uuid = candidate;
        }
    }
    if (error == SR_OK && ferror(file))
        error = fail(path, "cannot be read", text, text_bytes);
    fclose(file);
    return error;
}

/* The old lines but that of `name`, and the new one. */
static bool write_lines(FILE *to, const char *old_path, const char *name, const struct sr_uuid *uuid)
{
    char line[LINE_BYTES], copy[LINE_BYTES], text[SR_UUID_TEXT_BYTES], *found;
    struct sr_uuid ignored;
    FILE *old = fopen(old_path, "re");
    bool good = old || errno == ENOENT;

    while (good && old && fgets(line, sizeof(line), old)) {
        strcpy(copy, line);
        if (parse(copy, &found, &ignored) && strcmp(found, name) != 0)
            good = fputs(line, to) >= 0;
    }
    if (old)
        fclose(old);
    good = good && fprintf(to, "%s %s\n", name, sr_uuid_format(uuid, text)) > 0;
    return good && fflush(to) == 0 && fsync(fileno(to)) == 0;
}

enum sr_error sr_pool_memory_add(const struct sr_site *site, const char *name, const struct sr_uuid *uuid, char *text,
                                 size_t text_bytes)
{
    char path[PATH_BYTES], fresh[PATH_BYTES + 8];
    enum sr_error error = SR_OK;

    snprintf(path, sizeof(path), "%s/pools", site->config->state);
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    FILE *file = fopen(fresh, "we");
    if (!file)
        return fail(fresh, "cannot be written", text, text_bytes);
    bool good = write_lines(file, path, name, uuid);
    if (!good)
        error = fail(fresh, "cannot be written", text, text_bytes);
    fclose(file);
    if (good && rename(fresh, path) != 0)
        error = fail(path, "cannot be replaced", text, text_bytes);
    if (error != SR_OK) {
        unlink(fresh);
        return error;
    }
    int folder = open(site->config->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || fsync(folder) != 0)
        error = fail(site->config->state, "cannot be made durable", text, text_bytes);
    if (folder >= 0)
        close(folder);
    return error;
}
