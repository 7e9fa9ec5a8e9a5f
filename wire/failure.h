/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Failure: an error of the interface: its name on the wire, a code for the program, a sentence for
 * people.
 *
 * A plain struct that borrows its texts, like any message. Errors of our interface carry `reason`;
 * those of org.varlink.service carry the member that they name, and also a reason, which their
 * interface does not mention.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "wire/message.h"

enum failure_code {
    FAILURE_NONE,

    FAILURE_NO_MEMORY,   /* -ENOSPC: the device or the lease does not have that much left */
    FAILURE_DENIED,      /* -EACCES */
    FAILURE_NO_DEVICE,   /* -ENODEV */
    FAILURE_NOT_FOUND,   /* -ENOENT: no such lease, or none of yours */
    FAILURE_TIMEOUT,     /* -ETIMEDOUT */
    FAILURE_DEADLOCK,    /* -EDEADLK */
    FAILURE_DRAINING,    /* -ESHUTDOWN */
    FAILURE_BUSY,        /* -EBUSY: too many connections, leases or calls; try later */
    FAILURE_NOT_RUNNING, /* -ECONNRESET: it cannot start; clients treat it as a lost connection */

    FAILURE_INTERFACE_NOT_FOUND,    /* -EOPNOTSUPP, like the next three */
    FAILURE_METHOD_NOT_FOUND,       /* */
    FAILURE_METHOD_NOT_IMPLEMENTED, /* */
    FAILURE_EXPECTED_MORE,          /* the method streams, and was called without `more` */
    FAILURE_INVALID_PARAMETER,      /* -EINVAL */
    FAILURE_PERMISSION_DENIED,      /* -EPERM: administrators only */

    FAILURE_UNKNOWN, /* -EPROTO: a name that we do not know */
    FAILURE_CODES,
};

struct failure {
    enum failure_code code;
    const char *name; /* set when read: the name on the wire, also if it is unknown */
    /* Members, if the error has them; otherwise NULL or absent. */
    const char *reason;
    const char *device;
    struct wire_maybe free_bytes;
    struct wire_maybe place;
    struct wire_maybe retry_usec;
    const char *const *holders;
    size_t n_holders;
    const char *parameter; /* InvalidParameter */
    const char *method;    /* MethodNotFound, MethodNotImplemented */
    const char *interface; /* InterfaceNotFound */
};

/* "io.allot.Manager.NoMemory" and back; FAILURE_UNKNOWN for a name that is none of ours. */
const char *failure_name(enum failure_code code);
enum failure_code failure_find(const char *name);

/* The -errno beside each code above, 0 for FAILURE_NONE. */
int failure_errno(enum failure_code code);

/* The text for a failure without a reason. */
const char *failure_text(enum failure_code code);

/* The sentence to show, made from the members if there is no reason. Returns failure_errno(). */
int failure_to_error(const struct failure *failure, struct allot_error *err);

/* For wire/varlink: all members that errors can have, and those that a given error has. */
extern const struct wire_type failure_type;
struct failure failure_prune(const struct failure *failure);
