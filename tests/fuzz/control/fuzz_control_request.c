/* fuzz_control_request.c - the daemon's decoder of requests: never crashes; what it accepts it can pack and accept
 * again, and it names an object that is text. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "control/wire.h"
#include "control/words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Syncrep__Control__Request *request = NULL, *again = NULL;
    char why[SR_CONTROL_WHY_BYTES];
    uint64_t id = 0, id_again = 0;

    if (size > SR_CONTROL_REQUEST_MAX_BYTES)
        return 0;
    enum sr_error error = sr_control_request_decode(data, size, &request, &id, why);
    check((error == SR_OK) == (request != NULL));
    check((error == SR_OK) == (why[0] == '\0'));
    check(sr_control_exit_class(error) <= 5);
    if (!request)
        return 0;
    check(sr_control_op_name(request->op_case) != NULL);
    check(sr_control_op_object(request) != NULL);
    size_t packed = syncrep__control__request__get_packed_size(request);
    /* Nothing was made up.  The one enumeration (a condition to wait for) may come as a negative number in 5 bytes and
     * is packed with its sign in 10, which may lengthen the length before it by one more. */
    check(packed <= size + 6);
    uint8_t *bytes = malloc(packed + 1);
    syncrep__control__request__pack(request, bytes);
    check(sr_control_request_decode(bytes, packed, &again, &id_again, why) == SR_OK);
    check(id == id_again && request->op_case == again->op_case);
    check(strcmp(sr_control_op_object(request), sr_control_op_object(again)) == 0);
    free(bytes);
    sr_control_request_free(request);
    sr_control_request_free(again);
    return 0;
}
