/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Find: the processes that a job without a scope left behind, by their environments, which root
 * alone may read.
 */
#include "base/error.h"
#include "daemon/hand/hand.h"

/* Visit each process of the machine. What is read of the user's is bounded. */
int find_processes(const struct hand_find *find, struct hand_found *ret, struct allot_error *err);
