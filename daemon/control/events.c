/* events.c - the recent events, and clients that follow them.
 *
 * A ring of the last EVENTS_KEPT events is the only buffer: each follower has a number of its next event and is sent
 * what the ring still holds.  One that falls behind sees a gap in the numbers.
 *
 * Invariants
 *   1. Sequence numbers rise by one; the ring holds the last min(EVENTS_KEPT, last_sequence) events.
 *   2. A follower never has more than OUT_PAUSE_BYTES plus one event unsent.
 *
 * No durable state: events are for people who watch; the log keeps them.
 */
#include "control/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static Syncrep__Control__Level level_of(enum sr_log_level level)
{
    switch (level) {
    case SR_LOG_ERROR:
        return SYNCREP__CONTROL__LEVEL__LEVEL_ERROR;
    case SR_LOG_WARNING:
        return SYNCREP__CONTROL__LEVEL__LEVEL_WARNING;
    case SR_LOG_NOTICE:
        return SYNCREP__CONTROL__LEVEL__LEVEL_NOTICE;
    default:
        return SYNCREP__CONTROL__LEVEL__LEVEL_INFO;
    }
}

/* False: the client is closing and the call gone. */
static bool send_event(struct sr_control_call *call, struct event *event)
{
    Syncrep__Control__Event body = SYNCREP__CONTROL__EVENT__INIT;
    Syncrep__Control__Response response = SYNCREP__CONTROL__RESPONSE__INIT;

    body.sequence = event->sequence;
    body.wall_ms = event->wall_ms;
    body.level = level_of(event->level);
    body.kind = event->kind;
    body.object = event->object;
    body.text = event->text;
    response.version = SR_CONTROL_VERSION;
    response.id = call->id;
    response.body_case = SYNCREP__CONTROL__RESPONSE__BODY_EVENT;
    response.event = &body;
    return client_send(call->client, &response);
}

void events_pump(struct sr_control_call *call)
{
    struct sr_control *control = call->control;
    uint64_t last = call->follow ? control->last_sequence : call->final_sequence;

    while (call->next_sequence <= last) {
        uint64_t kept = control->last_sequence < EVENTS_KEPT ? control->last_sequence : EVENTS_KEPT;
        uint64_t oldest = control->last_sequence - kept + 1;
        if (call->next_sequence < oldest) {
            call->next_sequence = oldest;
            continue;
        }
        if (call->client->out_length >= OUT_PAUSE_BYTES)
            return;
        if (!send_event(call, &control->events[call->next_sequence % EVENTS_KEPT]))
            return;
        call->next_sequence++;
        call->sent++;
    }
    if (!call->follow)
        sr_control_reply_done(call, NULL, NULL, "%llu events", (unsigned long long)call->sent);
}

void events_start(struct sr_control_call *call, const Syncrep__Control__EventsRequest *request)
{
    struct sr_control *control = call->control;

    call->follow = request->follow;
    call->final_sequence = control->last_sequence;
    /* A number from before a restart is higher than all of ours: begin with what there is. */
    call->next_sequence = request->after_sequence <= control->last_sequence ? request->after_sequence + 1 : 1;
    call->round = control->round;
    events_pump(call);
}

void sr_control_emit(struct sr_control *control, enum sr_log_level level, const char *kind, const char *object,
                     uint64_t wall_ms, const char *format, ...)
{
    struct sr_control_call *call;
    struct event *event;
    va_list ap;

    if (!control || control->closing)
        return;
    event = &control->events[++control->last_sequence % EVENTS_KEPT];
    memset(event, 0, sizeof(*event));
    event->sequence = control->last_sequence;
    event->wall_ms = wall_ms;
    event->level = level;
    snprintf(event->kind, sizeof(event->kind), "%s", kind);
    snprintf(event->object, sizeof(event->object), "%s", object);
    va_start(ap, format);
    vsnprintf(event->text, sizeof(event->text), format, ap);
    va_end(ap);
    sr_control_text_clean(event->kind);
    sr_control_text_clean(event->object);
    sr_control_text_clean(event->text);

    uint64_t round = ++control->round;
    do {
        TAILQ_FOREACH(call, &control->calls[CALL_FOLLOW], entry)
        {
            if (call->round < round)
                break;
        }
        if (call) {
            call->round = round;
            events_pump(call);
        }
    } while (call);
}
