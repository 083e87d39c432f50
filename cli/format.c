/* format.c - numbers, times and tables for people. */
#include "cli.h"

#include <libsmartcols.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/assert.h"
#include "base/size.h"
#include "control/wire.h"

static void clean_field(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    char *member = (char *)message + field->offset;

    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        size_t n = *(const size_t *)(const void *)((const char *)message + field->quantifier_offset);
        void **items = *(void ***)(void *)member;
        for (size_t i = 0; i < n; i++) {
            if (field->type == PROTOBUF_C_TYPE_MESSAGE)
                cli_clean_message(items[i]);
            else if (field->type == PROTOBUF_C_TYPE_STRING)
                sr_control_text_clean(items[i]);
        }
        return;
    }
    /* Of a oneof only the member that is set exists. */
    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
        *(const uint32_t *)(const void *)((const char *)message + field->quantifier_offset) != field->id)
        return;
    void *value = *(void **)(void *)member;
    if (value && field->type == PROTOBUF_C_TYPE_MESSAGE)
        cli_clean_message(value);
    else if (value && field->type == PROTOBUF_C_TYPE_STRING)
        sr_control_text_clean(value);
}

/* The schema has no recursion, so this ends. */
void cli_clean_message(ProtobufCMessage *message)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        if (field->type == PROTOBUF_C_TYPE_MESSAGE || field->type == PROTOBUF_C_TYPE_STRING)
            clean_field(message, field);
    }
}

const char *cli_or_dash(const char *text)
{
    return text && text[0] ? text : "-";
}

const char *cli_ago(uint64_t wall_ms, char *text, size_t bytes)
{
    char duration[SR_SIZE_TEXT_BYTES];
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    uint64_t now = (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
    uint64_t ms = now > wall_ms ? now - wall_ms : 0;
    if (wall_ms == 0)
        snprintf(text, bytes, "-");
    else if (ms < 1000)
        snprintf(text, bytes, "less than a second");
    else
        snprintf(text, bytes, "%s", sr_duration_format(ms / 1000 * 1000, duration));
    return text;
}

const char *cli_percent(const Syncrep__Control__Resync *resync, char *text, size_t bytes)
{
    if (!resync || !resync->running)
        snprintf(text, bytes, "-");
    else if (resync->total_blocks == 0)
        snprintf(text, bytes, "0%%");
    else
        /* Never "100%" before it is finished. */
        snprintf(text, bytes, "%u%%",
                 (unsigned)(resync->done_blocks >= resync->total_blocks
                                ? 99
                                : (double)resync->done_blocks * 100 / (double)resync->total_blocks));
    return text;
}

/* ---- tables ---- */

struct cli_table {
    struct libscols_table *scols;
    size_t columns, rows;
};

struct cli_table *cli_table_new(const char *const *headings, size_t n)
{
    struct cli_table *table = calloc(1, sizeof(*table));

    scols_init_debug(0);
    if (table)
        table->scols = scols_new_table();
    if (!table || !table->scols) {
        fputs("syncrepctl: out of memory\n", stderr);
        exit(CLI_REFUSED);
    }
    table->columns = n;
    for (size_t i = 0; i < n; i++) {
        bool right = headings[i][0] == '>';
        int flags = right ? SCOLS_FL_RIGHT : i == n - 1 ? SCOLS_FL_WRAP : 0;
        scols_table_new_column(table->scols, headings[i] + (right ? 1 : 0), 0, flags);
    }
    return table;
}

void cli_table_row(struct cli_table *table, const char *const *cells)
{
    struct libscols_line *line = scols_table_new_line(table->scols, NULL);

    for (size_t i = 0; line && i < table->columns; i++)
        scols_line_set_data(line, i, cli_or_dash(cells[i]));
    table->rows++;
}

void cli_table_print(struct cli_table *table, const char *if_empty)
{
    if (table->rows == 0)
        puts(if_empty);
    else
        scols_print_table(table->scols);
    scols_unref_table(table->scols);
    free(table);
}
