/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/stop/stop_scope.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

int stop_scope_begin(struct stop_scope *scope, uint64_t until_nsec, struct cancel *cancel,
                     const struct stop *stop, struct allot_error *err) {
    scope->cancel = cancel;
    scope->has_deadline = until_nsec > 0;
    if (scope->has_deadline) {
        int r = deadline_set(&scope->deadline, until_nsec, stop);

        if (r < 0)
            return error_set(err, r, "no thread for the time limit: %s", strerror(-r));
    }
    if (cancel)
        cancel_join(cancel, &scope->listener, stop);
    return 0;
}

int stop_scope_end(struct stop_scope *scope) {
    bool is_cancelled = scope->cancel && cancel_leave(scope->cancel, &scope->listener);

    if (scope->has_deadline && deadline_end(&scope->deadline))
        return -ETIMEDOUT;
    return is_cancelled ? -ECANCELED : 0;
}
