/* names.c - the one rule for names.  Bytes, not characters: the locale plays no part. */
#include "base/names.h"

#include <stddef.h>
#include <string.h>

static bool allowed(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
}

bool sr_name_valid(const char *name, const char **why)
{
    const char *reason = NULL;
    size_t bytes = strnlen(name, SR_NAME_MAX_BYTES + 1);

    if (bytes == 0) {
        reason = "a name cannot be empty";
    } else if (bytes > SR_NAME_MAX_BYTES) {
        reason = "a name has at most 64 characters";
    } else if (name[0] == '.' || name[0] == '-') {
        reason = "a name cannot start with '.' or '-'";
    } else {
        for (size_t i = 0; i < bytes && reason == NULL; i++)
            if (!allowed(name[i]))
                reason = "a name consists of the characters A-Z a-z 0-9 . _ -";
    }
    if (why != NULL)
        *why = reason;
    return reason == NULL;
}
