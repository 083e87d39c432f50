/* fuzz_control_response.c - a client's decoder of responses, and the cleaning of text for terminals. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "control/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sr_control_response_free(sr_control_response_decode(data, size));

    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    size_t before = strlen(text);
    sr_control_text_clean(text);
    if (strlen(text) != before)
        abort();
    for (size_t i = 0; i < before; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            abort();
    free(text);
    return 0;
}
