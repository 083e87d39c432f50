/* wire.h - frames of the control socket: bytes <-> messages.  Pure; used by the daemon and by clients. */
#ifndef SR_CONTROL_WIRE_H
#define SR_CONTROL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "control.pb-c.h"

#define SR_CONTROL_VERSION            1
#define SR_CONTROL_HEADER_BYTES       4u
#define SR_CONTROL_REQUEST_MAX_BYTES  (64u << 10)
#define SR_CONTROL_RESPONSE_MAX_BYTES (1u << 20)

/* Memory that a decoded message may take: a few bytes on the wire can ask for many. */
#define SR_CONTROL_REQUEST_MEMORY_BYTES  (256u << 10)
#define SR_CONTROL_RESPONSE_MEMORY_BYTES (32u << 20)

#define SR_CONTROL_WHY_BYTES 200

/* The length that a header announces (the caller compares it with the bound), and the header for a length. */
uint32_t sr_control_header_get(const uint8_t header[SR_CONTROL_HEADER_BYTES]);
void sr_control_header_put(uint8_t header[SR_CONTROL_HEADER_BYTES], uint32_t length_bytes);

/* Decodes the body of a request frame, strictly: strings are UTF-8 without NUL, fields that are not known are refused
 * (they could be options), an op is set, the version is ours.
 *   SR_OK            *request is the caller's (sr_control_request_free)
 *   SR_E_PROTOCOL    does not decode: the stream cannot be trusted any more
 *   SR_E_NO_MEMORY   asks for more memory than a request may: as above
 *   SR_E_VERSION, SR_E_UNSUPPORTED, SR_E_INVALID   well formed but not acceptable: answer, go on
 * *id is the request's id where it could be read, else 0.  why gets a sentence on any error. */
enum sr_error sr_control_request_decode(const uint8_t *bytes, size_t length_bytes,
                                        Syncrep__Control__Request **request, uint64_t *id,
                                        char why[SR_CONTROL_WHY_BYTES]);
void sr_control_request_free(Syncrep__Control__Request *request); /* NULL is fine */

/* Decodes the body of a response frame, leniently: a newer daemon may send more than we know.  NULL if it does not
 * decode or would take too much memory. */
Syncrep__Control__Response *sr_control_response_decode(const uint8_t *bytes, size_t length_bytes);
void sr_control_response_free(Syncrep__Control__Response *response); /* NULL is fine */

/* Makes text safe to print, log and send, in place: control characters and bytes that are not UTF-8 become '?'.
 * Returns text. */
char *sr_control_text_clean(char *text);

#endif
