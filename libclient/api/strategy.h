/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Strategy: for a model that is built again when it has lost a device.
 */
#include <stddef.h>

#include "libclient/allot/strategy.h"

/* A strategy with the same scope over `graph`, which is that of `from` or a copy of it
 * (graph/copy.h), with other devices. NULL: the error is in the graph. */
struct allot_strategy *strategy_again(const struct allot_strategy *from, struct allot_graph *graph,
                                      const char *const *devices, size_t n);
/* By replica; borrowed. */
const char *const *strategy_devices(const struct allot_strategy *strategy);
