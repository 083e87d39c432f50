/* tojson.c - messages as JSON.  docs/CLI.md documents each field; names and meanings are stable within a version:
 * fields may be added.  An unknown value of an enumeration is "unknown". */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

#include "control/wire.h"

json_t *cli_json_text(const char *text)
{
    json_t *json = json_string(text ? text : "");

    if (json)
        return json;
    char *copy = strdup(text); /* not UTF-8 */
    json = copy ? json_string(sr_control_text_clean(copy)) : NULL;
    free(copy);
    return json ? json : json_string("");
}

static json_t *number(uint64_t value)
{
    return json_integer(value <= INT64_MAX ? (json_int_t)value : INT64_MAX);
}

static const char *word(const char *const *words, size_t n, int value)
{
    return value > 0 && (size_t)value < n ? words[value] : "unknown";
}

#define WORD(value, ...)                                                                                             \
    do {                                                                                                             \
        static const char *const words[] = {"unknown", __VA_ARGS__};                                                 \
        return word(words, sizeof(words) / sizeof(words[0]), (int)(value));                                          \
    } while (0)

const char *cli_role(Syncrep__Control__Role role)
{
    WORD(role, "active", "alternate");
}

const char *cli_sync(Syncrep__Control__Sync sync)
{
    WORD(sync, "in-sync", "paused", "out-of-sync");
}

const char *cli_verdict(Syncrep__Control__Verdict verdict)
{
    WORD(verdict, "protected", "exposed", "offline");
}

const char *cli_link_state(Syncrep__Control__LinkState state)
{
    WORD(state, "down", "connecting", "up");
}

const char *cli_pool_state(Syncrep__Control__PoolState state)
{
    WORD(state, "ok", "missing", "foreign", "error");
}

const char *cli_level(Syncrep__Control__Level level)
{
    WORD(level, "error", "warning", "notice", "info");
}

static void put(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

static void put_text(json_t *object, const char *key, const char *text)
{
    put(object, key, cli_json_text(text));
}

static void put_number(json_t *object, const char *key, uint64_t value)
{
    put(object, key, number(value));
}

static void put_bool(json_t *object, const char *key, protobuf_c_boolean value)
{
    put(object, key, json_boolean(value));
}

json_t *cli_json_volume(const Syncrep__Control__Volume *v)
{
    json_t *o = json_object(), *exports = json_array();

    put_text(o, "name", v->name);
    put_text(o, "uuid", v->uuid);
    put_text(o, "collection", v->collection);
    put_text(o, "state", v->state);
    put_number(o, "size_bytes", v->size_bytes);
    put_text(o, "pool", v->pool);
    put_text(o, "path", v->path);
    put_bool(o, "imported", v->imported);
    put_text(o, "durability", v->durability[0] ? v->durability : "write-through");
    put_number(o, "cached_bytes", v->cached_bytes);
    put_number(o, "dirty_bytes", v->dirty_bytes);
    put_number(o, "allocated_bytes", v->allocated_bytes);
    put_number(o, "connections", v->connections);
    put_number(o, "requests", v->requests);
    put_number(o, "created_wall_ms", v->created_wall_ms);
    for (size_t i = 0; i < v->n_exports; i++)
        json_array_append_new(exports, cli_json_text(v->exports[i]));
    put(o, "exports", exports);
    return o;
}

static json_t *resync_json(const Syncrep__Control__Resync *r)
{
    static const Syncrep__Control__Resync none = SYNCREP__CONTROL__RESYNC__INIT;
    json_t *o = json_object();

    if (!r)
        r = &none;
    put_bool(o, "running", r->running);
    put_number(o, "done_blocks", r->done_blocks);
    put_number(o, "total_blocks", r->total_blocks);
    put_number(o, "bytes_per_s", r->bytes_per_s);
    put(o, "eta_s", r->running && r->eta_known ? number(r->eta_s) : json_null());
    return o;
}

static json_t *counters_json(const Syncrep__Control__Counters *c)
{
    static const Syncrep__Control__Counters none = SYNCREP__CONTROL__COUNTERS__INIT;
    json_t *o = json_object();

    if (!c)
        c = &none;
    put_number(o, "writes", c->writes);
    put_number(o, "written_bytes", c->written_bytes);
    put_number(o, "reads", c->reads);
    put_number(o, "read_bytes", c->read_bytes);
    put_number(o, "sent_payload_bytes", c->sent_payload_bytes);
    put_number(o, "copied_bytes", c->copied_bytes);
    put_number(o, "compared_blocks", c->compared_blocks);
    put_number(o, "equal_blocks", c->equal_blocks);
    put_number(o, "meta_commits", c->meta_commits);
    put_number(o, "flushes", c->flushes);
    return o;
}

json_t *cli_json_collection(const Syncrep__Control__Collection *c)
{
    json_t *o = json_object(), *volumes = json_array();

    put_text(o, "name", c->name);
    put_text(o, "uuid", c->uuid);
    put_text(o, "verdict", cli_verdict(c->verdict));
    put_text(o, "sync", cli_sync(c->sync));
    put_text(o, "cause", c->cause);
    put_text(o, "detail", c->detail);
    put_text(o, "warning", c->warning);
    put_text(o, "next_command", c->next_command);
    put_text(o, "role", cli_role(c->role));
    put_text(o, "peer_role", cli_role(c->peer_role));
    put_text(o, "site", c->site);
    put_text(o, "peer_site", c->peer_site);
    put_bool(o, "serving", c->serving);
    put_bool(o, "paused", c->paused);
    put_bool(o, "peer_usable", c->peer_usable);
    put_bool(o, "handing_over", c->handing_over);
    put_number(o, "switchover_pause_us", c->switchover_pause_us);
    put_text(o, "mode", c->mode);
    put_text(o, "generation", c->generation);
    put_text(o, "made_by", c->made_by);
    put_number(o, "generation_wall_ms", c->generation_wall_ms);
    put_number(o, "synced_wall_ms", c->synced_wall_ms);
    put_number(o, "since_wall_ms", c->since_wall_ms);
    put_number(o, "dirty_blocks", c->dirty_blocks);
    put_number(o, "dirty_bytes", c->dirty_bytes);
    put_bool(o, "full_copy", c->full_copy);
    put_text(o, "full_copy_reason", c->full_copy_reason);
    put_number(o, "requests", c->requests);
    put(o, "resync", resync_json(c->resync));
    put(o, "counters", counters_json(c->counters));
    for (size_t i = 0; i < c->n_volumes; i++)
        json_array_append_new(volumes, cli_json_volume(c->volumes[i]));
    put(o, "volumes", volumes);
    return o;
}

json_t *cli_json_pool(const Syncrep__Control__Pool *p)
{
    json_t *o = json_object();

    put_text(o, "name", p->name);
    put_text(o, "uuid", p->uuid);
    put_text(o, "directory", p->directory);
    put_text(o, "state", cli_pool_state(p->state));
    put_text(o, "detail", p->detail);
    put_number(o, "free_bytes", p->free_bytes);
    put_number(o, "total_bytes", p->total_bytes);
    put_number(o, "volumes", p->volumes);
    return o;
}

static json_t *link_json(const Syncrep__Control__Link *l)
{
    static const Syncrep__Control__Link none = SYNCREP__CONTROL__LINK__INIT;
    json_t *o = json_object();

    if (!l)
        l = &none;
    put_text(o, "state", cli_link_state(l->state));
    put_number(o, "since_wall_ms", l->since_wall_ms);
    put_text(o, "last_error", l->last_error);
    put_number(o, "rtt_us", l->rtt_us);
    put_bool(o, "tls", l->tls);
    put_text(o, "peer_address", l->peer_address);
    put_number(o, "reconnects", l->reconnects);
    return o;
}

json_t *cli_json_site(const Syncrep__Control__Status *s)
{
    json_t *o = json_object(), *pools = json_array();

    put_text(o, "name", s->site);
    put_text(o, "uuid", s->site_uuid);
    put_text(o, "peer", s->peer);
    put(o, "link", link_json(s->link));
    for (size_t i = 0; i < s->n_pools; i++)
        json_array_append_new(pools, cli_json_pool(s->pools[i]));
    put(o, "pools", pools);
    put_text(o, "engine", s->engine);
    put_text(o, "daemon_version", s->daemon_version);
    put_number(o, "pid", s->pid);
    put_number(o, "started_wall_ms", s->started_wall_ms);
    put_number(o, "buffer_used_bytes", s->buffer_used_bytes);
    put_number(o, "buffer_limit_bytes", s->buffer_limit_bytes);
    put_number(o, "log_lines_dropped", s->log_lines_dropped);
    return o;
}

json_t *cli_json_event(const Syncrep__Control__Event *e)
{
    json_t *o = json_object();

    put_number(o, "sequence", e->sequence);
    put_number(o, "wall_ms", e->wall_ms);
    put_text(o, "level", cli_level(e->level));
    put_text(o, "kind", e->kind);
    put_text(o, "object", e->object);
    put_text(o, "text", e->text);
    return o;
}
