/* reply.c - from an answer to frames.
 *
 * Invariants
 *   1. No frame is longer than SR_CONTROL_RESPONSE_MAX_BYTES: long statuses and lists are split, anything else too
 *      long becomes an error.
 *   2. A reply to a call that nobody waits for any more costs nothing and changes nothing.
 *   3. After the last reply the call is freed, exactly once, also when sending it closes the client.
 */
#include "control/internal.h"

#include <stdarg.h>
#include <stdio.h>

/* False: the client is closing. */
static bool send_one(struct client *client, Syncrep__Control__Response *response, bool last)
{
    response->last = last;
    if (syncrep__control__response__get_packed_size(response) > SR_CONTROL_RESPONSE_MAX_BYTES) {
        client_refuse(client, response->id, SR_E_TOO_LARGE, "the answer does not fit a frame; ask for one name only");
        return !client->closing;
    }
    return client_send(client, response);
}

/* How many of items (at least one, if there is one) fit a chunk. */
static size_t fit(ProtobufCMessage *const *items, size_t n)
{
    size_t bytes = 0, i = 0;

    for (; i < n; i++) {
        bytes += 8 + protobuf_c_message_get_packed_size(items[i]);
        if (i > 0 && bytes > CHUNK_BYTES)
            break;
    }
    return i;
}

/* The array that may be split, in the body of response; NULL if there is none. */
static ProtobufCMessage ***splittable(Syncrep__Control__Response *response, size_t **n)
{
    switch (response->body_case) {
    case SYNCREP__CONTROL__RESPONSE__BODY_STATUS:
        *n = &response->status->n_collections;
        return (ProtobufCMessage ***)(void *)&response->status->collections;
    case SYNCREP__CONTROL__RESPONSE__BODY_VOLUMES:
        *n = &response->volumes->n_volumes;
        return (ProtobufCMessage ***)(void *)&response->volumes->volumes;
    case SYNCREP__CONTROL__RESPONSE__BODY_COLLECTIONS:
        *n = &response->collections->n_collections;
        return (ProtobufCMessage ***)(void *)&response->collections->collections;
    default:
        return NULL;
    }
}

/* Shows the body one part of its array after the other, and then the whole again: it is the caller's. */
static bool send_split(struct client *client, Syncrep__Control__Response *response, bool last)
{
    size_t *n = NULL;
    ProtobufCMessage ***items = splittable(response, &n);
    bool open = true;

    if (!items || *n == 0)
        return send_one(client, response, last);
    ProtobufCMessage **all = *items;
    size_t total = *n;
    for (size_t done = 0; done < total && open;) {
        *items = all + done;
        *n = fit(all + done, total - done);
        done += *n;
        open = send_one(client, response, last && done == total);
    }
    *items = all;
    *n = total;
    return open;
}

void sr_control_reply(struct sr_control_call *call, Syncrep__Control__Response *response, bool last)
{
    enum call_kind kind = call->kind;

    response->version = SR_CONTROL_VERSION;
    response->id = call->id;
    if (last)
        call->gone_fn = NULL;
    bool open = call->client && send_split(call->client, response, last);
    if (!open && (kind != CALL_DRIVER || !last))
        return; /* closing the client has freed it, or whoever was told may have */
    if (last)
        call_end(call);
}

void sr_control_reply_done(struct sr_control_call *call, const char *object, const char *hint, const char *format,
                           ...)
{
    Syncrep__Control__Done done = SYNCREP__CONTROL__DONE__INIT;
    Syncrep__Control__Response response = SYNCREP__CONTROL__RESPONSE__INIT;
    char text[400], about[OBJECT_BYTES], next[240];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    snprintf(about, sizeof(about), "%s", object ? object : "");
    snprintf(next, sizeof(next), "%s", hint ? hint : "");
    done.text = sr_control_text_clean(text);
    done.object = sr_control_text_clean(about);
    done.hint = sr_control_text_clean(next);
    /* A volume made without a collection has one of its own, of the same name. */
    if (call->op == SYNCREP__CONTROL__REQUEST__OP_VOLUME_CREATE)
        done.collection = about;
    response.body_case = SYNCREP__CONTROL__RESPONSE__BODY_DONE;
    response.done = &done;
    sr_control_reply(call, &response, true);
}

void sr_control_reply_error(struct sr_control_call *call, enum sr_error error, const char *object, const char *hint,
                            const char *format, ...)
{
    Syncrep__Control__Error body = SYNCREP__CONTROL__ERROR__INIT;
    Syncrep__Control__Response response = SYNCREP__CONTROL__RESPONSE__INIT;
    char text[400], about[OBJECT_BYTES], next[240];
    va_list ap;

    SR_ASSERT(error != SR_OK);
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    snprintf(about, sizeof(about), "%s", object ? object : "");
    snprintf(next, sizeof(next), "%s", hint ? hint : "");
    body.code = error;
    body.name = (char *)sr_error_name(error);
    body.exit = sr_control_exit_class(error);
    body.text = sr_control_text_clean(text);
    body.object = sr_control_text_clean(about);
    body.hint = sr_control_text_clean(next);
    response.body_case = SYNCREP__CONTROL__RESPONSE__BODY_ERROR;
    response.error = &body;
    sr_control_reply(call, &response, true);
}
