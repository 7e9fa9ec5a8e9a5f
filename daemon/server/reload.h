/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Reload: the configuration is read again while the daemon serves.
 *
 * Users and groups have names in it, and those may come over a network that does not answer: so a
 * thread reads, one at a time, and the loop takes what it has read. A caller that asks while one
 * reads gets the result of the next reading, which sees what was written until then. After
 * RELOAD_PATIENCE_USEC the callers are told so and wait no more; what is read in the end counts all
 * the same. Event-loop thread only.
 */
#include <stdint.h>

#include "base/cleanup.h"

struct manager;
struct reload;
struct session;
struct varlink_call;

#define RELOAD_PATIENCE_USEC (UINT64_C(10) * 1000 * 1000)

int reload_new(struct reload **ret, struct manager *manager);
/* Does not wait for a thread that hangs: it keeps what it uses. Accepts NULL, returns NULL. */
struct reload *reload_free(struct reload *reload);
DEFINE_FREEP(struct reload, reload_freep, reload_free)

/* Told by a signal: what comes of it is in the log, and systemd hears when it is over. */
void reload_signal(struct reload *reload);

/* Told by a call, which is answered when it is over; what it costs. */
unsigned reload_call(struct reload *reload, struct session *session,
                     const struct varlink_call *call);
