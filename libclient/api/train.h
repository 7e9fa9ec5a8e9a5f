/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Train: for a model that is built again.
 */
#include "libclient/allot/train.h"

/* The same numbers, for `graph`, in which a rate that is computed has the same id; NULL: no host
 * memory, or the rate is not of the first `n` nodes. */
struct allot_optimizer *train_optimizer_again(const struct allot_optimizer *from,
                                              const struct allot_graph *graph, uint32_t n);
