/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Signals: to one process, surely that one, or to all of a lease's scope. See struct hand_signal.
 */
#include "base/error.h"
#include "daemon/hand/hand.h"

int signal_send(const struct hand_signal *signal, struct hand_signalled *ret,
                struct allot_error *err);
