/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Events: a thread that waits for the driver's events and tells them as they come.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "daemon/hand/reader/device_reader.h"
#include "daemon/broker/sample.h"

struct events_listener;

/* Called from the listener's thread. */
typedef void (*events_listener_fn)(void *userdata, const struct sample_event *event);

/*
 * Listen to every open device of `devices`. `is_changed` is set with each event; it and `nvml` must
 * outlive the listener. -EOPNOTSUPP: none of them reports events.
 */
int events_listener_new(struct events_listener **ret, const struct nvml *nvml,
                        const struct device_reader *devices, size_t n, atomic_bool *is_changed,
                        events_listener_fn tell, void *userdata);
struct events_listener *events_listener_free(
    struct events_listener *listener); /* waits for the thread; accepts NULL */

/* Whether it listens to exactly these. */
bool events_listener_fits(const struct events_listener *listener,
                          const struct device_reader *devices, size_t n);
