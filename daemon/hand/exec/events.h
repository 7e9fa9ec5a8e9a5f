/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Listener: a thread that waits for the driver's events and tells them as they come.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "daemon/hand/exec/device_reader.h"
#include "daemon/broker/sample.h"

struct listener;

/* Called from the listener's thread. */
typedef void (*listener_fn)(void *userdata, const struct sample_event *event);

/*
 * Listen to every open device of `known`. `is_changed` is set with each event; it and `nvml` must
 * outlive the listener. -EOPNOTSUPP: none of them reports events.
 */
int listener_new(struct listener **ret, const struct nvml *nvml, const struct known *known,
                 size_t n, atomic_bool *is_changed, listener_fn tell, void *userdata);
struct listener *listener_free(struct listener *listener); /* waits for the thread; accepts NULL */

/* Whether it listens to exactly these. */
bool listener_fits(const struct listener *listener, const struct known *known, size_t n);
