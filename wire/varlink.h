/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Varlink: the envelope around a message, for both ends, and what every Varlink service answers.
 *
 *     {"method":"io.allot.Manager.Grow","parameters":{…},"more":true}
 *     {"parameters":{…},"continues":true}
 *     {"error":"io.allot.Manager.NoMemory","parameters":{"reason":"…"}}
 *
 * Pure: texts in, structs out, and back; sockets are wire/frame's and wire/client's.
 */
#include <stdbool.h>
#include <stddef.h>

#include "wire/failure.h"
#include "wire/message.h"

#define VARLINK_INTERFACE "io.allot.Manager"

/* Methods of org.varlink.service, numbered after our own; WIRE_METHODS itself is not used. */
enum {
    VARLINK_GET_INFO = WIRE_METHODS + 1,
    VARLINK_GET_INTERFACE_DESCRIPTION,
};

struct varlink_call {
    unsigned method; /* enum wire_method, or one of the two above; WIRE_METHODS: not known */
    bool more;       /* the caller accepts several replies */
    bool oneway;     /* the caller wants no reply: write nothing, not even errors */
    union wire_call parameters;
    const char *interface; /* of VARLINK_GET_INTERFACE_DESCRIPTION */
};

/*
 * Read one call from text[0..n), which is changed. 0; otherwise send `failure` as the answer
 * (unless `ret->oneway`, which is set in any case): -EINVAL or -EOPNOTSUPP: the connection goes on;
 * -EBADMSG: no call at all (no JSON, no object, no method): answer and close, because what follows
 * cannot be trusted; -ENOMEM. The failure's texts are in the store or constant.
 */
int varlink_call_read(struct varlink_call *ret, char *text, size_t n, struct store *store,
                      struct failure *failure);

/* Write one reply; `reply` is the struct of the method's reply. `continues`: more will follow. */
void varlink_reply_write(struct json_writer *w, unsigned method, const void *reply, bool continues);
void varlink_failure_write(struct json_writer *w, const struct failure *failure);

/* Answer one of the two methods of org.varlink.service, or write its failure. */
struct varlink_service {
    const char *vendor;
    const char *product;
    const char *version;
    const char *url;
};
void varlink_service_reply_write(struct json_writer *w, const struct varlink_call *call,
                                 const struct varlink_service *service);

/* The whole of daemon/io.allot.Manager.varlink. */
extern const char varlink_interface_text[];

/* ---- The caller's side -------------------------------------------------------------------------
 */

enum varlink_flags {
    VARLINK_MORE = 1 << 0,
    VARLINK_ONEWAY = 1 << 1,
};

/* `parameters` is the struct of the method's call; NULL for a method that has none. */
void varlink_call_write(struct json_writer *w, enum wire_method method, const void *parameters,
                        enum varlink_flags flags);

/*
 * Read one reply to `method`. 1: `ret` is filled and more replies follow; 0: it was the last;
 * -EREMOTEIO: the daemon answered with `failure`; -EBADMSG, -EINVAL: no reply of this method, `err`
 * says what is wrong; -ENOMEM.
 */
int varlink_reply_read(union wire_reply *ret, struct failure *failure, enum wire_method method,
                       char *text, size_t n, struct store *store, struct allot_error *err);
