/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Witness: a child of the hand that goes where a job goes and tries what must be refused there.
 *
 * It waits until it is told what to open, from inside the scope it was put into, and says how that
 * ended. Ends with the hand.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

struct witness {
    pid_t pid; /* 0: none */
    int socket;
};

#define WITNESS_INIT                                                                               \
    (struct witness) {                                                                             \
        .socket = -1                                                                               \
    }

int witness_start(struct witness *ret, struct allot_error *err);
/* Try to open a file there: 0 or the errno it got, in *ret_errno. */
int witness_open(struct witness *witness, const char *path, int *ret_errno,
                 struct allot_error *err);
/* Become another program there and say how it exited. The witness is gone afterwards. */
int witness_exec(struct witness *witness, const char *const *arguments, int *ret_status,
                 struct allot_error *err);
void witness_done(struct witness *witness);
