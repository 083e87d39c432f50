/* suggest.c - what an unknown key may have been meant to be. */
#include "config/schema.h"

#include <ctype.h>
#include <string.h>

#define NAME_MAX_BYTES 40 /* longer names are no typing slip of a key */
#define DISTANCE_MAX   2

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned least = a < b ? a : b;

    return least < c ? least : c;
}

static bool same(char a, char b)
{
    return a == b || tolower((unsigned char)a) == tolower((unsigned char)b) || (a == '-' && b == '_');
}

/* Steps (insert, delete, replace, swap neighbours) from a to b; both at most NAME_MAX_BYTES. */
static unsigned distance(const char *a, const char *b)
{
    unsigned rows[3][NAME_MAX_BYTES + 1];
    unsigned *older = rows[0], *before = rows[1], *row = rows[2];
    size_t n_a = strlen(a), n_b = strlen(b);

    for (size_t j = 0; j <= n_b; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= n_a; i++) {
        unsigned *spare = older;
        older = before;
        before = row;
        row = spare;
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= n_b; j++) {
            row[j] = min3(before[j] + 1, row[j - 1] + 1, before[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1));
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]) && older[j - 2] + 1 < row[j])
                row[j] = older[j - 2] + 1;
        }
    }
    return row[n_b];
}

static const struct sr_config_key *nearest(const char *section, const char *name)
{
    const struct sr_config_key *best = NULL;
    unsigned best_distance = DISTANCE_MAX + 1;

    if (strlen(name) > NAME_MAX_BYTES)
        return NULL;
    for (size_t i = 0; i < sr_config_n_keys; i++) {
        const struct sr_config_key *key = &sr_config_keys[i];
        const char *leaf = sr_config_key_leaf(key);
        if (!sr_config_key_in(key, section))
            continue;
        unsigned steps = distance(name, leaf);
        if (steps < best_distance && steps < strlen(leaf)) {
            best_distance = steps;
            best = key;
        }
    }
    return best;
}

/* The only key of that name in another section. */
static const struct sr_config_key *elsewhere(const char *name)
{
    const struct sr_config_key *found = NULL;

    for (size_t i = 0; i < sr_config_n_keys; i++) {
        const struct sr_config_key *key = &sr_config_keys[i];
        if (strcmp(sr_config_key_leaf(key), name) != 0)
            continue;
        if (found != NULL)
            return NULL;
        found = key;
    }
    return found;
}

void sr_config_key_suggest(const char *section, const char *name, char *out, size_t out_bytes)
{
    const struct sr_config_key *key = nearest(section, name);
    size_t length;

    if (key != NULL) {
        snprintf(out, out_bytes, "did you mean \"%s\"?", sr_config_key_leaf(key));
        return;
    }
    key = elsewhere(name);
    if (key != NULL) {
        snprintf(out, out_bytes, "did you mean %s?", key->path);
        return;
    }
    snprintf(out, out_bytes, "expected one of");
    bool first = true;
    for (size_t i = 0; i < sr_config_n_keys; i++) {
        if (!sr_config_key_in(&sr_config_keys[i], section))
            continue;
        length = strlen(out);
        snprintf(out + length, out_bytes - length, "%s %s", first ? "" : ",", sr_config_key_leaf(&sr_config_keys[i]));
        first = false;
    }
}
