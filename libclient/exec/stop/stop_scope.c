/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/stop/stop_scope.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

int guard_begin(struct guard *guard, uint64_t until_nsec, struct cancel *cancel,
                const struct stop *stop, struct allot_error *err) {
    guard->cancel = cancel;
    guard->has_deadline = until_nsec > 0;
    if (guard->has_deadline) {
        int r = deadline_set(&guard->deadline, until_nsec, stop);

        if (r < 0)
            return error_set(err, r, "no thread to keep the time limit: %s", strerror(-r));
    }
    if (cancel)
        cancel_join(cancel, &guard->seat, stop);
    return 0;
}

int guard_end(struct guard *guard) {
    bool is_cancelled = guard->cancel && cancel_leave(guard->cancel, &guard->seat);

    if (guard->has_deadline && deadline_end(&guard->deadline))
        return -ETIMEDOUT;
    return is_cancelled ? -ECANCELED : 0;
}
