/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Signals: to one process, surely that one, or to all of a lease's scope. See struct hand_signal.
 */
#include "base/error.h"
#include "daemon/hand/hand.h"
#include "daemon/hand/exec/nvml_reader.h"

int signal_send(struct nvml_reader *reader, const struct hand_signal *signal,
                struct hand_signalled *ret, struct allot_error *err);
