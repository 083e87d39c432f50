/* decode.c - walks the tree along the table of keys.
 *
 * Goes on after each fault, so that one run shows them all; a value that has one keeps its default and is left out of
 * the checks between values.
 */
#include "config/decode.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static void walk_mapping(struct sr_config_decode *decode, const char *section, const struct sr_yaml_node *node,
                         struct sr_config_at section_at, void *base);

static size_t index_of(const struct sr_config_key *key)
{
    return (size_t)(key - sr_config_keys);
}

struct sr_config_at sr_config_decode_at(const struct sr_config_decode *decode, const char *path)
{
    for (size_t i = 0; i < sr_config_n_keys; i++)
        if (strcmp(sr_config_keys[i].path, path) == 0)
            return decode->at[i];
    SR_UNREACHABLE();
}

static const char *type_name(const struct sr_yaml_node *node)
{
    switch (node->type) {
    case SR_YAML_EMPTY:
        return "nothing";
    case SR_YAML_SCALAR:
        return "a single value";
    case SR_YAML_LIST:
        return "a list";
    case SR_YAML_MAPPING:
        return "a mapping";
    case SR_YAML_FAULTY:
        break;
    }
    return "a faulty value";
}

/* "null" and "~" are how YAML writes nothing. */
static bool is_empty(const struct sr_yaml_node *node)
{
    return node->type == SR_YAML_EMPTY || (node->type == SR_YAML_SCALAR && node->plain &&
                                           (strcmp(node->text, "null") == 0 || strcmp(node->text, "~") == 0));
}

static void fault_type(struct sr_config_decode *decode, const char *path, const struct sr_yaml_node *node,
                       const char *expected)
{
    if (node->type == SR_YAML_FAULTY)
        return; /* it was reported */
    if (is_empty(node))
        sr_config_fault_add(decode->faults, node->at, "%s: the value is missing: expected %s", path, expected);
    else
        sr_config_fault_add(decode->faults, node->at, "%s: this is %s: expected %s", path, type_name(node), expected);
}

static const char *expected_of(enum sr_config_kind kind)
{
    switch (kind) {
    case SR_KIND_NAME:
        return "a name";
    case SR_KIND_UUID:
        return "a UUID";
    case SR_KIND_BOOL:
        return "true or false";
    case SR_KIND_COUNT:
        return "a whole number";
    case SR_KIND_SIZE:
        return "a size like 512MiB";
    case SR_KIND_RATE:
        return "bytes per second like 4MiB";
    case SR_KIND_DURATION:
        return "a duration like 5s";
    case SR_KIND_FACTOR:
        return "a factor like 2.0";
    case SR_KIND_PATH:
    case SR_KIND_SOCKET:
    case SR_KIND_FILE:
        return "an absolute path";
    case SR_KIND_ADDRESS:
        return "host:port";
    case SR_KIND_LISTEN:
        return "host:port or a list of them";
    case SR_KIND_NBD_LISTEN:
        return "host:port or unix:/path, or a list of them";
    case SR_KIND_LEVEL:
    case SR_KIND_FORMAT:
    case SR_KIND_ENGINE:
        return "a word";
    case SR_KIND_SECTION:
        return "a mapping of further keys";
    case SR_KIND_POOLS:
        return "a list of pools, each with name and directory";
    }
    return "something else";
}

/* ---- lists ---- */

static void *grow(struct sr_config_decode *decode, void *list, size_t n, size_t bytes)
{
    void *bigger = realloc(list, (n + 1) * bytes);

    if (bigger == NULL)
        decode->no_memory = true;
    else
        memset((char *)bigger + n * bytes, 0, bytes);
    return bigger;
}

static void add_address(struct sr_config_decode *decode, const struct sr_config_key *key,
                        const struct sr_yaml_node *node, void *base)
{
    struct sr_config_address **list = (struct sr_config_address **)((char *)base + key->offset);
    size_t *n = (size_t *)((char *)base + key->count_offset);
    struct sr_config_at *places = key->kind == SR_KIND_LISTEN ? decode->listen_at : decode->nbd_listen_at;

    if (node->type != SR_YAML_SCALAR || is_empty(node)) {
        fault_type(decode, key->path, node, key->kind == SR_KIND_LISTEN ? "host:port" : "host:port or unix:/path");
        return;
    }
    if (*n == SR_CONFIG_LISTEN_MAX) {
        sr_config_fault_add(decode->faults, node->at, "%s: too many addresses: expected at most %d", key->path,
                            SR_CONFIG_LISTEN_MAX);
        return;
    }
    struct sr_config_address *bigger = grow(decode, *list, *n, sizeof(**list));
    if (bigger == NULL)
        return;
    *list = bigger;
    if (!sr_config_decode_scalar(decode, key, node->text, node->plain, node->at, &bigger[*n]))
        return;
    places[*n] = node->at;
    ++*n;
}

static void decode_listen(struct sr_config_decode *decode, const struct sr_config_key *key,
                          const struct sr_yaml_node *node, void *base)
{
    if (node->type == SR_YAML_SCALAR && !is_empty(node)) {
        add_address(decode, key, node, base);
        return;
    }
    if (node->type != SR_YAML_LIST || node->first == NULL) {
        if (node->type == SR_YAML_LIST)
            sr_config_fault_add(decode->faults, node->at, "%s: the list is empty: expected %s", key->path,
                                expected_of(key->kind));
        else
            fault_type(decode, key->path, node, expected_of(key->kind));
        return;
    }
    size_t seen = 0;
    for (const struct sr_yaml_node *child = node->first; child != NULL && seen <= SR_CONFIG_LISTEN_MAX;
         child = child->next, seen++)
        add_address(decode, key, child, base);
}

static void add_pool(struct sr_config_decode *decode, const struct sr_config_key *key,
                     const struct sr_yaml_node *node)
{
    struct sr_config *config = decode->config;
    size_t name = index_of(sr_config_key_find("pools[]", "name"));
    size_t directory = index_of(sr_config_key_find("pools[]", "directory"));

    if (node->type != SR_YAML_MAPPING) {
        fault_type(decode, key->path, node, "a pool with name and directory");
        return;
    }
    if (config->n_pools == SR_CONFIG_POOLS_MAX) {
        sr_config_fault_add(decode->faults, node->at, "%s: too many pools: expected at most %d", key->path,
                            SR_CONFIG_POOLS_MAX);
        return;
    }
    struct sr_config_pool *bigger = grow(decode, config->pools, config->n_pools, sizeof(*bigger));
    if (bigger == NULL)
        return;
    config->pools = bigger;
    size_t i = config->n_pools++;
    decode->at[name] = decode->at[directory] = (struct sr_config_at){0, 0};
    walk_mapping(decode, "pools[]", node, node->at, &bigger[i]);
    decode->pool_name_at[i] = decode->at[name];
    decode->pool_directory_at[i] = decode->at[directory];
}

static void decode_pools(struct sr_config_decode *decode, const struct sr_config_key *key,
                         const struct sr_yaml_node *node)
{
    if (node->type != SR_YAML_LIST) {
        fault_type(decode, key->path, node, expected_of(key->kind));
        return;
    }
    if (node->first == NULL)
        sr_config_fault_add(decode->faults, node->at, "%s: the list is empty: expected at least one pool", key->path);
    size_t seen = 0;
    for (const struct sr_yaml_node *child = node->first; child != NULL && seen <= SR_CONFIG_POOLS_MAX;
         child = child->next, seen++)
        add_pool(decode, key, child);
}

/* ---- mappings ---- */

static void decode_value(struct sr_config_decode *decode, const struct sr_config_key *key,
                         const struct sr_yaml_node *name, const struct sr_yaml_node *node, void *base)
{
    struct sr_config_at *at = &decode->at[index_of(key)];

    decode->key_at[index_of(key)] = name->at;
    switch (key->kind) {
    case SR_KIND_SECTION:
        if (node->type != SR_YAML_MAPPING) {
            fault_type(decode, key->path, node, expected_of(key->kind));
            return;
        }
        *at = node->at;
        walk_mapping(decode, key->path, node, name->at, base);
        return;
    case SR_KIND_LISTEN:
    case SR_KIND_NBD_LISTEN:
        *at = node->at;
        decode_listen(decode, key, node, base);
        return;
    case SR_KIND_POOLS:
        *at = node->at;
        decode_pools(decode, key, node);
        return;
    default:
        break;
    }
    if (node->type != SR_YAML_SCALAR || is_empty(node))
        fault_type(decode, key->path, node, expected_of(key->kind));
    else if (sr_config_decode_scalar(decode, key, node->text, node->plain, node->at, base))
        *at = node->at;
}

static void fault_unknown(struct sr_config_decode *decode, const char *section, const struct sr_yaml_node *name)
{
    char quoted[SR_CONFIG_QUOTE_BYTES], hint[400];

    sr_config_key_suggest(section, name->text, hint, sizeof(hint));
    if (section[0] == '\0')
        sr_config_fault_add(decode->faults, name->at, "unknown key %s: %s", sr_config_quote(name->text, quoted),
                            hint);
    else
        sr_config_fault_add(decode->faults, name->at, "%s: unknown key %s: %s", section,
                            sr_config_quote(name->text, quoted), hint);
}

static void walk_mapping(struct sr_config_decode *decode, const char *section, const struct sr_yaml_node *node,
                         struct sr_config_at section_at, void *base)
{
    int seen_line[SR_CONFIG_KEYS_MAX] = {0};

    for (const struct sr_yaml_node *name = node->first; name != NULL; name = name->next->next) {
        SR_ASSERT(name->next != NULL);
        if (name->type != SR_YAML_SCALAR)
            continue; /* it was reported */
        const struct sr_config_key *key = sr_config_key_find(section, name->text);
        if (key == NULL) {
            fault_unknown(decode, section, name);
            continue;
        }
        int *line = &seen_line[index_of(key)];
        if (*line != 0) {
            sr_config_fault_add(decode->faults, name->at, "%s: given twice, first in line %d: expected once",
                                key->path, *line);
            continue;
        }
        *line = name->at.line;
        decode_value(decode, key, name, name->next, base);
    }
    for (size_t i = 0; i < sr_config_n_keys; i++) {
        const struct sr_config_key *key = &sr_config_keys[i];
        if ((key->flags & SR_KEY_REQUIRED) != 0 && sr_config_key_in(key, section) && seen_line[i] == 0)
            sr_config_fault_add(decode->faults, section_at, "%s: the key is missing: expected %s", key->path,
                                expected_of(key->kind));
    }
}

bool sr_config_decode(struct sr_config_decode *decode, const struct sr_yaml_node *root)
{
    static const struct sr_yaml_node nothing = {.type = SR_YAML_MAPPING, .at = {1, 1}};
    struct sr_config_at top = {1, 1};

    for (size_t i = 0; i < sr_config_n_keys && !decode->no_memory; i++) {
        const struct sr_config_key *key = &sr_config_keys[i];
        if (key->text == NULL)
            continue;
        bool good = sr_config_decode_scalar(decode, key, key->text, true, top, decode->config);
        SR_ASSERT(good || decode->no_memory);
    }
    if (root == NULL || root->type == SR_YAML_EMPTY)
        root = &nothing;
    if (root->type != SR_YAML_MAPPING) {
        fault_type(decode, "the file", root, "keys and values, like \"site: site-a\"");
        return false;
    }
    walk_mapping(decode, "", root, top, decode->config);
    return true;
}
