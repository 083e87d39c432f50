/* fault.c - injected disk faults: reads the rules, counts, decides.  The format is in fault.h. */
#include "store/fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define RULES_MAX  64
#define LINE_BYTES 1024

struct rule {
    char suffix[256];
    unsigned ops;
    int64_t result;
    bool cut_short;
    uint32_t delay_ms;
    uint64_t after, count;
    bool has_offset;
    uint64_t offset;
    uint64_t seen;
};

static struct {
    atomic_bool on;
    pthread_mutex_t mutex;
    char path[4096];
    bool read_once;
    struct timespec mtime;
    off_t size;
    ino_t inode;
    unsigned n;
    struct rule rules[RULES_MAX];
} faults = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static const struct {
    const char *name;
    int64_t result;
} errors[] = {
    {"EIO", -EIO},       {"ENOSPC", -ENOSPC}, {"EDQUOT", -EDQUOT}, {"EOPNOTSUPP", -EOPNOTSUPP},
    {"ENOMEM", -ENOMEM}, {"EROFS", -EROFS},   {"ENXIO", -ENXIO},   {"ENODEV", -ENODEV},
    {"EINVAL", -EINVAL}, {"EAGAIN", -EAGAIN}, {"EFBIG", -EFBIG},   {"zero", 0},
};

static const struct {
    const char *name;
    unsigned ops;
} ops[] = {
    {"read", SR_FAULT_READ},   {"write", SR_FAULT_WRITE}, {"zero", SR_FAULT_ZERO},
    {"flush", SR_FAULT_FLUSH}, {"open", SR_FAULT_OPEN},   {"any", ~0u},
};

void sr_fault_init(void)
{
    const char *path = getenv("SYNCREP_FAULT_FILE");

    pthread_mutex_lock(&faults.mutex);
    faults.n = 0;
    faults.read_once = false;
    snprintf(faults.path, sizeof(faults.path), "%s", path ? path : "");
    atomic_store(&faults.on, faults.path[0] != 0);
    pthread_mutex_unlock(&faults.mutex);
}

static bool parse_number(const char *text, uint64_t *number)
{
    char *end;

    errno = 0;
    *number = strtoull(text, &end, 0);
    return errno == 0 && end != text && *end == 0 && text[0] != '-';
}

static bool parse_error(const char *text, struct rule *rule)
{
    if (strcmp(text, "short") == 0) {
        rule->cut_short = true;
        return true;
    }
    for (unsigned i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (strcmp(text, errors[i].name) == 0) {
            rule->result = errors[i].result;
            return true;
        }
    return false;
}

static bool parse_ops(const char *text, struct rule *rule)
{
    for (unsigned i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (strcmp(text, ops[i].name) == 0) {
            rule->ops = ops[i].ops;
            return true;
        }
    return false;
}

static bool parse_setting(char *word, struct rule *rule)
{
    char *value = strchr(word, '=');
    uint64_t number;

    if (!value)
        return false;
    *value++ = 0;
    if (strcmp(word, "op") == 0)
        return parse_ops(value, rule);
    if (strcmp(word, "error") == 0)
        return parse_error(value, rule);
    if (!parse_number(value, &number))
        return false;
    if (strcmp(word, "delay_ms") == 0 && number <= UINT32_MAX)
        rule->delay_ms = (uint32_t)number;
    else if (strcmp(word, "after") == 0)
        rule->after = number;
    else if (strcmp(word, "count") == 0)
        rule->count = number;
    else if (strcmp(word, "offset") == 0) {
        rule->offset = number;
        rule->has_offset = true;
    } else
        return false;
    return true;
}

/* False: the line is not a rule; an empty one leaves suffix empty. */
static bool parse_line(char *line, struct rule *rule)
{
    char *rest, *word;

    memset(rule, 0, sizeof(*rule));
    rule->ops = ~0u;
    rule->result = 1;
    rule->count = UINT64_MAX;
    line[strcspn(line, "#\r\n")] = 0;
    word = strtok_r(line, " \t", &rest);
    if (!word)
        return true;
    if (strlen(word) >= sizeof(rule->suffix))
        return false;
    snprintf(rule->suffix, sizeof(rule->suffix), "%s", word);
    while ((word = strtok_r(NULL, " \t", &rest)))
        if (!parse_setting(word, rule))
            return false;
    return true;
}

static void read_rules(void)
{
    char line[LINE_BYTES];
    unsigned number = 0;
    FILE *file = fopen(faults.path, "re");

    faults.n = 0;
    if (!file)
        return;
    while (fgets(line, sizeof(line), file)) {
        struct rule *rule = &faults.rules[faults.n];

        number++;
        if (faults.n == RULES_MAX - 1 || !parse_line(line, rule))
            fprintf(stderr, "%s:%u: not a fault rule (or one too many), left out\n", faults.path, number);
        else if (rule->suffix[0])
            faults.n++;
    }
    fclose(file);
}

static void read_rules_if_changed(void)
{
    struct stat st;

    if (stat(faults.path, &st) < 0) {
        faults.n = 0;
        faults.read_once = false;
        return;
    }
    if (faults.read_once && st.st_mtim.tv_sec == faults.mtime.tv_sec && st.st_mtim.tv_nsec == faults.mtime.tv_nsec &&
        st.st_size == faults.size && st.st_ino == faults.inode)
        return;
    faults.read_once = true;
    faults.mtime = st.st_mtim;
    faults.size = st.st_size;
    faults.inode = st.st_ino;
    read_rules();
}

static bool ends_with(const char *path, const char *suffix)
{
    size_t path_bytes = strlen(path), suffix_bytes = strlen(suffix);

    return strcmp(suffix, "*") == 0 ||
           (path_bytes >= suffix_bytes && strcmp(path + path_bytes - suffix_bytes, suffix) == 0);
}

static bool applies(struct rule *rule, const char *path, enum sr_fault_op op, uint64_t offset, uint64_t length)
{
    uint64_t seen;

    if (!(rule->ops & op) || !ends_with(path, rule->suffix))
        return false;
    if (rule->has_offset && (rule->offset < offset || rule->offset - offset >= length))
        return false;
    seen = rule->seen++;
    return seen >= rule->after && seen - rule->after < rule->count;
}

bool sr_fault_check(const char *path, enum sr_fault_op op, uint64_t offset, uint64_t length, struct sr_fault_hit *hit)
{
    bool found = false;

    if (!atomic_load_explicit(&faults.on, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&faults.mutex);
    read_rules_if_changed();
    for (unsigned i = 0; i < faults.n && !found; i++) {
        struct rule *rule = &faults.rules[i];

        if (!applies(rule, path, op, offset, length))
            continue;
        hit->result = rule->result;
        hit->cut_short = rule->cut_short;
        hit->delay_ms = rule->delay_ms;
        found = true;
    }
    pthread_mutex_unlock(&faults.mutex);
    return found;
}
