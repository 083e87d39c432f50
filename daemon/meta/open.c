/* open.c - makes or opens the metadata of a site.
 *
 * The first start builds everything under another name; `meta` appears by a rename when it is complete and
 * durable:
 *
 *     nothing --> meta.new (site record committed, fsync) --> meta --> meta and site marker --> each start
 *
 * Invariants:
 *   O1  A folder `meta` is always complete: without a site record it is damaged, never new.
 *   O2  The marker `site` exists only after `meta`: a marker without metadata means that it was lost, and the
 *       daemon does not start as if it were new.
 *   O3  Every page and every record is checked before LMDB or anybody else trusts one (check.c, format.c).
 *   O4  boot is raised and durable before sr_meta_open returns.
 *
 * A crash before the rename: the next start throws meta.new away and begins again.  After it, before the marker:
 * the next start writes the marker from the site record.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/names.h"
#include "meta/check.h"
#include "meta/folder.h"
#include "meta/internal.h"
#include "meta/reserve.h"

/* One opening, with all that its steps need to know. */
struct opening {
    const char *state_dir;
    const char *site_name;
    const struct sr_uuid *group;
    uint64_t map_bytes;
    bool have_site;
    struct sr_meta_site site;
    bool have_marker;
    struct sr_uuid marker;
    char env_dir[SR_META_PATH_BYTES];
    char *text;
    size_t text_bytes;
};

static enum sr_error put_site(struct sr_meta_env *env, const struct sr_meta_site *site)
{
    uint8_t bytes[SR_META_VALUE_MAX_BYTES];
    MDB_val key = {.mv_size = strlen(SR_META_SITE_KEY), .mv_data = (void *)SR_META_SITE_KEY};
    MDB_txn *txn;
    int rc;

    MDB_val value = {.mv_size = sr_meta_format_site(site, bytes), .mv_data = bytes};
    for (;;) {
        rc = mdb_txn_begin(env->mdb, NULL, 0, &txn);
        if (rc != 0)
            break;
        rc = mdb_put(txn, env->dbi[SR_META_DB_SITE], &key, &value, 0);
        if (rc == 0)
            rc = mdb_txn_commit(txn);
        else
            mdb_txn_abort(txn);
        if (rc != MDB_MAP_FULL || (rc = sr_meta_env_grow(env)) != 0)
            break;
    }
    return rc == 0 ? SR_OK : sr_meta_env_error(env, rc);
}

/* ---- the first start ------------------------------------------------------------------------------- */

static enum sr_error make_env(struct opening *opening, const char *dir)
{
    struct sr_meta_env env;
    struct sr_meta_site site = {.group = *opening->group};

    sr_uuid_generate(&site.uuid);
    snprintf(site.name, sizeof(site.name), "%s", opening->site_name);
    enum sr_error error = sr_meta_env_create(&env, dir, opening->map_bytes, opening->text, opening->text_bytes);
    if (error != SR_OK)
        return error;
    error = put_site(&env, &site);
    if (error != SR_OK)
        snprintf(opening->text, opening->text_bytes, "%s: cannot write the first metadata: %s", dir,
                 sr_error_text(error));
    sr_meta_env_close(&env);
    return error;
}

static enum sr_error first_start(struct opening *opening)
{
    char dir[SR_META_PATH_BYTES];
    int rc = 0;

    snprintf(dir, sizeof(dir), "%.4000s/" SR_META_ENV_NEW_NAME, opening->state_dir);
    enum sr_error error = sr_meta_folder_remove_new(opening->state_dir, opening->text, opening->text_bytes);
    if (error != SR_OK)
        return error;
    if (mkdir(dir, 0700) != 0) {
        rc = errno;
        goto failed;
    }
    error = make_env(opening, dir);
    if (error != SR_OK)
        return error;
    rc = sr_meta_sync_dir(dir);
    if (rc == 0 && rename(dir, opening->env_dir) != 0)
        rc = errno;
    if (rc == 0)
        rc = sr_meta_sync_dir(opening->state_dir);
    if (rc == 0)
        return SR_OK;
failed:
    snprintf(opening->text, opening->text_bytes, "%s: cannot make the metadata folder: %s", opening->env_dir,
             strerror(rc));
    return sr_error_from_errno(rc);
}

/* ---- every start ----------------------------------------------------------------------------------- */

/* O3: called for every record of every database. */
static enum sr_error check_record(void *arg, enum sr_meta_db db, const void *key, size_t key_bytes, const void *value,
                                  size_t value_bytes)
{
    struct opening *opening = arg;
    char key_text[SR_META_KEY_TEXT_BYTES];
    struct sr_meta_entry entry;
    const char *why;

    enum sr_error error = sr_meta_parse(db, key, key_bytes, value, value_bytes, &entry, &why);
    if (error != SR_OK) {
        snprintf(opening->text, opening->text_bytes, "%s: the metadata is %s (database %s, key %s: %s)",
                 opening->env_dir, error == SR_E_VERSION ? "of another version" : "damaged", sr_meta_db_name(db),
                 sr_meta_key_text(db, key, key_bytes, key_text), why);
        return error;
    }
    if (entry.kind == SR_META_KIND_SITE) {
        opening->site = entry.site;
        opening->have_site = true;
    }
    return SR_OK;
}

static enum sr_error check_env(struct opening *opening)
{
    char path[SR_META_PATH_BYTES + 16];
    struct sr_meta_check check = {.path = opening->env_dir,
                                  .visit = check_record,
                                  .arg = opening,
                                  .error_text = opening->text,
                                  .error_text_bytes = opening->text_bytes};

    snprintf(path, sizeof(path), "%s/data.mdb", opening->env_dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        int errnum = errno;
        snprintf(opening->text, opening->text_bytes,
                 "%s: the metadata cannot be opened, will not start as if new: %s", path, strerror(errnum));
        return errnum == ENOENT ? SR_E_CORRUPT : sr_error_from_errno(errnum);
    }
    enum sr_error error = sr_meta_check_file(fd, &check);
    close(fd);
    if (error != SR_OK)
        return error;
    if (!opening->have_site) { /* O1 */
        snprintf(opening->text, opening->text_bytes, "%s: the metadata is damaged (database site, key site: missing)",
                 opening->env_dir);
        return SR_E_CORRUPT;
    }
    if (opening->map_bytes < check.map_bytes)
        opening->map_bytes = check.map_bytes;
    return SR_OK;
}

static enum sr_error check_identity(const struct opening *opening)
{
    char have[SR_UUID_TEXT_BYTES], want[SR_UUID_TEXT_BYTES];

    if (opening->have_marker && !sr_uuid_equal(&opening->marker, &opening->site.uuid)) {
        snprintf(opening->text, opening->text_bytes,
                 "%s: the metadata is that of site %s, but the file `site` beside it names %s", opening->env_dir,
                 sr_uuid_format(&opening->site.uuid, have), sr_uuid_format(&opening->marker, want));
        return SR_E_IDENTITY;
    }
    if (strcmp(opening->site.name, opening->site_name) != 0) {
        snprintf(opening->text, opening->text_bytes,
                 "%s: this state folder belongs to site \"%s\", the configuration says \"%s\"", opening->state_dir,
                 opening->site.name, opening->site_name);
        return SR_E_IDENTITY;
    }
    if (!sr_uuid_equal(&opening->site.group, opening->group)) {
        snprintf(opening->text, opening->text_bytes,
                 "%s: this state folder belongs to group %s, the configuration says %s", opening->state_dir,
                 sr_uuid_format(&opening->site.group, have), sr_uuid_format(opening->group, want));
        return SR_E_IDENTITY;
    }
    return SR_OK;
}

/* Which files are there decides between the first start, an ordinary one, and a refusal. */
static enum sr_error find_env(struct opening *opening)
{
    struct stat st;

    enum sr_error error =
        sr_meta_folder_read_site(opening->state_dir, &opening->marker, opening->text, opening->text_bytes);
    if (error != SR_OK && error != SR_E_NOT_FOUND)
        return error;
    opening->have_marker = error == SR_OK;
    if (lstat(opening->env_dir, &st) == 0)
        return SR_OK;
    if (errno != ENOENT) {
        snprintf(opening->text, opening->text_bytes, "%s: %s", opening->env_dir, strerror(errno));
        return sr_error_from_errno(errno);
    }
    if (opening->have_marker) { /* O2 */
        snprintf(opening->text, opening->text_bytes,
                 "%s: the metadata is missing, will not start as if new (the file %s/site says that it was there)",
                 opening->env_dir, opening->state_dir);
        return SR_E_CORRUPT;
    }
    return first_start(opening);
}

/* True if there is a little more room now. */
static bool use_reserve(struct sr_meta *meta)
{
    if (!sr_meta_reserve_release(meta->state_dir))
        return false;
    snprintf(meta->notice, sizeof(meta->notice),
             "%.300s: the file system of the state folder is full; part of the reserve was used to start: make room "
             "now, or delete volumes",
             meta->state_dir);
    return true;
}

static enum sr_error try_boot(struct sr_meta *meta, struct opening *opening)
{
    meta->site = opening->site;
    meta->site.boot++;
    enum sr_error error =
        sr_meta_env_open(&meta->env, opening->env_dir, opening->map_bytes, opening->text, opening->text_bytes);
    if (error != SR_OK)
        return error;
    error = put_site(&meta->env, &meta->site);
    if (error != SR_OK) {
        snprintf(opening->text, opening->text_bytes, "%s: cannot record this start: %s", opening->env_dir,
                 sr_error_text(error));
        sr_meta_env_close(&meta->env);
    }
    return error;
}

/* Opens the environment and makes the start durable (O4), with space from the reserve if there is no other.  On
 * a full file system a slice is given back in any case: the start itself may find room in free pages, but
 * whoever came to delete something needs more. */
static enum sr_error open_and_boot(struct sr_meta *meta, struct opening *opening)
{
    enum sr_error error;

    if (sr_meta_reserve_needed(meta->state_dir))
        (void)use_reserve(meta);
    do
        error = try_boot(meta, opening);
    while (error == SR_E_NO_SPACE && use_reserve(meta));
    if (error == SR_E_NO_SPACE)
        snprintf(opening->text, opening->text_bytes,
                 "%s: the file system of the state folder is full, this start cannot be recorded",
                 opening->state_dir);
    return error;
}

/* ---- life ------------------------------------------------------------------------------------------ */

static enum sr_error check_arguments(const char *state_dir, const char *site_name, char *error_text,
                                     size_t error_text_bytes)
{
    const char *why = "";

    if (strlen(state_dir) > 1000) {
        snprintf(error_text, error_text_bytes, "%.100s...: the name of the state folder is too long", state_dir);
        return SR_E_INVALID;
    }
    if (!sr_name_valid(site_name, &why)) {
        snprintf(error_text, error_text_bytes, "%.80s: %s", site_name, why);
        return SR_E_INVALID;
    }
    return SR_OK;
}

enum sr_error sr_meta_open_with(uv_loop_t *loop, const char *state_dir, const char *site_name,
                                const struct sr_uuid *group, uint64_t map_start_bytes, struct sr_meta **meta_out,
                                char *error_text, size_t error_text_bytes)
{
    struct opening opening = {.state_dir = state_dir,
                              .site_name = site_name,
                              .group = group,
                              .map_bytes = map_start_bytes,
                              .text = error_text,
                              .text_bytes = error_text_bytes};

    SR_ASSERT(error_text != NULL && error_text_bytes > 0);
    error_text[0] = '\0';
    enum sr_error error = check_arguments(state_dir, site_name, error_text, error_text_bytes);
    if (error != SR_OK)
        return error;
    snprintf(opening.env_dir, sizeof(opening.env_dir), "%s/" SR_META_ENV_NAME, state_dir);
    struct sr_meta *meta = calloc(1, sizeof(*meta));
    if (meta == NULL)
        return SR_E_NO_MEMORY;
    meta->loop = loop;
    snprintf(meta->state_dir, sizeof(meta->state_dir), "%s", state_dir);
    error = sr_meta_folder_lock(state_dir, &meta->lock_fd, error_text, error_text_bytes);
    if (error != SR_OK)
        goto fail_lock;
    error = find_env(&opening);
    if (error == SR_OK)
        error = check_env(&opening);
    if (error == SR_OK)
        error = check_identity(&opening);
    if (error == SR_OK)
        error = open_and_boot(meta, &opening);
    if (error != SR_OK)
        goto fail_env;
    if (!opening.have_marker) {
        error = sr_meta_folder_write_site(state_dir, &meta->site.uuid, error_text, error_text_bytes);
        if (error != SR_OK)
            goto fail_marker;
    }
    if (meta->notice[0] == '\0')
        sr_meta_reserve_fill(state_dir);
    meta->queued_site = meta->site;
    error = sr_meta_writer_start(meta);
    if (error != SR_OK) {
        snprintf(error_text, error_text_bytes, "%s: cannot start the metadata thread", state_dir);
        goto fail_marker;
    }
    *meta_out = meta;
    return SR_OK;

fail_marker:
    sr_meta_env_close(&meta->env);
fail_env:
    close(meta->lock_fd);
fail_lock:
    free(meta);
    return error;
}

enum sr_error sr_meta_open(uv_loop_t *loop, const char *state_dir, const char *site_name, const struct sr_uuid *group,
                           struct sr_meta **meta, char *error_text, size_t error_text_bytes)
{
    return sr_meta_open_with(loop, state_dir, site_name, group, SR_META_MAP_START_BYTES, meta, error_text,
                             error_text_bytes);
}

void sr_meta_close(struct sr_meta *meta)
{
    if (meta == NULL)
        return;
    sr_meta_writer_stop(meta);
    sr_meta_env_close(&meta->env);
    close(meta->lock_fd); /* last: the next daemon may start from here on */
    free(meta);
}

const struct sr_meta_site *sr_meta_site(const struct sr_meta *meta)
{
    return &meta->site;
}

const char *sr_meta_notice(const struct sr_meta *meta)
{
    return meta->notice;
}
