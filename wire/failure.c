/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/failure.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "wire/type.h"

#define ALLOT   "io.allot.Manager."
#define SERVICE "org.varlink.service."

/* One row per code: its name on the wire, its -errno, and a text for failures without a reason. */
static const struct {
    const char *name;
    int code;
    const char *text;
} rows[FAILURE_CODES] = {
    [FAILURE_NONE] = { "", 0, "nothing failed" },
    [FAILURE_NO_MEMORY] = { ALLOT "NoMemory", -ENOSPC, "not enough memory is left" },
    [FAILURE_DENIED] = { ALLOT "Denied", -EACCES, "policy does not allow it" },
    [FAILURE_NO_DEVICE] = { ALLOT "NoDevice", -ENODEV, "there is no such device" },
    [FAILURE_NOT_FOUND] = { ALLOT "NotFound", -ENOENT, "there is no such lease" },
    [FAILURE_TIMEOUT] = { ALLOT "Timeout", -ETIMEDOUT, "the time allowed for waiting is over" },
    [FAILURE_DEADLOCK] = { ALLOT "Deadlock", -EDEADLK,
                           "processes wait for memory of each other, which would never end: give "
                           "memory back and ask again" },
    [FAILURE_DRAINING] = { ALLOT "Draining", -ESHUTDOWN, "the device is being drained" },
    [FAILURE_BUSY] = { ALLOT "Busy", -EBUSY, "too many requests at once; try again later" },
    [FAILURE_NOT_RUNNING] = { ALLOT "NotRunning", -ECONNRESET, "the daemon cannot start" },
    [FAILURE_INTERFACE_NOT_FOUND] = { SERVICE "InterfaceNotFound", -EOPNOTSUPP,
                                      "the daemon does not know the interface" },
    [FAILURE_METHOD_NOT_FOUND] = { SERVICE "MethodNotFound", -EOPNOTSUPP,
                                   "the daemon does not know the method; is it older than this "
                                   "program?" },
    [FAILURE_METHOD_NOT_IMPLEMENTED] = { SERVICE "MethodNotImplemented", -EOPNOTSUPP,
                                         "the daemon cannot do this" },
    [FAILURE_EXPECTED_MORE] = { SERVICE "ExpectedMore", -EOPNOTSUPP,
                                "the method replies several times: call it with `more`" },
    [FAILURE_INVALID_PARAMETER] = { SERVICE "InvalidParameter", -EINVAL, "is not valid" },
    [FAILURE_PERMISSION_DENIED] = { SERVICE "PermissionDenied", -EPERM,
                                    "only root and the group allot-admin may do this" },
    [FAILURE_UNKNOWN] = { "", -EPROTO, "the daemon answered with an unknown error" },
};

const char *failure_name(enum failure_code code) {
    return code < FAILURE_CODES ? rows[code].name : "";
}

enum failure_code failure_find(const char *name) {
    for (enum failure_code code = FAILURE_NONE + 1; code < FAILURE_UNKNOWN; code++)
        if (strcmp(rows[code].name, name) == 0)
            return code;
    return FAILURE_UNKNOWN;
}

int failure_errno(enum failure_code code) {
    return code < FAILURE_CODES ? rows[code].code : -EPROTO;
}

const char *failure_text(enum failure_code code) {
    return rows[code < FAILURE_CODES ? code : FAILURE_UNKNOWN].text;
}

/* An empty reason is none: people must read something. */
static const char *reason_of(const struct failure *failure) {
    return failure->reason && *failure->reason ? failure->reason : failure_text(failure->code);
}

int failure_to_error(const struct failure *failure, struct allot_error *err) {
    const char *reason = reason_of(failure);
    int code = failure_errno(failure->code);

    switch (failure->code) {
    case FAILURE_INVALID_PARAMETER:
        return error_set(err, code, "%s %s",
                         failure->parameter ? failure->parameter : "the message", reason);
    case FAILURE_METHOD_NOT_FOUND:
    case FAILURE_METHOD_NOT_IMPLEMENTED:
        return error_set(err, code, "%s: %s", failure->method ? failure->method : "a method",
                         reason);
    case FAILURE_INTERFACE_NOT_FOUND:
        return error_set(err, code, "%s: %s", failure->interface ? failure->interface : "a call",
                         reason);
    case FAILURE_UNKNOWN:
        return error_set(err, code, "%s%s%s", failure->name ? failure->name : "",
                         failure->name ? ": " : "", reason);
    default:
        return error_set(err, code, "%s", reason);
    }
}

/* Every member that errors can have; each error has some of them (failure_prune). */
static const struct wire_field failure_fields[] = {
    MAYBE_STRING(failure, parameter), MAYBE_STRING(failure, method),
    MAYBE_STRING(failure, interface), MAYBE_STRING(failure, reason),
    MAYBE_STRING(failure, device),    MAYBE_UINT(failure, free_bytes),
    MAYBE_UINT(failure, place),       MAYBE_STRINGS(failure, holders),
    MAYBE_UINT(failure, retry_usec),
};
const struct wire_type failure_type = WIRE_TYPE(failure, "error", failure_fields);

struct failure failure_prune(const struct failure *failure) {
    static const char *const none[1];
    struct failure kept = { .code = failure->code };

    kept.reason = reason_of(failure);
    switch (failure->code) {
    case FAILURE_NO_MEMORY:
        kept.free_bytes = failure->free_bytes;
        kept.device = failure->device;
        break;
    case FAILURE_NO_DEVICE:
    case FAILURE_DRAINING:
        kept.device = failure->device;
        break;
    case FAILURE_TIMEOUT:
        kept.place = failure->place;
        break;
    case FAILURE_BUSY:
        kept.retry_usec = failure->retry_usec;
        break;
    case FAILURE_DEADLOCK:
        kept.holders = failure->holders ? failure->holders : none;
        kept.n_holders = failure->holders ? failure->n_holders : 0;
        break;
    case FAILURE_INVALID_PARAMETER:
        kept.parameter = failure->parameter ? failure->parameter : "";
        break;
    case FAILURE_METHOD_NOT_FOUND:
    case FAILURE_METHOD_NOT_IMPLEMENTED:
        kept.method = failure->method ? failure->method : "";
        break;
    case FAILURE_INTERFACE_NOT_FOUND:
        kept.interface = failure->interface ? failure->interface : "";
        break;
    default:
        break;
    }
    return kept;
}
