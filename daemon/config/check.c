/* check.c - what must hold between several values, and between the file and the file system.
 *
 * A value that was faulty by itself has no place (0:0) and is left out, so that one slip gives one message.
 */
#include "config/decode.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "config/address.h"

static bool given(struct sr_config_at at)
{
    return at.line != 0;
}

static bool key_given(const struct sr_config_decode *decode, const char *section, const char *name)
{
    return given(decode->key_at[sr_config_key_find(section, name) - sr_config_keys]);
}

static void check_security(struct sr_config_decode *decode)
{
    bool tls = key_given(decode, "", "tls");
    struct sr_config_at insecure_at = sr_config_decode_at(decode, "insecure");

    if (!tls && !key_given(decode, "", "insecure"))
        sr_config_fault_add(decode->faults, (struct sr_config_at){1, 1},
                            "tls: the key is missing: expected tls with ca, certificate and key, or insecure: true");
    else if (!tls && given(insecure_at) && !decode->config->insecure)
        sr_config_fault_add(decode->faults, insecure_at,
                            "insecure: false without tls: expected tls with ca, certificate and key, or true");
    else if (tls && decode->config->insecure)
        sr_config_fault_add(decode->faults, insecure_at,
                            "insecure: true together with tls: expected exactly one of the two");
}

static void check_names(struct sr_config_decode *decode)
{
    const struct sr_config *config = decode->config;
    struct sr_config_at peer_at = sr_config_decode_at(decode, "peer.name");

    if (given(peer_at) && config->site != NULL && strcmp(config->site, config->peer_name) == 0)
        sr_config_fault_add(decode->faults, peer_at,
                            "peer.name: this is the name of this site too: expected the name of the other site");
    for (size_t i = 0; i < config->n_pools; i++)
        for (size_t j = 0; j < i; j++)
            if (given(decode->pool_name_at[i]) && given(decode->pool_name_at[j]) &&
                strcmp(config->pools[i].name, config->pools[j].name) == 0) {
                sr_config_fault_add(decode->faults, decode->pool_name_at[i],
                                    "pools[].name: pool \"%s\" exists already in line %d: expected another name",
                                    config->pools[i].name, decode->pool_name_at[j].line);
                break;
            }
}

/* ---- directories ---- */

/* The same by name, or (looking) one directory under two names. */
static bool same_directory(const char *a, const char *b, bool look)
{
    struct stat stat_a, stat_b;

    if (strcmp(a, b) == 0)
        return true;
    return look && stat(a, &stat_a) == 0 && stat(b, &stat_b) == 0 && stat_a.st_dev == stat_b.st_dev &&
           stat_a.st_ino == stat_b.st_ino;
}

/* Without symbolic links, as far as it exists; else as it stands. */
static const char *resolve(const char *path, bool look, char out[PATH_MAX])
{
    char copy[PATH_MAX];
    size_t end = strlen(path);

    if (!look || end >= PATH_MAX)
        return path;
    memcpy(copy, path, end + 1);
    while (realpath(copy, out) == NULL) { /* cut what does not exist yet, and put it back behind what does */
        while (end > 0 && copy[end - 1] != '/')
            end--;
        if (end <= 1)
            return path;
        copy[--end] = '\0';
    }
    size_t used = strlen(out);
    if (used + strlen(path + end) >= PATH_MAX)
        return path;
    strcpy(out + used, path + end);
    return out;
}

/* Is `inner` somewhere below `outer`? */
static bool lies_inside(const char *inner, const char *outer, bool look)
{
    char inner_real[PATH_MAX], outer_real[PATH_MAX];
    const char *in = resolve(inner, look, inner_real), *out = resolve(outer, look, outer_real);
    size_t bytes = strcmp(out, "/") == 0 ? 0 : strlen(out);

    return strncmp(in, out, bytes) == 0 && in[bytes] == '/' && in[bytes + 1] != '\0';
}

/* One pool with the state folder, or with an earlier pool. */
static void check_pair_of_directories(struct sr_config_decode *decode, size_t i, const char *other, int line,
                                      bool is_state, bool look)
{
    const char *directory = decode->config->pools[i].directory, *what = is_state ? "the state directory" : "a pool";
    struct sr_config_at at = decode->pool_directory_at[i];

    if (same_directory(directory, other, look))
        sr_config_fault_add(decode->faults, at, "pools[].directory: %s is %s%s (line %d): expected another directory",
                            directory, what, is_state ? "" : " already", line);
    else if (lies_inside(directory, other, look))
        sr_config_fault_add(decode->faults, at, "pools[].directory: %s lies inside %s %s (line %d): expected one outside",
                            directory, what, other, line);
    else if (lies_inside(other, directory, look))
        sr_config_fault_add(decode->faults, at,
                            "pools[].directory: %s %s (line %d) lies inside %s: expected one beside it", what, other, line,
                            directory);
}

static void check_directories(struct sr_config_decode *decode, bool look)
{
    const struct sr_config *config = decode->config;
    struct sr_config_at state_at = sr_config_decode_at(decode, "state");

    for (size_t i = 0; i < config->n_pools; i++) {
        if (!given(decode->pool_directory_at[i]))
            continue;
        if (given(state_at))
            check_pair_of_directories(decode, i, config->state, state_at.line, true, look);
        for (size_t j = 0; j < i; j++)
            if (given(decode->pool_directory_at[j]))
                check_pair_of_directories(decode, i, config->pools[j].directory, decode->pool_directory_at[j].line, false,
                                          look);
    }
}

/* ---- addresses ---- */

struct bound {
    const struct sr_config_address *address;
    struct sr_config_at at;
    const char *key;
};

static void check_addresses(struct sr_config_decode *decode)
{
    const struct sr_config *config = decode->config;
    struct sr_config_address control = {.path = config->control_socket, .text = config->control_socket};
    struct sr_config_at peer_at = sr_config_decode_at(decode, "peer.address");
    struct bound bound[2 * SR_CONFIG_LISTEN_MAX + 1];
    size_t n = 0, n_peer;

    for (size_t i = 0; i < config->n_listen; i++)
        bound[n++] = (struct bound){&config->listen[i], decode->listen_at[i], "listen"};
    n_peer = n;
    if (control.path != NULL)
        bound[n++] = (struct bound){&control, sr_config_decode_at(decode, "control.socket"), "control.socket"};
    for (size_t i = 0; i < config->n_nbd_listen; i++)
        bound[n++] = (struct bound){&config->nbd_listen[i], decode->nbd_listen_at[i], "nbd.listen"};

    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++) {
            if (!sr_config_address_clash(bound[i].address, bound[j].address))
                continue;
            sr_config_fault_add(decode->faults, bound[i].at,
                                "%s: %s is in use already by %s (%s, line %d): expected another %s", bound[i].key,
                                bound[i].address->text, bound[j].key, bound[j].address->text, bound[j].at.line,
                                bound[i].address->path != NULL ? "path" : "port");
            break;
        }
        if (i < n_peer && given(peer_at) && !sr_config_address_is_any(bound[i].address) &&
            sr_config_address_clash(bound[i].address, &config->peer_address))
            sr_config_fault_add(
                decode->faults, peer_at,
                "peer.address: %s is where this site itself listens: expected the address of the peer",
                config->peer_address.text);
    }
}

/* ---- numbers ---- */

/* Points at whichever of the two the file gives; nothing to say if neither stands there. */
static void fault_pair(struct sr_config_decode *decode, const char *first, const char *second, const char *what)
{
    struct sr_config_at at = sr_config_decode_at(decode, first);

    if (!given(at))
        at = sr_config_decode_at(decode, second);
    if (given(at))
        sr_config_fault_add(decode->faults, at, "%s", what);
}

static void check_numbers(struct sr_config_decode *decode)
{
    const struct sr_config *config = decode->config;

    if (config->retry_min_ms > config->retry_max_ms)
        fault_pair(decode, "retry.min", "retry.max", "retry: min is above max: expected min <= max");
    if (config->heartbeat_timeout_ms < 2 * (uint64_t)config->heartbeat_interval_ms)
        fault_pair(decode, "heartbeat.timeout", "heartbeat.interval",
                   "heartbeat: timeout is less than two intervals: expected timeout >= 2 * interval");
    if (config->resync_max_bytes_per_s != 0 && config->resync_max_bytes_per_s < config->resync_min_bytes_per_s)
        fault_pair(decode, "limits.resync_max_rate", "limits.resync_min_rate",
                   "limits: resync_max_rate is below resync_min_rate: expected max >= min, or 0 for no limit");
    if (config->peer_window_bytes > config->buffer_memory_bytes)
        fault_pair(decode, "limits.peer_window", "limits.buffer_memory",
                   "limits: peer_window is above buffer_memory: expected peer_window <= buffer_memory");
}

/* ---- files ---- */

static void check_file(struct sr_config_decode *decode, const char *key, const char *path)
{
    struct sr_config_at at = sr_config_decode_at(decode, key);
    struct stat status;

    if (path == NULL || !given(at))
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a pipe must not hang us */
    if (fd < 0) {
        sr_config_fault_add(decode->faults, at, "%s: %s: %s: expected a file that this user can read", key, path,
                            strerror(errno));
        return;
    }
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        sr_config_fault_add(decode->faults, at, "%s: %s: not a regular file: expected a file in PEM form", key, path);
    close(fd);
}

/* For whoever reads the certificates. */
static void keep_places(struct sr_config_decode *decode, const char *section, struct sr_config_tls *tls)
{
    struct sr_config_place *places[] = {&tls->ca_at, &tls->certificate_at, &tls->key_at};
    static const char *const names[] = {"ca", "certificate", "key"};

    for (size_t i = 0; i < 3; i++) {
        char key[32];
        snprintf(key, sizeof(key), "%s%s", section, names[i]);
        struct sr_config_at at = sr_config_decode_at(decode, key);
        *places[i] = (struct sr_config_place){at.line, at.column};
    }
}

void sr_config_check(struct sr_config_decode *decode, bool check_files)
{
    const struct sr_config *config = decode->config;

    check_security(decode);
    check_names(decode);
    check_directories(decode, check_files);
    check_addresses(decode);
    check_numbers(decode);
    if (!check_files)
        return;
    keep_places(decode, "tls.", &decode->config->tls);
    keep_places(decode, "nbd.tls.", &decode->config->nbd_tls);
    check_file(decode, "tls.ca", config->tls.ca);
    check_file(decode, "tls.certificate", config->tls.certificate);
    check_file(decode, "tls.key", config->tls.key);
    check_file(decode, "nbd.tls.ca", config->nbd_tls.ca);
    check_file(decode, "nbd.tls.certificate", config->nbd_tls.certificate);
    check_file(decode, "nbd.tls.key", config->nbd_tls.key);
}
