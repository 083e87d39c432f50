/* diff.c - what changed between two configurations, and what of that may be applied while running. */
#include <string.h>

#include "base/assert.h"
#include "config/schema.h"

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool same_addresses(const struct sr_config_key *key, const struct sr_config *a, const struct sr_config *b)
{
    struct sr_config_address *const *list_a = (const void *)((const char *)a + key->offset);
    struct sr_config_address *const *list_b = (const void *)((const char *)b + key->offset);
    const size_t *n_a = (const void *)((const char *)a + key->count_offset);
    const size_t *n_b = (const void *)((const char *)b + key->count_offset);

    if (*n_a != *n_b)
        return false;
    for (size_t i = 0; i < *n_a; i++)
        if (!same_text((*list_a)[i].text, (*list_b)[i].text))
            return false;
    return true;
}

static bool same_pools(const struct sr_config *a, const struct sr_config *b)
{
    if (a->n_pools != b->n_pools)
        return false;
    for (size_t i = 0; i < a->n_pools; i++)
        if (!same_text(a->pools[i].name, b->pools[i].name) ||
            !same_text(a->pools[i].directory, b->pools[i].directory))
            return false;
    return true;
}

/* Bytes of a plain value of that kind; 0 for those that are compared otherwise. */
static size_t value_bytes(enum sr_config_kind kind)
{
    switch (kind) {
    case SR_KIND_UUID:
        return sizeof(struct sr_uuid);
    case SR_KIND_BOOL:
        return sizeof(bool);
    case SR_KIND_COUNT:
    case SR_KIND_DURATION:
    case SR_KIND_FACTOR:
        return sizeof(uint32_t);
    case SR_KIND_SIZE:
    case SR_KIND_RATE:
        return sizeof(uint64_t);
    case SR_KIND_LEVEL:
    case SR_KIND_FORMAT:
    case SR_KIND_ENGINE:
        return sizeof(int);
    default:
        return 0;
    }
}

static bool same_value(const struct sr_config_key *key, const struct sr_config *a, const struct sr_config *b)
{
    const char *field_a = (const char *)a + key->offset, *field_b = (const char *)b + key->offset;

    switch (key->kind) {
    case SR_KIND_SECTION:
        return true; /* its keys are compared */
    case SR_KIND_POOLS:
        return same_pools(a, b);
    case SR_KIND_LISTEN:
    case SR_KIND_NBD_LISTEN:
        return same_addresses(key, a, b);
    case SR_KIND_ADDRESS:
        return same_text(((const struct sr_config_address *)field_a)->text,
                         ((const struct sr_config_address *)field_b)->text);
    case SR_KIND_NAME:
    case SR_KIND_PATH:
    case SR_KIND_SOCKET:
    case SR_KIND_FILE:
        return same_text(*(char *const *)field_a, *(char *const *)field_b);
    default:
        return memcmp(field_a, field_b, value_bytes(key->kind)) == 0;
    }
}

void sr_config_diff_live(const struct sr_config *old, const struct sr_config *new, struct sr_config_diff *diff)
{
    memset(diff, 0, sizeof(*diff));
    for (size_t i = 0; i < sr_config_n_keys; i++) {
        const struct sr_config_key *key = &sr_config_keys[i];
        if (sr_config_key_in(key, "pools[]") || same_value(key, old, new))
            continue;
        if ((key->flags & SR_KEY_LIVE) != 0)
            diff->live[diff->n_live++] = key->path;
        else
            diff->restart[diff->n_restart++] = key->path;
    }
}

void sr_config_apply_live(struct sr_config *old, const struct sr_config *new)
{
    for (size_t i = 0; i < sr_config_n_keys; i++) {
        const struct sr_config_key *key = &sr_config_keys[i];
        if ((key->flags & SR_KEY_LIVE) == 0)
            continue;
        size_t bytes = value_bytes(key->kind);
        SR_ASSERT(bytes > 0); /* live keys are plain numbers and words */
        memcpy((char *)old + key->offset, (const char *)new + key->offset, bytes);
    }
}

const char *sr_config_names_join(const char *const *names, size_t n, char *out, size_t out_bytes)
{
    SR_ASSERT(out_bytes > 0);
    out[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(out);
        const char *between = i == 0 ? "" : i + 1 == n ? " and " : ", ";
        snprintf(out + length, out_bytes - length, "%s%s", between, names[i]);
    }
    return out;
}
