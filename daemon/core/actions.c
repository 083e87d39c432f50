/* actions.c - everything that leaves the core: the list of actions of the step under way. */
#include <stdio.h>
#include <stdlib.h>

#include "core/internal.h"

struct sr_action *core_act(struct sr_core *core, enum sr_action_type type)
{
    struct sr_actions *out = core->out;
    if (out->n == out->cap) {
        uint32_t cap = out->cap ? out->cap * 2 : 32;
        struct sr_action *grown = realloc(out->list, cap * sizeof *grown);
        SR_ASSERT(grown != NULL);
        out->list = grown;
        out->cap = cap;
    }
    struct sr_action *action = &out->list[out->n++];
    action->type = type;
    return action;
}

void sr_actions_free(struct sr_actions *actions)
{
    free(actions->list);
    *actions = (struct sr_actions){0};
}

void core_say(struct sr_core *core, enum sr_log_level level, const char *format, ...)
{
    struct sr_action *action = core_act(core, SR_ACT_LOG);
    va_list args;
    action->log.level = level;
    int n = snprintf(action->log.text, sizeof action->log.text, "%s: ", core->name);
    if (n < 0 || (size_t)n >= sizeof action->log.text)
        n = 0;
    va_start(args, format);
    vsnprintf(action->log.text + n, sizeof action->log.text - (size_t)n, format, args);
    va_end(args);
}

void core_fault_link(struct sr_core *core, const char *format, ...)
{
    struct sr_action *action = core_act(core, SR_ACT_LINK_FAULT);
    va_list args;
    int n = snprintf(action->text, sizeof action->text, "%s: ", core->name);
    if (n < 0 || (size_t)n >= sizeof action->text)
        n = 0;
    va_start(args, format);
    vsnprintf(action->text + n, sizeof action->text - (size_t)n, format, args);
    va_end(args);
}

void core_halt(struct sr_core *core, const char *text)
{
    core->halted = true;
    struct sr_action *action = core_act(core, SR_ACT_HALT);
    snprintf(action->text, sizeof action->text, "%s: %s", core->name, text);
}

uint64_t core_start_io(struct sr_core *core, enum io_owner kind, void *owner, struct volume *volume,
                       struct sr_disk_io io)
{
    struct sr_action *action = core_act(core, SR_ACT_DISK);
    io.io = sr_slots_take(&core->ios, kind, owner);
    io.volume = volume->index;
    SR_ASSERT(io.op == SR_DISK_FLUSH ||
              (io.length_bytes > 0 && io.offset_bytes + io.length_bytes <= volume->size_bytes));
    action->disk = io;
    core->n_ios++;
    if (kind != IO_REQUEST && kind != IO_FLUSH)
        core->n_session_ios++;
    return io.io;
}

struct sr_peer_msg *sr_peer_msg_new(enum sr_peer_msg_type type, uint64_t session)
{
    bool whole = type == SR_MSG_HELLO || type == SR_MSG_START || type == SR_MSG_COMPLETE || type == SR_MSG_PROBED;
    struct sr_peer_msg *msg = malloc(sizeof *msg);
    SR_ASSERT(msg != NULL);
    memset(msg, 0, whole ? sizeof *msg : offsetof(struct sr_peer_msg, greeting));
    msg->type = type;
    msg->session = session;
    return msg;
}

void sr_peer_msg_free(struct sr_peer_msg *msg)
{
    if (!msg)
        return;
    sr_buf_unref(msg->payload);
    free(msg);
}

const char *sr_peer_msg_name(enum sr_peer_msg_type type)
{
    switch (type) {
#define NAME(name, number)                                                                                           \
    case SR_MSG_##name:                                                                                              \
        return #name;
        SR_PEER_MSGS(NAME)
#undef NAME
    }
    return "unknown";
}

const char *sr_cause_name(enum sr_cause cause)
{
    switch (cause) {
#define NAME(name, number, text)                                                                                     \
    case SR_CAUSE_##name:                                                                                            \
        return text;
        SR_CAUSES(NAME)
#undef NAME
    }
    return "unknown";
}

struct sr_peer_msg *core_new_msg(struct sr_core *core, enum sr_peer_msg_type type)
{
    return sr_peer_msg_new(type, core->session);
}

void core_send_msg(struct sr_core *core, struct sr_peer_msg *msg)
{
    SR_ASSERT(core->link_up);
    if (msg->payload)
        core->count.sent_payload_bytes +=
            msg->type == SR_MSG_WRITE || msg->type == SR_MSG_COPY ? msg->payload_bytes : 0;
    core_act(core, SR_ACT_SEND)->msg = msg;
}

void core_reply_host(struct sr_core *core, uint64_t id, enum sr_error error)
{
    struct sr_action *action = core_act(core, SR_ACT_REPLY);
    action->reply.id = id;
    action->reply.error = error;
}

static void answer_forward(struct sr_core *core, const struct request *request, enum sr_error error)
{
    if (!core->link_up || core->stage != STAGE_OPEN || request->forwarded != core->sessions_ended + 1)
        return; /* the other site has closed that host's connection */
    struct sr_peer_msg *msg = core_new_msg(core, SR_MSG_FORWARDED);
    msg->id = request->host.id;
    msg->volume = request->host.volume;
    msg->error = error;
    if (error == SR_OK && request->host.op == SR_HOST_READ) {
        msg->payload = sr_buf_ref(request->host.buf);
        msg->payload_bytes = (uint32_t)request->host.length_bytes;
    }
    core_send_msg(core, msg);
}

void core_reply_request(struct sr_core *core, const struct request *request, enum sr_error error)
{
    if (request->forwarded)
        answer_forward(core, request, error);
    else
        core_reply_host(core, request->host.id, error);
}

void core_answer_admin(struct sr_core *core, uint64_t id, enum sr_error error, const char *format, ...)
{
    struct sr_action *action = core_act(core, SR_ACT_ADMIN);
    va_list args;
    action->admin.id = id;
    action->admin.error = error;
    va_start(args, format);
    vsnprintf(action->admin.text, sizeof action->admin.text, format, args);
    va_end(args);
}
