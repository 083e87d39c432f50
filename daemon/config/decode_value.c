/* decode_value.c - one value of the file: text to number, name, path ... with a message that says what was expected.
 */
#include "config/decode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/names.h"
#include "base/size.h"
#include "config/address.h"

#define PATH_MAX_BYTES 4000

/* What a decoder works on. */
struct value {
    struct sr_config_decode *decode;
    const struct sr_config_key *key;
    const char *text;
    struct sr_config_at at;
    void *field;
};

static bool fault(const struct value *value, const char *what)
{
    char quoted[SR_CONFIG_QUOTE_BYTES];

    sr_config_fault_add(value->decode->faults, value->at, "%s: %s: %s", value->key->path,
                        sr_config_quote(value->text, quoted), what);
    return false;
}

static bool store_string(const struct value *value, char *copy)
{
    if (copy == NULL) {
        value->decode->no_memory = true;
        return false;
    }
    free(*(char **)value->field);
    *(char **)value->field = copy;
    return true;
}

/* min and max as this kind of key is written */
static const char *limit_text(enum sr_config_kind kind, uint64_t number, char text[SR_SIZE_TEXT_BYTES + 2])
{
    switch (kind) {
    case SR_KIND_SIZE:
        return sr_size_format_exact(number, text);
    case SR_KIND_RATE:
        sr_size_format_exact(number, text);
        return number != 0 ? strcat(text, "/s") : text;
    case SR_KIND_DURATION:
        return sr_duration_format_exact(number, text);
    case SR_KIND_FACTOR:
        snprintf(text, SR_SIZE_TEXT_BYTES, "%" PRIu64 ".%02" PRIu64, number / 100, number % 100);
        return text;
    default:
        snprintf(text, SR_SIZE_TEXT_BYTES, "%" PRIu64, number);
        return text;
    }
}

static bool in_range(const struct value *value, uint64_t number)
{
    const struct sr_config_key *key = value->key;
    char what[160], min[SR_SIZE_TEXT_BYTES + 2], max[SR_SIZE_TEXT_BYTES + 2];

    if (number >= key->min && number <= key->max)
        return true;
    snprintf(what, sizeof(what), "too %s: expected %s to %s", number < key->min ? "small" : "large",
             limit_text(key->kind, key->min, min), limit_text(key->kind, key->max, max));
    return fault(value, what);
}

/* Digits only, no sign. */
static bool parse_whole(const char *text, uint64_t *number)
{
    uint64_t result = 0;

    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++)
        if (*text < '0' || *text > '9' || !sr_mul_u64(result, 10, &result) ||
            !sr_add_u64(result, (uint64_t)(*text - '0'), &result))
            return false;
    *number = result;
    return true;
}

static bool decode_count(const struct value *value)
{
    char what[96];
    uint64_t number;

    if (!parse_whole(value->text, &number)) {
        snprintf(what, sizeof(what), "not a whole number: expected %" PRIu64 " to %" PRIu64, value->key->min,
                 value->key->max);
        return fault(value, what);
    }
    if (!in_range(value, number))
        return false;
    *(uint32_t *)value->field = (uint32_t)number;
    return true;
}

static bool decode_size(const struct value *value)
{
    const char *why;
    uint64_t number;

    if (!sr_size_parse(value->text, &number, &why))
        return fault(value, why);
    if (!in_range(value, number))
        return false;
    *(uint64_t *)value->field = number;
    return true;
}

static bool decode_rate(const struct value *value)
{
    struct value bare = *value;
    char text[64];
    size_t length = strlen(value->text);

    if (length > 2 && length < sizeof(text) && strcmp(value->text + length - 2, "/s") == 0) {
        memcpy(text, value->text, length - 2);
        text[length - 2] = '\0';
        bare.text = text;
    }
    return decode_size(&bare);
}

static bool decode_duration(const struct value *value)
{
    const char *why;
    uint64_t number;

    if (!sr_duration_parse(value->text, &number, &why))
        return fault(value, why);
    if (!in_range(value, number))
        return false;
    *(uint32_t *)value->field = (uint32_t)number;
    return true;
}

/* "2", "1.5" or "1.25": whole percent. */
static bool decode_factor(const struct value *value)
{
    static const char expected[] = "not a factor: expected a number with at most two decimals, like 2.0";
    const char *dot = strchr(value->text, '.');
    char whole[16];
    uint64_t units, percent = 0;
    size_t n_whole = dot != NULL ? (size_t)(dot - value->text) : strlen(value->text);

    if (n_whole >= sizeof(whole))
        return fault(value, expected);
    memcpy(whole, value->text, n_whole);
    whole[n_whole] = '\0';
    if (!parse_whole(whole, &units) || units > UINT32_MAX)
        return fault(value, expected);
    if (dot != NULL) {
        size_t n_decimals = strlen(dot + 1);
        if (n_decimals > 2 || !parse_whole(dot + 1, &percent))
            return fault(value, expected);
        if (n_decimals == 1)
            percent *= 10;
    }
    if (!in_range(value, units * 100 + percent))
        return false;
    *(uint32_t *)value->field = (uint32_t)(units * 100 + percent);
    return true;
}

static bool decode_bool(const struct value *value, bool plain)
{
    bool yes = strcmp(value->text, "true") == 0;

    if (!plain || (!yes && strcmp(value->text, "false") != 0))
        return fault(value, "expected true or false, without quotes");
    *(bool *)value->field = yes;
    return true;
}

static bool decode_name(const struct value *value)
{
    const char *why;

    if (!sr_name_valid(value->text, &why))
        return fault(value, why);
    return store_string(value, strdup(value->text));
}

static bool decode_uuid(const struct value *value)
{
    struct sr_uuid uuid;

    if (!sr_uuid_parse(value->text, &uuid))
        return fault(value, "not a UUID: expected one as uuidgen prints it, the same at both sites");
    if (sr_uuid_is_none(&uuid))
        return fault(value, "the zero UUID identifies nothing: expected one as uuidgen prints it");
    *(struct sr_uuid *)value->field = uuid;
    return true;
}

static bool decode_path(const struct value *value)
{
    size_t max_bytes = value->key->kind == SR_KIND_SOCKET ? SR_CONFIG_UNIX_PATH_MAX_BYTES : PATH_MAX_BYTES;
    const char *why = sr_config_path_fault(value->text, max_bytes);

    if (why != NULL)
        return fault(value, why);
    return store_string(value, sr_config_path_clean(value->text));
}

static bool decode_address(const struct value *value)
{
    struct sr_config_address address;
    const char *why;
    enum sr_error error =
        sr_config_address_parse(value->text, value->key->kind == SR_KIND_NBD_LISTEN, &address, &why);

    if (error == SR_E_INVALID)
        return fault(value, why);
    if (error != SR_OK) {
        value->decode->no_memory = true;
        return false;
    }
    if (value->key->kind == SR_KIND_ADDRESS && sr_config_address_is_any(&address)) {
        sr_config_address_free(&address);
        return fault(value, "this stands for every address: expected the one address of the peer");
    }
    sr_config_address_free(value->field);
    *(struct sr_config_address *)value->field = address;
    return true;
}

static bool decode_word(const struct value *value)
{
    const struct sr_config_word *words = sr_config_words(value->key->kind);
    char what[96] = "expected one of";

    for (const struct sr_config_word *word = words; word->word != NULL; word++) {
        if (strcmp(word->word, value->text) == 0) {
            /* the enums all have the size of an int, which the assertions below hold */
            *(int *)value->field = word->value;
            return true;
        }
        size_t length = strlen(what);
        snprintf(what + length, sizeof(what) - length, "%s %s", word == words ? "" : ",", word->word);
    }
    return fault(value, what);
}

_Static_assert(sizeof(enum sr_log_level) == sizeof(int) && sizeof(enum sr_log_format) == sizeof(int) &&
                   sizeof(enum sr_config_engine) == sizeof(int),
               "words are stored as int");

bool sr_config_decode_scalar(struct sr_config_decode *decode, const struct sr_config_key *key, const char *text,
                             bool plain, struct sr_config_at at, void *base)
{
    struct value value = {.decode = decode, .key = key, .text = text, .at = at, .field = (char *)base + key->offset};

    switch (key->kind) {
    case SR_KIND_NAME:
        return decode_name(&value);
    case SR_KIND_UUID:
        return decode_uuid(&value);
    case SR_KIND_BOOL:
        return decode_bool(&value, plain);
    case SR_KIND_COUNT:
        return decode_count(&value);
    case SR_KIND_SIZE:
        return decode_size(&value);
    case SR_KIND_RATE:
        return decode_rate(&value);
    case SR_KIND_DURATION:
        return decode_duration(&value);
    case SR_KIND_FACTOR:
        return decode_factor(&value);
    case SR_KIND_PATH:
    case SR_KIND_SOCKET:
    case SR_KIND_FILE:
        return decode_path(&value);
    case SR_KIND_ADDRESS:
        return decode_address(&value);
    case SR_KIND_LISTEN:
    case SR_KIND_NBD_LISTEN:
        value.field = base; /* one entry of the list */
        return decode_address(&value);
    case SR_KIND_LEVEL:
    case SR_KIND_FORMAT:
    case SR_KIND_ENGINE:
        return decode_word(&value);
    case SR_KIND_SECTION:
    case SR_KIND_POOLS:
        break;
    }
    SR_UNREACHABLE();
}
