/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Reload: reads the configuration again while the daemon serves.
 *
 * The configuration names users and groups, and looking these up may need a network that does not
 * answer: so a thread reads, one at a time, and the loop takes the result. A caller that asks while
 * a thread reads gets the result of the next reading, which sees what was written until then. After
 * RELOAD_PATIENCE_USEC the callers are told so and wait no more; the reading counts nevertheless
 * when it is done. Event-loop thread only.
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

/* A signal asked for it: the result goes to the log, and systemd is told when it is over. */
void reload_signal(struct reload *reload);

/* A call asked for it, and is answered when it is over. Returns the cost. */
unsigned reload_call(struct reload *reload, struct session *session,
                     const struct varlink_call *call);
