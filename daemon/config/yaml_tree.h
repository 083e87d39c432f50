/* yaml_tree.h - inside config/: YAML bytes become a small bounded tree that knows where everything stood.
 *
 * Only plain data: anchors, aliases, tags, several documents and keys that are not text are faults.  Hence no loop
 * and no expansion is possible.
 */
#ifndef SR_CONFIG_YAML_TREE_H
#define SR_CONFIG_YAML_TREE_H

#include "config/faults.h"

#define SR_YAML_DEPTH_MAX 8
#define SR_YAML_NODES_MAX 4096
#define SR_YAML_SCALAR_MAX_BYTES 4096

enum sr_yaml_type {
    SR_YAML_EMPTY,   /* no value was given */
    SR_YAML_SCALAR,
    SR_YAML_LIST,
    SR_YAML_MAPPING, /* children: key, value, key, value ...; an even number */
    SR_YAML_FAULTY   /* a fault was added for it already */
};

struct sr_yaml_node {
    enum sr_yaml_type type;
    struct sr_config_at at; /* of a quoted text: its quote */
    char *text;             /* SCALAR: UTF-8, no NUL inside */
    bool plain;             /* SCALAR: not in quotes */
    struct sr_yaml_node *first, *last; /* children */
    struct sr_yaml_node *next;         /* sibling */
    struct sr_yaml_node *all;          /* every node of the tree, for freeing */
};

struct sr_yaml_tree {
    struct sr_yaml_node *root; /* NULL: the file has no content */
    struct sr_yaml_node *all;
    size_t n_nodes;
};

/* SR_OK with faults possible (FAULTY nodes); SR_E_INVALID: not YAML at all or over a bound, with a fault added;
 * SR_E_NO_MEMORY.  Free the tree in every case. */
enum sr_error sr_yaml_parse(const char *bytes, size_t length, struct sr_yaml_tree *tree,
                            struct sr_config_faults *faults);

void sr_yaml_free(struct sr_yaml_tree *tree);

#endif
