/* decode.h - inside config/: from the tree to the struct, keeping where each value stood. */
#ifndef SR_CONFIG_DECODE_H
#define SR_CONFIG_DECODE_H

#include "config/schema.h"
#include "config/yaml_tree.h"

struct sr_config_decode {
    struct sr_config *config;
    struct sr_config_faults *faults;
    bool no_memory;
    struct sr_config_at at[SR_CONFIG_KEYS_MAX];     /* by index in the table: its value; 0:0 if not given */
    struct sr_config_at key_at[SR_CONFIG_KEYS_MAX]; /* its key */
    struct sr_config_at listen_at[SR_CONFIG_LISTEN_MAX], nbd_listen_at[SR_CONFIG_LISTEN_MAX];
    struct sr_config_at pool_name_at[SR_CONFIG_POOLS_MAX], pool_directory_at[SR_CONFIG_POOLS_MAX];
};

/* Fills the defaults in, then what the file says.  root may be NULL.  False: that is no configuration at all (a fault
 * was added), so there is nothing to check further. */
bool sr_config_decode(struct sr_config_decode *decode, const struct sr_yaml_node *root);

/* Where the value of a key stood, by its path. */
struct sr_config_at sr_config_decode_at(const struct sr_config_decode *decode, const char *path);

/* decode_value.c: one value without children of that kind into base + key->offset.  False: a fault was added. */
bool sr_config_decode_scalar(struct sr_config_decode *decode, const struct sr_config_key *key, const char *text,
                             bool plain, struct sr_config_at at, void *base);

/* check.c: faults that concern several values; with check_files the file system too. */
void sr_config_check(struct sr_config_decode *decode, bool check_files);

#endif
