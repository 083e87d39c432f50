/* schema.c - the table of every key: its type, range, default, and whether it may change while running.
 *
 * Reading, defaults, comparison and suggestions all work from this one table; docs/CONFIG.md is checked against it
 * by a test.
 */
#include "config/schema.h"

#include <string.h>

#include "base/assert.h"
#include "base/units.h"

#define AT(field)      offsetof(struct sr_config, field)
#define POOL_AT(field) offsetof(struct sr_config_pool, field)
#define REQUIRED       SR_KEY_REQUIRED
#define LIVE           SR_KEY_LIVE
#define SECONDS        UINT64_C(1000)
#define MINUTES        (60 * SECONDS)

/* clang-format off */
const struct sr_config_key sr_config_keys[] = {
    {"site", SR_KIND_NAME, REQUIRED, AT(site), 0, 0, 0, NULL},
    {"group", SR_KIND_UUID, REQUIRED, AT(group), 0, 0, 0, NULL},
    {"peer", SR_KIND_SECTION, REQUIRED, 0, 0, 0, 0, NULL},
    {"peer.name", SR_KIND_NAME, REQUIRED, AT(peer_name), 0, 0, 0, NULL},
    {"peer.address", SR_KIND_ADDRESS, REQUIRED, AT(peer_address), 0, 0, 0, NULL},
    {"listen", SR_KIND_LISTEN, REQUIRED, AT(listen), AT(n_listen), 0, 0, NULL},
    {"insecure", SR_KIND_BOOL, 0, AT(insecure), 0, 0, 0, "false"},
    {"tls", SR_KIND_SECTION, 0, 0, 0, 0, 0, NULL},
    {"tls.ca", SR_KIND_FILE, REQUIRED, AT(tls.ca), 0, 0, 0, NULL},
    {"tls.certificate", SR_KIND_FILE, REQUIRED, AT(tls.certificate), 0, 0, 0, NULL},
    {"tls.key", SR_KIND_FILE, REQUIRED, AT(tls.key), 0, 0, 0, NULL},
    {"pools", SR_KIND_POOLS, REQUIRED, AT(pools), AT(n_pools), 0, 0, NULL},
    {"pools[].name", SR_KIND_NAME, REQUIRED, POOL_AT(name), 0, 0, 0, NULL},
    {"pools[].directory", SR_KIND_PATH, REQUIRED, POOL_AT(directory), 0, 0, 0, NULL},
    {"nbd", SR_KIND_SECTION, REQUIRED, 0, 0, 0, 0, NULL},
    {"nbd.listen", SR_KIND_NBD_LISTEN, REQUIRED, AT(nbd_listen), AT(n_nbd_listen), 0, 0, NULL},
    {"nbd.max_connections", SR_KIND_COUNT, 0, AT(nbd_max_connections), 0, 1, 65536, "256"},
    {"nbd.handshake_timeout", SR_KIND_DURATION, 0, AT(nbd_handshake_timeout_ms), 0, SECONDS, 10 * MINUTES, "10s"},
    {"nbd.tls", SR_KIND_SECTION, 0, 0, 0, 0, 0, NULL},
    {"nbd.tls.ca", SR_KIND_FILE, REQUIRED, AT(nbd_tls.ca), 0, 0, 0, NULL},
    {"nbd.tls.certificate", SR_KIND_FILE, REQUIRED, AT(nbd_tls.certificate), 0, 0, 0, NULL},
    {"nbd.tls.key", SR_KIND_FILE, REQUIRED, AT(nbd_tls.key), 0, 0, 0, NULL},
    {"control", SR_KIND_SECTION, 0, 0, 0, 0, 0, NULL},
    {"control.socket", SR_KIND_SOCKET, 0, AT(control_socket), 0, 0, 0, "/run/syncrep/control.sock"},
    {"state", SR_KIND_PATH, REQUIRED, AT(state), 0, 0, 0, NULL},
    {"limits", SR_KIND_SECTION, 0, 0, 0, 0, 0, NULL},
    {"limits.buffer_memory", SR_KIND_SIZE, 0, AT(buffer_memory_bytes), 0, 96 * SR_MIB, SR_TIB, "512MiB"},
    {"limits.queue_depth", SR_KIND_COUNT, 0, AT(queue_depth), 0, 1, 4096, "128"},
    {"limits.peer_window", SR_KIND_SIZE, 0, AT(peer_window_bytes), 0, 32 * SR_MIB, 64 * SR_GIB, "64MiB"},
    {"limits.hot_regions", SR_KIND_COUNT, LIVE, AT(hot_regions), 0, 1, 1048576, "1024"},
    {"limits.resync_parallel", SR_KIND_COUNT, LIVE, AT(resync_parallel), 0, 1, 64, "4"},
    {"limits.resync_min_rate", SR_KIND_RATE, LIVE, AT(resync_min_bytes_per_s), 0, 64 * SR_KIB, SR_TIB, "4MiB"},
    {"limits.resync_max_rate", SR_KIND_RATE, LIVE, AT(resync_max_bytes_per_s), 0, 0, SR_TIB, "0"},
    {"limits.resync_latency_factor", SR_KIND_FACTOR, LIVE, AT(resync_latency_percent), 0, 100, 10000, "2.0"},
    {"limits.max_volumes", SR_KIND_COUNT, 0, AT(max_volumes), 0, 1, 65536, "1024"},
    {"stall_budget", SR_KIND_DURATION, LIVE, AT(stall_budget_ms), 0, 100, 10 * MINUTES, "5s"},
    {"retry", SR_KIND_SECTION, 0, 0, 0, 0, 0, NULL},
    {"retry.min", SR_KIND_DURATION, 0, AT(retry_min_ms), 0, 10, 60 * MINUTES, "1s"},
    {"retry.max", SR_KIND_DURATION, 0, AT(retry_max_ms), 0, 10, 60 * MINUTES, "60s"},
    {"heartbeat", SR_KIND_SECTION, 0, 0, 0, 0, 0, NULL},
    {"heartbeat.interval", SR_KIND_DURATION, 0, AT(heartbeat_interval_ms), 0, 50, 10 * MINUTES, "1s"},
    {"heartbeat.timeout", SR_KIND_DURATION, 0, AT(heartbeat_timeout_ms), 0, 100, 60 * MINUTES, "5s"},
    {"log", SR_KIND_SECTION, 0, 0, 0, 0, 0, NULL},
    {"log.level", SR_KIND_LEVEL, LIVE, AT(log_level), 0, 0, 0, "info"},
    {"log.format", SR_KIND_FORMAT, 0, AT(log_format), 0, 0, 0, "text"},
    {"store", SR_KIND_SECTION, 0, 0, 0, 0, 0, NULL},
    {"store.engine", SR_KIND_ENGINE, 0, AT(engine), 0, 0, 0, "auto"},
};
/* clang-format on */

const size_t sr_config_n_keys = sizeof(sr_config_keys) / sizeof(sr_config_keys[0]);
_Static_assert(sizeof(sr_config_keys) / sizeof(sr_config_keys[0]) <= SR_CONFIG_KEYS_MAX, "a diff holds every key");

static const struct sr_config_word level_words[] = {
    {"error", SR_LOG_ERROR}, {"warning", SR_LOG_WARNING}, {"notice", SR_LOG_NOTICE},
    {"info", SR_LOG_INFO},   {"debug", SR_LOG_DEBUG},     {NULL, 0},
};
static const struct sr_config_word format_words[] = {{"text", SR_LOG_TEXT}, {"json", SR_LOG_JSON}, {NULL, 0}};
static const struct sr_config_word engine_words[] = {
    {"auto", SR_CONFIG_ENGINE_AUTO},
    {"io_uring", SR_CONFIG_ENGINE_IO_URING},
    {"threads", SR_CONFIG_ENGINE_THREADS},
    {NULL, 0},
};

const struct sr_config_word *sr_config_words(enum sr_config_kind kind)
{
    switch (kind) {
    case SR_KIND_LEVEL:
        return level_words;
    case SR_KIND_FORMAT:
        return format_words;
    case SR_KIND_ENGINE:
        return engine_words;
    default:
        SR_UNREACHABLE();
    }
}

const char *sr_config_key_leaf(const struct sr_config_key *key)
{
    const char *dot = strrchr(key->path, '.');

    return dot != NULL ? dot + 1 : key->path;
}

bool sr_config_key_in(const struct sr_config_key *key, const char *section)
{
    const char *leaf = sr_config_key_leaf(key);
    size_t length = leaf == key->path ? 0 : (size_t)(leaf - key->path) - 1;

    return strlen(section) == length && strncmp(key->path, section, length) == 0;
}

const struct sr_config_key *sr_config_key_find(const char *section, const char *name)
{
    for (size_t i = 0; i < sr_config_n_keys; i++) {
        const struct sr_config_key *key = &sr_config_keys[i];
        if (sr_config_key_in(key, section) && strcmp(sr_config_key_leaf(key), name) == 0)
            return key;
    }
    return NULL;
}
