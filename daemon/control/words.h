/* words.h - what operations and conditions are called, and the exit class of each error.  Pure; used by the daemon
 * and by clients. */
#ifndef SR_CONTROL_WORDS_H
#define SR_CONTROL_WORDS_H

#include "base/error.h"
#include "control.pb-c.h"

/* Exit class of an error as in Error.exit: 0 for SR_OK. */
unsigned sr_control_exit_class(enum sr_error error);

/* "pause", "volume create" ...; "unknown request" for an op that is not set. */
const char *sr_control_op_name(Syncrep__Control__Request__OpCase op);

/* The object that a request names, "" if none; points into req. */
const char *sr_control_op_object(const Syncrep__Control__Request *req);

/* "in-sync" ...; NULL for an unknown one.  And back: CONDITION_UNKNOWN for an unknown word. */
const char *sr_control_condition_name(Syncrep__Control__Condition condition);
Syncrep__Control__Condition sr_control_condition_parse(const char *word);

#endif
