/* yaml_tree.c - reads YAML events from libfyaml into a tree.
 *
 * The event interface is used, not its document interface: nothing is resolved or expanded, and the bounds are
 * checked while the tree grows.  Bytes that are no text are refused before the library sees them, with their place.
 *
 * Positions come from byte offsets, because the library gives the place behind an opening quote and counts tabs.
 *
 * Invariants
 *   1. depth <= SR_YAML_DEPTH_MAX, nodes <= SR_YAML_NODES_MAX, whatever the input.
 *   2. A mapping has as many values as keys once parsing succeeded.
 */
#include "config/yaml_tree.h"

#include <libfyaml.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

struct parse {
    const char *bytes;
    size_t length;
    struct sr_config_faults *faults;
    struct sr_yaml_tree *tree;
    struct sr_yaml_node *stack[SR_YAML_DEPTH_MAX];
    size_t depth;
    size_t documents;
    size_t cursor; /* byte offset whose place is `at` */
    struct sr_config_at at;
};

/* ---- places ---- */

/* Places are asked for in rising order nearly always, so the walk goes on from the last one. */
static struct sr_config_at place(struct parse *parse, size_t offset)
{
    if (offset > parse->length)
        offset = parse->length;
    if (offset < parse->cursor || parse->at.line == 0) {
        parse->cursor = 0;
        parse->at = (struct sr_config_at){1, 1};
    }
    for (; parse->cursor < offset; parse->cursor++) {
        unsigned char c = (unsigned char)parse->bytes[parse->cursor];
        if (c == '\n')
            parse->at = (struct sr_config_at){parse->at.line + 1, 1};
        else if ((c & 0xc0) != 0x80) /* a character counts once, at its first byte */
            parse->at.column++;
    }
    return parse->at;
}

/* The library gives the place behind a sign like a quote: this is the sign itself. */
static size_t step_back(const struct parse *parse, size_t offset, char sign)
{
    return offset > 0 && offset <= parse->length && parse->bytes[offset - 1] == sign ? offset - 1 : offset;
}

static struct sr_config_at event_place(struct parse *parse, struct fy_event *event, struct sr_config_at otherwise)
{
    struct fy_token *token = fy_event_get_token(event);
    const struct fy_mark *mark = token != NULL ? fy_token_start_mark(token) : NULL;

    if (mark == NULL)
        mark = fy_event_start_mark(event);
    if (mark == NULL)
        return otherwise;
    size_t offset = mark->input_pos;
    if (event->type == FYET_SCALAR && token != NULL) {
        enum fy_scalar_style style = fy_token_scalar_style(token);
        if (style == FYSS_DOUBLE_QUOTED || style == FYSS_SINGLE_QUOTED)
            offset = step_back(parse, offset, style == FYSS_DOUBLE_QUOTED ? '"' : '\'');
    } else if (event->type == FYET_ALIAS) {
        offset = step_back(parse, offset, '*');
    }
    return place(parse, offset);
}

/* Of an anchor or a tag. */
static struct sr_config_at token_place(struct parse *parse, struct fy_token *token, char sign,
                                       struct sr_config_at otherwise)
{
    const struct fy_mark *mark = fy_token_start_mark(token);

    return mark != NULL ? place(parse, step_back(parse, mark->input_pos, sign)) : otherwise;
}

/* ---- bytes that cannot be a configuration ---- */

static bool utf8_continues(const unsigned char *at, size_t left, size_t n)
{
    if (left < n)
        return false;
    for (size_t i = 1; i < n; i++)
        if ((at[i] & 0xc0) != 0x80)
            return false;
    return true;
}

/* Bytes of the character at `at`, 0 if it is not UTF-8. */
static size_t utf8_length(const unsigned char *at, size_t left)
{
    size_t n = at[0] < 0x80                     ? 1
               : at[0] >= 0xc2 && at[0] <= 0xdf ? 2
               : at[0] >= 0xe0 && at[0] <= 0xef ? 3
               : at[0] >= 0xf0 && at[0] <= 0xf4 ? 4
                                                : 0;

    if (n == 0 || !utf8_continues(at, left, n))
        return 0;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) || (at[0] == 0xf0 && at[1] < 0x90) ||
        (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return n;
}

/* False, with a fault, if the bytes are no text or a tab indents a line (which YAML forbids, and which the library
 * reports somewhere else). */
static bool check_text(struct parse *parse)
{
    bool indent = true;

    for (size_t i = 0; i < parse->length;) {
        const unsigned char *at = (const unsigned char *)parse->bytes + i;
        size_t n = utf8_length(at, parse->length - i);
        if (n == 0) {
            sr_config_fault_add(parse->faults, place(parse, i),
                                "byte 0x%02x is not UTF-8: expected a text file in YAML", at[0]);
            return false;
        }
        if ((*at < 0x20 && *at != '\n' && *at != '\r' && *at != '\t') || *at == 0x7f) {
            sr_config_fault_add(parse->faults, place(parse, i),
                                "control character 0x%02x: expected a text file in YAML", at[0]);
            return false;
        }
        if (*at == '\t' && indent) {
            sr_config_fault_add(parse->faults, place(parse, i), "a tab cannot indent in YAML: expected spaces");
            return false;
        }
        indent = *at == '\n' || (indent && *at == ' ');
        i += n;
    }
    return true;
}

/* ---- the tree ---- */

static enum sr_error node_new(struct parse *parse, enum sr_yaml_type type, struct sr_config_at at,
                              struct sr_yaml_node **node)
{
    struct sr_yaml_tree *tree = parse->tree;

    if (tree->n_nodes == SR_YAML_NODES_MAX) {
        sr_config_fault_add(parse->faults, at, "too much content: expected at most %d values and keys",
                            SR_YAML_NODES_MAX);
        return SR_E_INVALID;
    }
    *node = calloc(1, sizeof(**node));
    if (*node == NULL)
        return SR_E_NO_MEMORY;
    (*node)->type = type;
    (*node)->at = at;
    (*node)->all = tree->all;
    tree->all = *node;
    tree->n_nodes++;
    return SR_OK;
}

static size_t count_children(const struct sr_yaml_node *node)
{
    size_t n = 0;

    for (const struct sr_yaml_node *child = node->first; child != NULL; child = child->next)
        n++;
    return n;
}

static void attach(struct parse *parse, struct sr_yaml_node *node)
{
    if (parse->depth == 0) {
        if (parse->tree->root == NULL)
            parse->tree->root = node;
        return;
    }
    struct sr_yaml_node *parent = parse->stack[parse->depth - 1];
    if (parent->type == SR_YAML_MAPPING && node->type != SR_YAML_SCALAR && node->type != SR_YAML_FAULTY &&
        count_children(parent) % 2 == 0) {
        sr_config_fault_add(parse->faults, node->at, "a key must be a name: expected \"key: value\"");
        node->type = SR_YAML_FAULTY;
    }
    if (parent->last == NULL)
        parent->first = node;
    else
        parent->last->next = node;
    parent->last = node;
}

/* Where something without a place of its own stands: at what came before it (a key, for a missing value). */
static struct sr_config_at here(const struct parse *parse)
{
    if (parse->depth == 0)
        return (struct sr_config_at){1, 1};
    const struct sr_yaml_node *parent = parse->stack[parse->depth - 1];
    return parent->last != NULL ? parent->last->at : parent->at;
}

static enum sr_error scalar_text(struct parse *parse, struct fy_event *event, struct sr_yaml_node *node)
{
    struct fy_token *token = fy_event_get_token(event);
    size_t length = 0;
    const char *text = token != NULL ? fy_token_get_text(token, &length) : NULL;

    node->plain = token == NULL || fy_token_scalar_style(token) == FYSS_PLAIN;
    if (text == NULL)
        length = 0;
    if (length == 0 && node->plain) {
        node->type = SR_YAML_EMPTY;
        return SR_OK;
    }
    if (length > SR_YAML_SCALAR_MAX_BYTES || (length > 0 && memchr(text, '\0', length) != NULL)) {
        sr_config_fault_add(parse->faults, node->at,
                            length > SR_YAML_SCALAR_MAX_BYTES ? "the value is too long: expected at most %d bytes"
                                                              : "the value contains a NUL character",
                            SR_YAML_SCALAR_MAX_BYTES);
        node->type = SR_YAML_FAULTY;
        return SR_OK;
    }
    node->text = length > 0 ? strndup(text, length) : strdup("");
    return node->text != NULL ? SR_OK : SR_E_NO_MEMORY;
}

/* Anchors and tags are not wanted; the value behind one is still looked at. */
static void refuse_decorations(struct parse *parse, struct fy_event *event, struct sr_config_at at)
{
    struct fy_token *anchor = fy_event_get_anchor_token(event), *tag = fy_event_get_tag_token(event);

    if (anchor != NULL)
        sr_config_fault_add(parse->faults, token_place(parse, anchor, '&', at),
                            "anchors (&name) are not used here: expected a plain value");
    if (tag != NULL)
        sr_config_fault_add(parse->faults, token_place(parse, tag, '!', at),
                            "tags (!name) are not used here: expected a plain value");
}

static enum sr_error open_collection(struct parse *parse, struct sr_yaml_node *node)
{
    if (parse->depth == SR_YAML_DEPTH_MAX) {
        sr_config_fault_add(parse->faults, node->at, "nested too deeply: expected at most %d levels",
                            SR_YAML_DEPTH_MAX);
        return SR_E_INVALID;
    }
    attach(parse, node);
    parse->stack[parse->depth++] = node;
    return SR_OK;
}

static enum sr_error handle_value(struct parse *parse, struct fy_event *event)
{
    enum sr_yaml_type type = event->type == FYET_SCALAR           ? SR_YAML_SCALAR
                             : event->type == FYET_SEQUENCE_START ? SR_YAML_LIST
                             : event->type == FYET_MAPPING_START  ? SR_YAML_MAPPING
                                                                  : SR_YAML_FAULTY;
    struct sr_config_at at = event_place(parse, event, here(parse));
    struct sr_yaml_node *node;

    enum sr_error error = node_new(parse, type, at, &node);
    if (error != SR_OK)
        return error;
    if (type == SR_YAML_FAULTY) {
        sr_config_fault_add(parse->faults, at, "aliases (*name) are not used here: expected a plain value");
        attach(parse, node);
        return SR_OK;
    }
    refuse_decorations(parse, event, at);
    if (type != SR_YAML_SCALAR)
        return open_collection(parse, node);
    error = scalar_text(parse, event, node);
    if (error == SR_OK)
        attach(parse, node);
    return error;
}

static enum sr_error handle_event(struct parse *parse, struct fy_event *event)
{
    switch (event->type) {
    case FYET_DOCUMENT_START:
        if (++parse->documents <= 1)
            return SR_OK;
        sr_config_fault_add(parse->faults, event_place(parse, event, (struct sr_config_at){0, 0}),
                            "a second document begins here (---): expected one");
        return SR_E_INVALID;
    case FYET_SCALAR:
    case FYET_ALIAS:
    case FYET_SEQUENCE_START:
    case FYET_MAPPING_START:
        return handle_value(parse, event);
    case FYET_SEQUENCE_END:
    case FYET_MAPPING_END:
        SR_ASSERT(parse->depth > 0);
        parse->depth--;
        return SR_OK;
    default:
        return SR_OK;
    }
}

/* ---- syntax errors ---- */

/* The most common slip: an IPv6 address in brackets without quotes, which is a list to YAML. */
static bool looks_like_ipv6(const struct parse *parse, int line)
{
    const char *at = parse->bytes, *end = parse->bytes + parse->length;

    for (int i = 1; i < line && at < end; i++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL)
            return false;
        at = newline + 1;
    }
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    size_t length = (size_t)((newline != NULL ? newline : end) - at);
    const char *bracket = memmem(at, length, "]:", 2);
    return bracket != NULL && memmem(at, (size_t)(bracket - at), "[", 1) != NULL;
}

static void add_syntax_faults(struct parse *parse, struct fy_diag *diag)
{
    size_t before = parse->faults->n;
    struct fy_diag_error *error;
    void *iterator = NULL;

    while ((error = fy_diag_errors_iterate(diag, &iterator)) != NULL) {
        struct sr_config_at at = {error->line, error->column};
        if (at.line < 1 || at.column < 1)
            at = (struct sr_config_at){1, 1};
        bool ipv6 = looks_like_ipv6(parse, at.line);
        sr_config_fault_add(parse->faults, at, "not YAML: %s%s", error->msg != NULL ? error->msg : "syntax error",
                            ipv6 ? " (write an IPv6 address in quotes: \"[::1]:7700\")" : "");
    }
    if (parse->faults->n == before && !parse->faults->more)
        sr_config_fault_add(parse->faults, here(parse), "not YAML: the parser gave up here");
}

static enum sr_error read_events(struct parse *parse, struct fy_parser *parser, struct fy_diag *diag)
{
    enum sr_error error = SR_OK;
    struct fy_event *event;

    while (error == SR_OK && (event = fy_parser_parse(parser)) != NULL) {
        error = handle_event(parse, event);
        fy_parser_event_free(parser, event);
    }
    if (error == SR_OK && fy_parser_get_stream_error(parser)) {
        add_syntax_faults(parse, diag);
        error = SR_E_INVALID;
    }
    return error;
}

enum sr_error sr_yaml_parse(const char *bytes, size_t length, struct sr_yaml_tree *tree,
                            struct sr_config_faults *faults)
{
    struct parse parse = {.bytes = bytes, .length = length, .faults = faults, .tree = tree};
    enum sr_error error = SR_E_NO_MEMORY;
    struct fy_diag_cfg diag_cfg;

    memset(tree, 0, sizeof(*tree));
    if (!check_text(&parse))
        return SR_E_INVALID;
    if (length == 0)
        return SR_OK;

    fy_diag_cfg_default(&diag_cfg);
    diag_cfg.fp = NULL;
    struct fy_diag *diag = fy_diag_create(&diag_cfg);
    if (diag == NULL)
        return error;
    fy_diag_set_collect_errors(diag, true);
    struct fy_parse_cfg cfg = {.flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG | FYPCF_JSON_NONE, .diag = diag};
    struct fy_parser *parser = fy_parser_create(&cfg);
    if (parser == NULL)
        goto fail_parser;
    if (fy_parser_set_string(parser, bytes, length) != 0)
        goto fail_input;
    error = read_events(&parse, parser, diag);
fail_input:
    fy_parser_destroy(parser);
fail_parser:
    fy_diag_destroy(diag);
    return error;
}

void sr_yaml_free(struct sr_yaml_tree *tree)
{
    while (tree->all != NULL) {
        struct sr_yaml_node *node = tree->all;
        tree->all = node->all;
        free(node->text);
        free(node);
    }
    memset(tree, 0, sizeof(*tree));
}
