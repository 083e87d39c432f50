/* words.c - names of operations and conditions, and the exit class of each error.  Pure. */
#include "control/words.h"

#include <string.h>

unsigned sr_control_exit_class(enum sr_error error)
{
    switch (error) {
    case SR_OK:
        return 0;
    case SR_E_INVALID:
    case SR_E_USAGE:
        return 2;
    case SR_E_UNREACHABLE:
    case SR_E_SHUTDOWN:
        return 3;
    case SR_E_TIMEOUT:
        return 4;
    case SR_E_NEEDS_FORCE:
        return 5;
    default:
        return 1;
    }
}

static const struct {
    Syncrep__Control__Condition condition;
    const char *name;
} conditions[] = {
    {SYNCREP__CONTROL__CONDITION__CONDITION_IN_SYNC, "in-sync"},
    {SYNCREP__CONTROL__CONDITION__CONDITION_PAUSED, "paused"},
    {SYNCREP__CONTROL__CONDITION__CONDITION_OUT_OF_SYNC, "out-of-sync"},
    {SYNCREP__CONTROL__CONDITION__CONDITION_PROTECTED, "protected"},
    {SYNCREP__CONTROL__CONDITION__CONDITION_ACTIVE, "active"},
    {SYNCREP__CONTROL__CONDITION__CONDITION_ALTERNATE, "alternate"},
    {SYNCREP__CONTROL__CONDITION__CONDITION_CONNECTED, "connected"},
};

const char *sr_control_condition_name(Syncrep__Control__Condition condition)
{
    for (size_t i = 0; i < sizeof(conditions) / sizeof(conditions[0]); i++)
        if (conditions[i].condition == condition)
            return conditions[i].name;
    return NULL;
}

Syncrep__Control__Condition sr_control_condition_parse(const char *word)
{
    for (size_t i = 0; i < sizeof(conditions) / sizeof(conditions[0]); i++)
        if (strcmp(conditions[i].name, word) == 0)
            return conditions[i].condition;
    return SYNCREP__CONTROL__CONDITION__CONDITION_UNKNOWN;
}

const char *sr_control_op_name(Syncrep__Control__Request__OpCase op)
{
    switch (op) {
    case SYNCREP__CONTROL__REQUEST__OP_PING:
        return "ping";
    case SYNCREP__CONTROL__REQUEST__OP_STATUS:
        return "status";
    case SYNCREP__CONTROL__REQUEST__OP_POOL_LIST:
        return "pool list";
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_CREATE:
        return "volume create";
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_LIST:
        return "volume list";
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_SHOW:
        return "volume show";
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_DELETE:
        return "volume delete";
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_LIST:
        return "collection list";
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_SHOW:
        return "collection show";
    case SYNCREP__CONTROL__REQUEST__OP_PAUSE:
        return "pause";
    case SYNCREP__CONTROL__REQUEST__OP_RESUME:
        return "resume";
    case SYNCREP__CONTROL__REQUEST__OP_REPLACE:
        return "replace";
    case SYNCREP__CONTROL__REQUEST__OP_FAILOVER:
        return "failover";
    case SYNCREP__CONTROL__REQUEST__OP_TUNE:
        return "tune";
    case SYNCREP__CONTROL__REQUEST__OP_WAIT:
        return "wait";
    case SYNCREP__CONTROL__REQUEST__OP_EVENTS:
        return "events";
    case SYNCREP__CONTROL__REQUEST__OP_RELOAD:
        return "reload";
    case SYNCREP__CONTROL__REQUEST__OP_SWITCHOVER:
        return "switchover";
    case SYNCREP__CONTROL__REQUEST__OP_RESOLVE:
        return "resolve";
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_CREATE:
        return "collection create";
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_ADD:
        return "collection add";
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_REMOVE:
        return "collection remove";
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_DELETE:
        return "collection delete";
    case SYNCREP__CONTROL__REQUEST__OP_POOL_CREATE:
        return "pool create";
    default:
        return "unknown request";
    }
}

const char *sr_control_op_object(const Syncrep__Control__Request *req)
{
    switch (req->op_case) {
    case SYNCREP__CONTROL__REQUEST__OP_STATUS:
        return req->status->name;
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_CREATE:
        return req->volume_create->name;
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_SHOW:
        return req->volume_show->name;
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_DELETE:
        return req->volume_delete->name;
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_SHOW:
        return req->collection_show->name;
    case SYNCREP__CONTROL__REQUEST__OP_PAUSE:
        return req->pause->name;
    case SYNCREP__CONTROL__REQUEST__OP_RESUME:
        return req->resume->name;
    case SYNCREP__CONTROL__REQUEST__OP_REPLACE:
        return req->replace->name;
    case SYNCREP__CONTROL__REQUEST__OP_FAILOVER:
        return req->failover->name;
    case SYNCREP__CONTROL__REQUEST__OP_SWITCHOVER:
        return req->switchover->name;
    case SYNCREP__CONTROL__REQUEST__OP_RESOLVE:
        return req->resolve->name;
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_CREATE:
        return req->collection_create->name;
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_ADD:
        return req->collection_add->name;
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_REMOVE:
        return req->collection_remove->name;
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_DELETE:
        return req->collection_delete->name;
    case SYNCREP__CONTROL__REQUEST__OP_POOL_CREATE:
        return req->pool_create->name;
    case SYNCREP__CONTROL__REQUEST__OP_TUNE:
        return req->tune->key;
    case SYNCREP__CONTROL__REQUEST__OP_WAIT:
        return req->wait->name;
    default:
        return "";
    }
}
