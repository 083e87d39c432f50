/* schema.h - inside config/: the table of every key. */
#ifndef SR_CONFIG_SCHEMA_H
#define SR_CONFIG_SCHEMA_H

#include "config/config.h"

enum sr_config_kind {
    SR_KIND_SECTION,   /* a mapping of further keys */
    SR_KIND_NAME,      /* char *: sr_name_valid */
    SR_KIND_UUID,      /* struct sr_uuid, not none */
    SR_KIND_BOOL,      /* bool: true or false */
    SR_KIND_COUNT,     /* uint32_t: whole number */
    SR_KIND_SIZE,      /* uint64_t: bytes */
    SR_KIND_RATE,      /* uint64_t: bytes per second, "/s" optional */
    SR_KIND_DURATION,  /* uint32_t: ms */
    SR_KIND_FACTOR,    /* uint32_t: percent; min and max too */
    SR_KIND_PATH,      /* char *: absolute path of a directory */
    SR_KIND_SOCKET,    /* char *: absolute path of a Unix socket */
    SR_KIND_FILE,      /* char *: absolute path of a file to read */
    SR_KIND_ADDRESS,   /* struct sr_config_address, TCP */
    SR_KIND_LISTEN,    /* one or a list, TCP: struct sr_config_address *, its count in `count_offset` */
    SR_KIND_NBD_LISTEN, /* the same, Unix sockets too */
    SR_KIND_POOLS,     /* list of mappings with the keys under "pools[]" */
    SR_KIND_LEVEL,     /* enum sr_log_level */
    SR_KIND_FORMAT,    /* enum sr_log_format */
    SR_KIND_ENGINE     /* enum sr_config_engine */
};

#define SR_KEY_REQUIRED 1u /* within its section, if that is there */
#define SR_KEY_LIVE 2u     /* may change while running */

struct sr_config_key {
    const char *path; /* "limits.hot_regions"; "pools[].name" is relative to a struct sr_config_pool */
    enum sr_config_kind kind;
    unsigned flags;
    size_t offset, count_offset;
    uint64_t min, max;
    const char *text; /* default as one would write it; NULL: none */
};

extern const struct sr_config_key sr_config_keys[];
extern const size_t sr_config_n_keys;

/* The key `name` of section `section` ("" is the top level); NULL if there is none. */
const struct sr_config_key *sr_config_key_find(const char *section, const char *name);

/* Is the key directly in that section? */
bool sr_config_key_in(const struct sr_config_key *key, const char *section);

/* The last part of its path. */
const char *sr_config_key_leaf(const struct sr_config_key *key);

/* For a name that does not exist in the section: what may have been meant, as a clause for the message. */
void sr_config_key_suggest(const char *section, const char *name, char *out, size_t out_bytes);

/* The words of LEVEL, FORMAT and ENGINE. */
struct sr_config_word {
    const char *word;
    int value;
};
const struct sr_config_word *sr_config_words(enum sr_config_kind kind); /* ends with word NULL */

#endif
