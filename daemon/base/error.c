/* error.c - texts and names of the error codes, and the way from errno values to them.
 *
 * Pure.  The switches have no default, so the compiler names a code that was added and forgotten here.
 */
#include "base/error.h"

#include <errno.h>

const char *sr_error_text(enum sr_error error)
{
    switch (error) {
#define SR_ERROR_TEXT(code, wire, text)                                                                              \
    case code:                                                                                                       \
        return text;
        SR_ERRORS(SR_ERROR_TEXT)
#undef SR_ERROR_TEXT
    }
    return "unknown error";
}

const char *sr_error_name(enum sr_error error)
{
    switch (error) {
    case SR_OK:
        return "ok";
    case SR_E_UNKNOWN:
        return "unknown";
    case SR_E_INVALID:
        return "invalid";
    case SR_E_NO_MEMORY:
        return "no-memory";
    case SR_E_IO:
        return "io";
    case SR_E_NO_SPACE:
        return "no-space";
    case SR_E_NOT_FOUND:
        return "not-found";
    case SR_E_EXISTS:
        return "exists";
    case SR_E_BUSY:
        return "busy";
    case SR_E_PROTOCOL:
        return "protocol";
    case SR_E_VERSION:
        return "version";
    case SR_E_CORRUPT:
        return "corrupt";
    case SR_E_TIMEOUT:
        return "timeout";
    case SR_E_UNREACHABLE:
        return "unreachable";
    case SR_E_REFUSED:
        return "refused";
    case SR_E_NEEDS_FORCE:
        return "needs-force";
    case SR_E_PERMISSION:
        return "permission";
    case SR_E_CANCELLED:
        return "cancelled";
    case SR_E_UNSUPPORTED:
        return "unsupported";
    case SR_E_TOO_LARGE:
        return "too-large";
    case SR_E_LOCKED:
        return "locked";
    case SR_E_IDENTITY:
        return "identity";
    case SR_E_SHUTDOWN:
        return "shutdown";
    case SR_E_USAGE:
        return "usage";
    }
    return "unknown";
}

enum sr_error sr_error_from_wire(unsigned wire)
{
    switch (wire) {
#define SR_ERROR_WIRE(code, number, text)                                                                            \
    case number:                                                                                                     \
        return code;
        SR_ERRORS(SR_ERROR_WIRE)
#undef SR_ERROR_WIRE
    default:
        return SR_E_UNKNOWN;
    }
}

enum sr_error sr_error_from_errno(int errnum)
{
    switch (errnum) {
    case 0:
        return SR_OK;
    case ENOSPC:
    case EDQUOT:
        return SR_E_NO_SPACE;
    case ENOMEM:
    case ENOBUFS:
    case EMFILE:
    case ENFILE:
        return SR_E_NO_MEMORY;
    case ENOENT:
    case ENODEV:
    case ENXIO:
        return SR_E_NOT_FOUND;
    case EEXIST:
    case EADDRINUSE:
        return SR_E_EXISTS;
    case EBUSY:
    case EAGAIN:
    case ETXTBSY:
        return SR_E_BUSY;
    case EACCES:
    case EPERM:
    case EROFS:
        return SR_E_PERMISSION;
    case EINVAL:
    case ENOTDIR:
    case EISDIR:
    case EDOM:
    case EBADF:
        return SR_E_INVALID;
    case ETIMEDOUT:
    case ETIME:
        return SR_E_TIMEOUT;
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case ENOTCONN:
    case EPIPE:
        return SR_E_UNREACHABLE;
    case ECANCELED:
        return SR_E_CANCELLED;
    case EOPNOTSUPP:
    case ENOSYS:
        return SR_E_UNSUPPORTED;
    case EFBIG:
    case E2BIG:
    case EMSGSIZE:
    case ENAMETOOLONG:
    case EOVERFLOW:
        return SR_E_TOO_LARGE;
    case EPROTO:
        return SR_E_PROTOCOL;
    case EILSEQ:
    case EUCLEAN:
    case EBADMSG:
        return SR_E_CORRUPT;
    default:
        return SR_E_IO;
    }
}
