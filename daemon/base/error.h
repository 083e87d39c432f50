/* error.h - every error that syncrep knows, in one list.
 *
 * Text is for people; decisions use codes.  The wire number of a code never changes and is never
 * reused: it travels in peer and control frames.  An unknown wire number reads as SR_E_UNKNOWN.
 */
#ifndef SR_BASE_ERROR_H
#define SR_BASE_ERROR_H

/*        code               wire  text */
#define SR_ERRORS(X)                                                                               \
    X(SR_OK,                  0, "success")                                                        \
    X(SR_E_UNKNOWN,           1, "unknown error")                                                  \
    X(SR_E_INVALID,           2, "invalid argument")                                               \
    X(SR_E_NO_MEMORY,         3, "out of memory or over a configured budget")                      \
    X(SR_E_IO,                4, "input/output error")                                             \
    X(SR_E_NO_SPACE,          5, "no space left")                                                  \
    X(SR_E_NOT_FOUND,         6, "no such object")                                                 \
    X(SR_E_EXISTS,            7, "object exists already")                                          \
    X(SR_E_BUSY,              8, "object is busy")                                                 \
    X(SR_E_PROTOCOL,          9, "protocol violation")                                             \
    X(SR_E_VERSION,          10, "unsupported version")                                            \
    X(SR_E_CORRUPT,          11, "data is damaged")                                                \
    X(SR_E_TIMEOUT,          12, "timed out")                                                      \
    X(SR_E_UNREACHABLE,      13, "peer or daemon is unreachable")                                  \
    X(SR_E_REFUSED,          14, "refused in the present state")                                   \
    X(SR_E_NEEDS_FORCE,      15, "needs --force")                                                  \
    X(SR_E_PERMISSION,       16, "permission denied")                                              \
    X(SR_E_CANCELLED,        17, "cancelled")                                                      \
    X(SR_E_UNSUPPORTED,      18, "not supported")                                                  \
    X(SR_E_TOO_LARGE,        19, "too large")                                                      \
    X(SR_E_LOCKED,           20, "locked by another process")                                      \
    X(SR_E_IDENTITY,         21, "identity does not match")                                        \
    X(SR_E_SHUTDOWN,         22, "shutting down")                                                  \
    X(SR_E_USAGE,            23, "wrong usage")

enum sr_error {
#define SR_ERROR_ENUM(code, wire, text) code = wire,
    SR_ERRORS(SR_ERROR_ENUM)
#undef SR_ERROR_ENUM
};

/* The text of a code; never NULL. */
const char *sr_error_text(enum sr_error error);

/* The name of a code without its prefix in lower case with dashes ("no-space"); never NULL.  Used as the
 * machine-readable code in JSON. */
const char *sr_error_name(enum sr_error error);

/* A number from the wire; unknown ones read as SR_E_UNKNOWN. */
enum sr_error sr_error_from_wire(unsigned wire);

/* The code for an errno value (positive). */
enum sr_error sr_error_from_errno(int errnum);

#endif
