/* config.h - the configuration file of a site: one YAML file, checked as a whole before anything starts.
 *
 * A faulty file is refused with every fault that was found, each as "file:line:column: what is wrong, what was
 * expected".  docs/CONFIG.md describes every key; schema.c is the table behind it.
 *
 *   site: site-a                         # name of this site
 *   group: 6f1c0c1e-...                  # the same UUID at both sites
 *   peer: {name: site-b, address: "10.0.0.2:7700"}
 *   listen: "10.0.0.1:7700"              # or a list; IPv6 as "[::1]:7700", in quotes
 *   tls: {ca: /etc/..., certificate: /etc/..., key: /etc/...}     # or  insecure: true
 *   pools: [{name: pool1, directory: /srv/pool1}]
 *   nbd: {listen: [...], max_connections: 256, handshake_timeout: 10s, tls: {ca, certificate, key}}
 *   control: {socket: /run/syncrep/control.sock}
 *   state: /var/lib/syncrep
 *   limits: {buffer_memory, queue_depth, peer_window, hot_regions, resync_parallel, resync_min_rate,
 *            resync_max_rate, resync_latency_factor, max_volumes}
 *   stall_budget: 5s
 *   retry: {min: 1s, max: 60s}
 *   heartbeat: {interval: 1s, timeout: 5s}
 *   log: {level: info, format: text}
 *   store: {engine: auto}
 *
 * Everything here is bounded: the file, its nesting, its nodes and the list of faults.  All functions may be
 * called from any thread; load blocks on the file system.
 */
#ifndef SR_CONFIG_CONFIG_H
#define SR_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/log.h"
#include "base/uuid.h"

#define SR_CONFIG_FILE_MAX_BYTES (256 * 1024)
#define SR_CONFIG_FAULTS_MAX 100
#define SR_CONFIG_POOLS_MAX 64
#define SR_CONFIG_LISTEN_MAX 16
#define SR_CONFIG_UNIX_PATH_MAX_BYTES 107 /* what sockaddr_un takes */

/* "host:port", "[ipv6]:port" or "unix:/path". */
struct sr_config_address {
    char *text;    /* as written */
    char *host;    /* without brackets: a name, an IPv4 or an IPv6 address; NULL for unix */
    uint16_t port; /* 1 to 65535; 0 for unix */
    char *path;    /* absolute path of a Unix socket, else NULL */
};

struct sr_config_place { /* in the file, both from 1; 0: not given */
    int line, column;
};

/* All three set, or all three NULL. */
struct sr_config_tls {
    char *ca, *certificate, *key;
    struct sr_config_place ca_at, certificate_at, key_at;
};

struct sr_config_pool {
    char *name;
    char *directory; /* absolute, without trailing or doubled slashes */
};

enum sr_config_engine { SR_CONFIG_ENGINE_AUTO, SR_CONFIG_ENGINE_IO_URING, SR_CONFIG_ENGINE_THREADS };

/* Owns all its strings and lists. */
struct sr_config {
    char *file; /* where it was read from */

    char *site;
    struct sr_uuid group;
    char *peer_name;
    struct sr_config_address peer_address;

    size_t n_listen; /* at least 1 */
    struct sr_config_address *listen;
    bool insecure;            /* plain TCP on the peer link; then tls is NULL throughout */
    struct sr_config_tls tls; /* of the peer link */

    size_t n_pools; /* at least 1 */
    struct sr_config_pool *pools;

    size_t n_nbd_listen; /* at least 1 */
    struct sr_config_address *nbd_listen;
    uint32_t nbd_max_connections;
    uint32_t nbd_handshake_timeout_ms;
    struct sr_config_tls nbd_tls; /* NULL throughout: NBD without TLS */

    char *control_socket;
    char *state; /* directory */

    uint64_t buffer_memory_bytes;
    uint32_t queue_depth;       /* requests in flight of one NBD connection */
    uint64_t peer_window_bytes; /* payload sent to the peer and not yet confirmed */
    uint32_t hot_regions;
    uint32_t resync_parallel;
    uint64_t resync_min_bytes_per_s;
    uint64_t resync_max_bytes_per_s; /* 0: no limit */
    uint32_t resync_latency_percent; /* 200: factor 2.0 */
    uint32_t max_volumes;

    uint32_t stall_budget_ms;
    uint32_t retry_min_ms, retry_max_ms;
    uint32_t heartbeat_interval_ms, heartbeat_timeout_ms;

    enum sr_log_level log_level;
    enum sr_log_format log_format;
    enum sr_config_engine engine;
};

struct sr_config_fault {
    int line, column; /* from 1; columns count characters; 0: the file as a whole */
    char *text;       /* what is wrong, what was expected */
};

/* Zero it first; sr_config_faults_free afterwards. */
struct sr_config_faults {
    char *file;
    size_t n; /* sorted by position */
    struct sr_config_fault *list;
    bool more; /* there were more than SR_CONFIG_FAULTS_MAX */
};

/* Reads and checks a file.  SR_OK: *config is set and owned by the caller.  Otherwise *config is NULL and `faults`
 * has at least one entry: SR_E_INVALID (its content), SR_E_NOT_FOUND, SR_E_PERMISSION, SR_E_IO (reading it),
 * SR_E_NO_MEMORY.  Certificates and keys must be readable files; pools and sockets are not touched. */
enum sr_error sr_config_load(const char *path, struct sr_config **config, struct sr_config_faults *faults);

/* The same from memory.  `name` stands for the file in messages.  check_files: look at the file system, as load
 * does; false: a pure function of the bytes. */
enum sr_error sr_config_parse(const char *name, const char *bytes, size_t length, bool check_files,
                              struct sr_config **config, struct sr_config_faults *faults);

void sr_config_free(struct sr_config *config); /* NULL is fine */

/* One more fault, found by whoever looks at what the file names. */
void sr_config_fault(struct sr_config_faults *faults, const char *file, const struct sr_config_place *place,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

void sr_config_faults_free(struct sr_config_faults *faults);

/* One line a fault: "file:line:column: text". */
void sr_config_faults_print(const struct sr_config_faults *faults, FILE *stream);

/* "file:line:column: text" into out (cut if need be); returns out. */
const char *sr_config_fault_format(const struct sr_config_faults *faults, size_t index, char *out, size_t out_bytes);

/* ---- what changed ---- */

#define SR_CONFIG_KEYS_MAX 64

struct sr_config_diff {
    size_t n_live, n_restart;
    const char *live[SR_CONFIG_KEYS_MAX];    /* may be applied while running: "stall_budget" */
    const char *restart[SR_CONFIG_KEYS_MAX]; /* need a restart: "nbd.listen" */
};

/* Which keys differ.  The names are constants.  Contents of certificate files are not compared: only their paths. */
void sr_config_diff_live(const struct sr_config *old, const struct sr_config *new, struct sr_config_diff *diff);

/* "a, b and c" of such a list into out (cut if need be); returns out. */
const char *sr_config_names_join(const char *const *names, size_t n, char *out, size_t out_bytes);

/* old takes the values of its live keys from new; all else stays. */
void sr_config_apply_live(struct sr_config *old, const struct sr_config *new);

#endif
