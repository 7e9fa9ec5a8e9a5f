/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Pending: a call about a lease that cannot be answered at once, and what such calls have in
 * common.
 *
 * In session->call.data while its session is blocked on it; freed with the answer, or by
 * pending_cancel() when the connection ends before. Event-loop thread only.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/store.h"
#include "base/units.h"
#include "daemon/enforce/signal_request.h"
#include "daemon/hand/hand.h"
#include "daemon/server/session.h"

#define TOKEN_BYTES 24
#define TOKEN_SIZE  (2 * TOKEN_BYTES + 1)

struct pending {
    uint64_t waiter; /* of Acquire and Grow, in the queue; 0: not in it */
    struct signal_request *signal_request;
    char token[TOKEN_SIZE]; /* of Acquire; "": none will be given */
};

/* For session_block(). */
void pending_cancel(struct session *session);

/* Tell the client that the daemon is out of memory. Returns 1, the cost. */
unsigned pending_no_memory(struct session *session, const struct varlink_call *call);

/*
 * Whether the peer is a process that can hold something and is watched now. If not, it got an
 * error.
 */
bool pending_may_hold(struct session *session, const struct varlink_call *call);

/* The same, and whether promises can be recorded, so that the peer can get one. */
bool pending_may_promise(struct session *session, const struct varlink_call *call);

/* The device of a call, by UUID. If there is none, the peer got an error. */
bool pending_read_device(struct session *session, const struct varlink_call *call, const char *text,
                         struct gpuid *ret);

/* The shares of a lease as the wire has them, in `store`; NULL: no memory. */
const struct wire_share *pending_shares(struct store *store, const struct lease *lease,
                                        size_t *ret_n);

/* An amount or a time that may be left out. */
static inline uint64_t pending_limit(struct wire_maybe maybe) {
    return maybe.has ? (uint64_t)maybe.value : UNITS_FOREVER;
}
