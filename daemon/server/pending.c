/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/pending.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/manager.h"
#include "daemon/server/methods.h"
#include "daemon/state/state.h"
#include "daemon/enforce/process_watch.h"

void pending_cancel(struct session *session) {
    struct pending *pending = session->call.data;

    if (pending->waiter && !session->manager->is_down)
        broker_cancel(session->manager->broker, pending->waiter, manager_now(session->manager));
    signal_request_forget(pending->signal_request);
    free(pending);
}

unsigned pending_no_memory(struct session *session, const struct varlink_call *call) {
    return methods_fail(session, call, FAILURE_BUSY,
                        "the daemon is out of memory: try again later");
}

bool pending_may_hold(struct session *session, const struct varlink_call *call) {
    int r;

    if (session->process.start == 0) {
        methods_fail(session, call, FAILURE_DENIED,
                     "the daemon cannot see your process: it has ended, or is in a pid namespace "
                     "outside of the daemon's; call from a process that the daemon can see");
        return false;
    }
    r = process_watch_begin(session->manager, &session->process);
    if (r == -ESRCH)
        methods_fail(session, call, FAILURE_DENIED,
                     "process %d, which opened this connection, has ended: connect again",
                     (int)session->process.pid);
    else if (r < 0)
        methods_fail(session, call, FAILURE_BUSY, "the daemon cannot watch your process: %s",
                     strerror(-r));
    return r >= 0;
}

bool pending_may_promise(struct session *session, const struct varlink_call *call) {
    struct allot_error err = { 0 };

    if (!state_is_ready(session->manager->state, &err)) {
        methods_fail(session, call, FAILURE_BUSY, "%s", err.text);
        return false;
    }
    return pending_may_hold(session, call);
}

/* The device of a call, by UUID. */
bool pending_read_device(struct session *session, const struct varlink_call *call, const char *text,
                         struct gpuid *ret) {
    if (gpuid_parse(ret, text) >= 0)
        return true;
    session_fail(session, call,
                 &(struct failure){ .code = FAILURE_INVALID_PARAMETER,
                                    .parameter = "device",
                                    .reason = "must be a UUID, as the shares of the lease have "
                                              "it: GPU-… or MIG-…" });
    return false;
}

/* The shares of a lease as the wire has them; NULL: no memory. */
const struct wire_share *pending_shares(struct store *store, const struct lease *lease,
                                        size_t *ret_n) {
    struct wire_share *shares = store_get(store, (lease->n_shares + 1) * sizeof(*shares));

    *ret_n = 0;
    for (uint32_t i = 0; shares && i < lease->n_shares; i++) {
        const struct share *share = &lease->shares[i];

        if (!share->book)
            continue;
        shares[(*ret_n)++] = (struct wire_share){
            .device = share->book->name,
            .limit_bytes = share->limit_bytes,
            .guaranteed_bytes = share->guaranteed_bytes,
            .held_bytes = share->held_bytes,
            .context_bytes = books_context(share),
            .used_bytes =
                share->seen_bytes ? wire_some(share->seen_bytes) : (struct wire_maybe){ 0 },
        };
    }
    return shares;
}
