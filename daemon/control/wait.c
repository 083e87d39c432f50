/* wait.c - clients that wait for a condition.
 *
 * Whether it holds is the daemon's to say (callbacks->wait_check).  It is asked when the wait begins, soon after
 * sr_control_state_changed (changes are merged), each WAIT_RECHECK_MS while anybody waits, and when the time is up.
 *
 * Invariant: a wait ends by its condition, its failure, its time or its client, and then at once.
 */
#include "control/internal.h"

#include <stdio.h>

#include "base/names.h"

static void timed_out(struct sr_control_call *call, const struct sr_control_wait_info *info)
{
    const char *condition = sr_control_condition_name(call->condition);
    const char *name = call->object[0] ? call->object : "the peer";
    uint64_t waited_ms = call->deadline_ms - call->started_ms;
    char object[OBJECT_BYTES], hint[200];

    snprintf(object, sizeof(object), "%s", call->object);
    snprintf(hint, sizeof(hint), "syncrepctl status%s%s", object[0] ? " " : "", object);
    sr_control_reply_error(call, SR_E_TIMEOUT, object, info->hint[0] ? info->hint : hint,
                           "%s is not %s after %llu.%llu s%s%s", name, condition,
                           (unsigned long long)(waited_ms / 1000), (unsigned long long)(waited_ms % 1000 / 100),
                           info->text[0] ? ": " : "", info->text);
}

/* Ends the wait if it is over; time_up: in any case. */
static void look(struct sr_control_call *call, bool time_up)
{
    struct sr_control *control = call->control;
    struct sr_control_wait_info info = {.error = SR_E_UNKNOWN};
    char object[OBJECT_BYTES];

    snprintf(object, sizeof(object), "%s", call->object);
    switch (control->callbacks.wait_check(control->arg, object, call->condition, &info)) {
    case SR_CONTROL_WAIT_DONE:
        if (info.text[0])
            sr_control_reply_done(call, object, info.hint, "%s", info.text);
        else
            sr_control_reply_done(call, object, info.hint, "%s is %s", object[0] ? object : "the peer",
                                  sr_control_condition_name(call->condition));
        return;
    case SR_CONTROL_WAIT_FAILED:
        if (info.error == SR_OK)
            info.error = SR_E_UNKNOWN;
        sr_control_reply_error(call, info.error, object, info.hint, "%s",
                               info.text[0] ? info.text : sr_error_text(info.error));
        return;
    default:
        if (time_up)
            timed_out(call, &info);
        return;
    }
}

void wait_check_all(struct sr_control *control)
{
    struct sr_control_call *call;
    uint64_t round = ++control->round;

    /* Each look may end calls and begin others, so the list is entered anew every time. */
    do {
        TAILQ_FOREACH(call, &control->calls[CALL_WAIT], entry)
        {
            if (call->round < round)
                break;
        }
        if (call) {
            call->round = round;
            look(call, false);
        }
    } while (call && !control->closing);
    if (control->closing)
        return;
    if (TAILQ_EMPTY(&control->calls[CALL_WAIT]))
        uv_timer_stop(&control->recheck_timer);
}

static void on_timer(uv_timer_t *timer)
{
    wait_check_all(timer->data);
}

void wait_start(struct sr_control_call *call, const Syncrep__Control__WaitRequest *request)
{
    struct sr_control *control = call->control;
    const char *why = NULL;

    call->condition = request->condition;
    if (!control->callbacks.wait_check) {
        sr_control_reply_error(call, SR_E_UNSUPPORTED, NULL, NULL, "this daemon cannot wait");
        return;
    }
    if (!sr_control_condition_name(request->condition)) {
        sr_control_reply_error(call, SR_E_UNSUPPORTED, NULL, NULL, "this daemon does not know condition %d",
                               (int)request->condition);
        return;
    }
    bool peer_only =
        request->name[0] == '\0' && request->condition == SYNCREP__CONTROL__CONDITION__CONDITION_CONNECTED;
    if (!peer_only && !sr_name_valid(request->name, &why)) {
        sr_control_reply_error(call, SR_E_INVALID, call->object, "syncrepctl status", "'%.64s' is not a name: %s",
                               request->name, why);
        return;
    }
    uint64_t timeout = request->timeout_ms < WAIT_MAX_MS ? request->timeout_ms : WAIT_MAX_MS;
    call->deadline_ms = call->started_ms + timeout;
    call->round = control->round;
    if (!uv_is_active((uv_handle_t *)&control->recheck_timer))
        uv_timer_start(&control->recheck_timer, on_timer, WAIT_RECHECK_MS, WAIT_RECHECK_MS);
    look(call, timeout == 0);
}

void wait_timed_out(struct sr_control_call *call)
{
    look(call, true);
}

void sr_control_state_changed(struct sr_control *control)
{
    if (!control || control->closing || TAILQ_EMPTY(&control->calls[CALL_WAIT]))
        return;
    if (!uv_is_active((uv_handle_t *)&control->wait_timer))
        uv_timer_start(&control->wait_timer, on_timer, WAIT_MERGE_MS, 0);
}
