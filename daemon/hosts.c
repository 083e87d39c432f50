/* hosts.c - what hosts see: the volumes of collections that are served here, as NBD exports.
 *
 * The server's tag of a request is the core's id of it: both are unique among the unanswered ones.  A request whose
 * connection died, or whose export was dropped, goes on in the core; its answer is then ignored by the server.
 *
 * Invariant: nothing is answered after a halt.  Nothing here is durable.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "site.h"

/* Why hosts cannot use it here, and where they can. */
static const char *refusal(const struct sr_volume *volume)
{
    char *text = volume->site->refusal;
    const size_t text_bytes = sizeof(volume->site->refusal);
    const struct sr_collection *collection = volume->collection;
    const char *peer = volume->site->config->peer_name;
    struct sr_core_status status;

    if (volume->closing || volume->meta.state == SR_VOLUME_DELETING) {
        snprintf(text, text_bytes, "volume %s is being deleted", volume->meta.name);
        return text;
    }
    if (!collection->core) {
        snprintf(text, text_bytes, "volume %s cannot be used at site %s: %s", volume->meta.name,
                 volume->site->config->site, collection->fault);
        return text;
    }
    sr_driver_status(collection, &status);
    if (status.record.role != SR_ROLE_ACTIVE)
        snprintf(text, text_bytes, "volume %s is active at site %s: connect there", volume->meta.name, peer);
    else
        snprintf(text, text_bytes, "volume %s waits for its peer: %s", volume->meta.name,
                 status.detail[0] ? status.detail : sr_cause_name(status.cause));
    return text;
}

static void describe(const struct sr_volume *volume, struct sr_nbd_export_info *info)
{
    memset(info, 0, sizeof(*info));
    info->name = volume->meta.name;
    info->size_bytes = volume->meta.size_bytes;
    info->fast_zero = !volume->meta.imported;
    info->available = volume->collection->serving && !volume->closing && !volume->site->stopping;
    info->refusal = info->available ? NULL : refusal(volume);
}

static void *find(void *arg, const char *name, size_t name_bytes, struct sr_nbd_export_info *info)
{
    struct sr_site *site = arg;
    char text[SR_NAME_BYTES];

    if (name_bytes >= sizeof(text) || memchr(name, '\0', name_bytes))
        return NULL;
    memcpy(text, name, name_bytes);
    text[name_bytes] = '\0';
    struct sr_volume *volume = sr_table_volume_named(site, text);
    if (!volume || !volume->collection)
        return NULL;
    describe(volume, info);
    return volume;
}

static bool list(void *arg, uint32_t index, struct sr_nbd_export_info *info)
{
    struct sr_site *site = arg;
    struct sr_volume *volume;

    TAILQ_FOREACH (volume, &site->volumes, link) {
        if (!volume->collection || !volume->collection->serving || volume->closing)
            continue;
        if (index-- == 0) {
            describe(volume, info);
            return true;
        }
    }
    return false;
}

static void hold(struct sr_volume *volume, const struct sr_host_request *request)
{
    struct sr_gated *gated = calloc(1, sizeof(*gated));

    if (!gated) {
        sr_nbd_complete(volume->site->nbd, request->id, SR_E_SHUTDOWN);
        return;
    }
    gated->request = *request;
    sr_buf_ref(gated->request.buf); /* the server may give its own up with the connection */
    STAILQ_INSERT_TAIL(&volume->gated, gated, link);
}

void sr_hosts_gate(struct sr_volume *volume, bool on)
{
    struct sr_gated *gated;

    if (on && !volume->has_gate)
        STAILQ_INIT(&volume->gated);
    bool opens = !on && volume->has_gate;
    volume->has_gate = on;
    while (opens && (gated = STAILQ_FIRST(&volume->gated))) {
        struct sr_event event = {.type = SR_EV_HOST, .host = gated->request};
        event.host.volume = volume->index;
        STAILQ_REMOVE_HEAD(&volume->gated, link);
        if (volume->site->halted || !volume->site->nbd)
            ;
        else if (!volume->collection || !volume->collection->core || volume->collection->dead)
            sr_nbd_complete(volume->site->nbd, event.host.id, SR_E_SHUTDOWN);
        else
            sr_driver_step(volume->collection, &event);
        sr_buf_unref(gated->request.buf);
        free(gated);
    }
}

static void submit(void *arg, void *export, const struct sr_nbd_request *request)
{
    struct sr_site *site = arg;
    struct sr_volume *volume = export;
    struct sr_event event = {.type = SR_EV_HOST,
                             .host = {.id = request->tag,
                                      .volume = volume->index,
                                      .op = request->op,
                                      .no_hole = request->no_hole,
                                      .fua = request->fua,
                                      .offset_bytes = request->offset_bytes,
                                      .length_bytes = request->length_bytes,
                                      .buf = request->buf}};

    if (site->halted)
        return;
    if (volume->has_gate) {
        hold(volume, &event.host);
        return;
    }
    if (!volume->collection || !volume->collection->core || volume->collection->dead) {
        sr_nbd_complete(site->nbd, request->tag, SR_E_SHUTDOWN);
        return;
    }
    sr_driver_step(volume->collection, &event);
}

static uint64_t extent(void *arg, void *export, uint64_t offset_bytes, uint64_t limit_bytes, bool *hole)
{
    struct sr_volume *volume = export;

    (void)arg;
    return volume->store ? sr_store_extent(volume->store, offset_bytes, limit_bytes, hole) : 0;
}

static void retired(void *arg, void *export)
{
    struct sr_volume *volume = export;

    (void)arg;
    if (volume->collection)
        sr_driver_retired(volume->collection);
}

static void log_line(void *arg, enum sr_log_level level, const char *text)
{
    (void)arg;
    sr_log_limited(level, text, "%s", text); /* strangers can cause any number of them */
}

void sr_hosts_reply(struct sr_site *site, uint64_t id, enum sr_error error)
{
    if (site->nbd && !site->halted)
        sr_nbd_complete(site->nbd, id, error);
}

void sr_hosts_drop(struct sr_volume *volume)
{
    if (volume->site->nbd)
        sr_nbd_drop_export(volume->site->nbd, volume);
}

void sr_hosts_retire(struct sr_volume *volume)
{
    if (volume->site->nbd)
        sr_nbd_retire_export(volume->site->nbd, volume);
}

/* A set that is not good leaves the old one in use. */
enum sr_error sr_hosts_load_tls(struct sr_site *site, const struct sr_config *config, char *text, size_t text_bytes)
{
    struct sr_tls_files files = {config->nbd_tls.ca, config->nbd_tls.certificate, config->nbd_tls.key};
    struct sr_tls *fresh = NULL;

    if (!files.ca)
        return SR_OK;
    enum sr_error error = sr_tls_load(SR_TLS_NBD, &files, NULL, &fresh, text, text_bytes);
    if (error != SR_OK)
        return error;
    sr_nbd_server_set_tls(site->nbd, sr_tls_context(fresh));
    sr_tls_unref(site->nbd_tls);
    site->nbd_tls = fresh;
    return SR_OK;
}

/* With certificates configured, hosts on the network must use them; a Unix socket is guarded by its mode. */
static enum sr_error listen_at(struct sr_site *site, const struct sr_config_address *address, char *text,
                               size_t text_bytes)
{
    bool tls = site->config->nbd_tls.ca != NULL;

    if (address->path)
        return sr_nbd_listen_unix(site->nbd, address->path, tls ? SR_NBD_TLS_OPTIONAL : SR_NBD_TLS_OFF, text,
                                  text_bytes);
    return sr_nbd_listen_tcp(site->nbd, address->host, address->port, tls ? SR_NBD_TLS_REQUIRED : SR_NBD_TLS_OFF,
                             NULL, text, text_bytes);
}

enum sr_error sr_hosts_start(struct sr_site *site, char *text, size_t text_bytes)
{
    const struct sr_config *config = site->config;
    struct sr_nbd_config options = {.handshake_timeout_ms = config->nbd_handshake_timeout_ms,
                                    .max_connections = config->nbd_max_connections,
                                    .queue_depth = config->queue_depth,
                                    .budget = &site->host_budget};
    struct sr_nbd_callbacks callbacks = {
        .find = find, .list = list, .submit = submit, .extent = extent, .retired = retired, .log = log_line};
    enum sr_error error;

    site->nbd = sr_nbd_server_new(site->loop, &options, &callbacks, site);
    if (!site->nbd) {
        snprintf(text, text_bytes, "nbd: out of memory or descriptors");
        return SR_E_NO_MEMORY;
    }
    error = sr_hosts_load_tls(site, config, text, text_bytes);
    for (size_t i = 0; error == SR_OK && i < config->n_nbd_listen; i++)
        error = listen_at(site, &config->nbd_listen[i], text, text_bytes);
    return error;
}
