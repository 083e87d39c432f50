/* config.c - reads a configuration file, checks it as a whole and owns the result.
 *
 *     file -> bytes (bounded) -> yaml_tree -> decode (along schema) -> check -> struct sr_config, or every fault
 *
 * Invariant: a struct sr_config that leaves this module has no fault.  Nothing is written anywhere.
 */
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "config/address.h"
#include "config/decode.h"

static const struct sr_config_at whole_file = {0, 0};

static void tls_free(struct sr_config_tls *tls)
{
    free(tls->ca);
    free(tls->certificate);
    free(tls->key);
}

void sr_config_free(struct sr_config *config)
{
    if (config == NULL)
        return;
    for (size_t i = 0; i < config->n_listen; i++)
        sr_config_address_free(&config->listen[i]);
    for (size_t i = 0; i < config->n_nbd_listen; i++)
        sr_config_address_free(&config->nbd_listen[i]);
    for (size_t i = 0; i < config->n_pools; i++) {
        free(config->pools[i].name);
        free(config->pools[i].directory);
    }
    free(config->listen);
    free(config->nbd_listen);
    free(config->pools);
    sr_config_address_free(&config->peer_address);
    tls_free(&config->tls);
    tls_free(&config->nbd_tls);
    free(config->file);
    free(config->site);
    free(config->peer_name);
    free(config->control_socket);
    free(config->state);
    free(config);
}

static enum sr_error build(const char *bytes, size_t length, bool check_files, struct sr_config *config,
                           struct sr_config_faults *faults)
{
    struct sr_config_decode decode = {.config = config, .faults = faults};
    struct sr_yaml_tree tree;

    enum sr_error error = sr_yaml_parse(bytes, length, &tree, faults);
    if (error == SR_OK) {
        if (sr_config_decode(&decode, tree.root) && !decode.no_memory)
            sr_config_check(&decode, check_files);
        error = decode.no_memory ? SR_E_NO_MEMORY : faults->n > 0 || faults->more ? SR_E_INVALID : SR_OK;
    }
    sr_yaml_free(&tree);
    return error;
}

enum sr_error sr_config_parse(const char *name, const char *bytes, size_t length, bool check_files,
                              struct sr_config **config, struct sr_config_faults *faults)
{
    enum sr_error error = SR_E_NO_MEMORY;

    *config = NULL;
    sr_config_faults_free(faults);
    faults->file = strdup(name);
    struct sr_config *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL || faults->file == NULL)
        goto fail;
    fresh->file = strdup(name);
    if (fresh->file == NULL)
        goto fail;
    if (length > SR_CONFIG_FILE_MAX_BYTES) {
        sr_config_fault_add(faults, whole_file, "the file is too large: expected at most %d KiB",
                            SR_CONFIG_FILE_MAX_BYTES / 1024);
        error = SR_E_INVALID;
        goto fail;
    }
    error = build(bytes, length, check_files, fresh, faults);
    if (error != SR_OK)
        goto fail;
    *config = fresh;
    return SR_OK;
fail:
    if (error == SR_E_NO_MEMORY)
        sr_config_fault_add(faults, whole_file, "out of memory");
    sr_config_faults_sort(faults);
    sr_config_free(fresh);
    return error;
}

/* The whole file and at most one byte more than is allowed. */
static enum sr_error read_all(int fd, char **bytes, size_t *length)
{
    size_t limit = SR_CONFIG_FILE_MAX_BYTES + 1, done = 0;
    char *buffer = malloc(limit);

    if (buffer == NULL)
        return SR_E_NO_MEMORY;
    while (done < limit) {
        ssize_t n = read(fd, buffer + done, limit - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            free(buffer);
            return sr_error_from_errno(errno);
        }
        if (n == 0)
            break;
        done += (size_t)n;
    }
    *bytes = buffer;
    *length = done;
    return SR_OK;
}

static enum sr_error fail_file(struct sr_config_faults *faults, const char *path, enum sr_error error,
                               const char *reason)
{
    faults->file = strdup(path);
    sr_config_fault_add(faults, whole_file, "cannot read the configuration: %s", reason);
    return error;
}

enum sr_error sr_config_load(const char *path, struct sr_config **config, struct sr_config_faults *faults)
{
    struct stat status;
    char *bytes = NULL;
    size_t length = 0;

    *config = NULL;
    sr_config_faults_free(faults);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a pipe must not hang us */
    if (fd < 0)
        return fail_file(faults, path, sr_error_from_errno(errno), strerror(errno));
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        return fail_file(faults, path, SR_E_INVALID, "not a regular file");
    }
    enum sr_error error = read_all(fd, &bytes, &length);
    close(fd);
    if (error != SR_OK)
        return fail_file(faults, path, error, sr_error_text(error));
    error = sr_config_parse(path, bytes, length, true, config, faults);
    free(bytes);
    return error;
}
