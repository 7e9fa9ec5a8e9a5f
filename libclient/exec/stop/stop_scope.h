/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stop scope: what may stop a run from outside, a deadline or a cancellation, during one part of
 * it.
 */
#include <stdbool.h>
#include <stdint.h>

#include "libclient/exec/stop/cancel.h"
#include "libclient/exec/stop/deadline.h"

struct allot_error;

struct stop_scope {
    struct cancel *cancel; /* NULL: none */
    struct cancel_listener listener;
    bool has_deadline;
    struct deadline deadline;
};

/* `until_nsec` of CLOCK_MONOTONIC, 0: no limit; `cancel` may be NULL. -EAGAIN. */
int stop_scope_begin(struct stop_scope *scope, uint64_t until_nsec, struct cancel *cancel,
                     const struct stop *stop, struct allot_error *err);
/* -ETIMEDOUT, -ECANCELED, or 0: it was not stopped. */
int stop_scope_end(struct stop_scope *scope);
