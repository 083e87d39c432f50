/* faults.c - the bounded list of faults of one file. */
#include "config/faults.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 512

static void add(struct sr_config_faults *faults, struct sr_config_at at, const char *format, va_list args)
{
    char text[TEXT_BYTES];

    if (faults->n == SR_CONFIG_FAULTS_MAX) {
        faults->more = true;
        return;
    }
    vsnprintf(text, sizeof(text), format, args);
    if (faults->list == NULL)
        faults->list = calloc(SR_CONFIG_FAULTS_MAX, sizeof(*faults->list));
    char *copy = strdup(text);
    if (faults->list == NULL || copy == NULL) {
        free(copy);
        faults->more = true;
        return;
    }
    faults->list[faults->n++] = (struct sr_config_fault){.line = at.line, .column = at.column, .text = copy};
}

void sr_config_fault_add(struct sr_config_faults *faults, struct sr_config_at at, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add(faults, at, format, args);
    va_end(args);
}

void sr_config_fault(struct sr_config_faults *faults, const char *file, const struct sr_config_place *place,
                     const char *format, ...)
{
    va_list args;

    if (faults->file == NULL)
        faults->file = strdup(file);
    va_start(args, format);
    add(faults, (struct sr_config_at){place->line, place->column}, format, args);
    va_end(args);
    sr_config_faults_sort(faults);
}

static bool after(const struct sr_config_fault *a, const struct sr_config_fault *b)
{
    return a->line != b->line ? a->line > b->line : a->column > b->column;
}

void sr_config_faults_sort(struct sr_config_faults *faults)
{
    for (size_t i = 1; i < faults->n; i++) { /* at most 100: insertion is stable and enough */
        struct sr_config_fault moved = faults->list[i];
        size_t at = i;
        for (; at > 0 && after(&faults->list[at - 1], &moved); at--)
            faults->list[at] = faults->list[at - 1];
        faults->list[at] = moved;
    }
}

void sr_config_faults_free(struct sr_config_faults *faults)
{
    for (size_t i = 0; i < faults->n; i++)
        free(faults->list[i].text);
    free(faults->list);
    free(faults->file);
    memset(faults, 0, sizeof(*faults));
}

const char *sr_config_fault_format(const struct sr_config_faults *faults, size_t index, char *out, size_t out_bytes)
{
    const char *file = faults->file != NULL ? faults->file : "configuration";
    const struct sr_config_fault *fault = &faults->list[index];

    if (fault->line == 0)
        snprintf(out, out_bytes, "%s: %s", file, fault->text);
    else
        snprintf(out, out_bytes, "%s:%d:%d: %s", file, fault->line, fault->column, fault->text);
    return out;
}

void sr_config_faults_print(const struct sr_config_faults *faults, FILE *stream)
{
    char line[TEXT_BYTES + 4096];

    for (size_t i = 0; i < faults->n; i++)
        fprintf(stream, "%s\n", sr_config_fault_format(faults, i, line, sizeof(line)));
    if (faults->more)
        fprintf(stream, "%s: there are more faults than shown\n",
                faults->file != NULL ? faults->file : "configuration");
}

const char *sr_config_quote(const char *text, char out[SR_CONFIG_QUOTE_BYTES])
{
    size_t at = 0;

    out[at++] = '"';
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (at + 4 + sizeof("...\"") > SR_CONFIG_QUOTE_BYTES) {
            memcpy(out + at, "...", 3);
            at += 3;
            break;
        }
        if (c >= 0x20 && c < 0x7f)
            out[at++] = (char)c;
        else
            at += (size_t)snprintf(out + at, 5, "\\x%02x", c);
    }
    out[at++] = '"';
    out[at] = '\0';
    return out;
}
