/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Probe child: a child of the hand that goes where a job goes and tries what must be refused there.
 *
 * It waits until it is told what to open, from inside the scope it was put into, and says how that
 * ended; or it becomes another program. Ends with the hand.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

struct probe_child {
    pid_t pid; /* 0: none */
    int socket;
};

#define PROBE_CHILD_INIT                                                                           \
    (struct probe_child) {                                                                         \
        .socket = -1                                                                               \
    }

int probe_child_start(struct probe_child *ret, struct allot_error *err);
/* Try to open a file there: 0 or the errno it got, in *ret_errno. */
int probe_child_open(struct probe_child *child, const char *path, int *ret_errno,
                     struct allot_error *err);

/* The first words of a program, safe to show. */
struct probe_child_output {
    char text[160];
};

/* Become another program there and say how it exited. The child is gone afterwards. */
int probe_child_exec(struct probe_child *child, const char *const *arguments, int *ret_status,
                     struct probe_child_output *ret, struct allot_error *err);
/* Ends it; one that is stuck in the kernel is left to itself. */
void probe_child_done(struct probe_child *child);
