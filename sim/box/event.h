/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Event: events for processes that wait through NVML, in a ring of the last BOX_MAX_EVENTS.
 */
#include <stdint.h>

struct box;
struct box_event;

/* Append an event and wake all waiters. Needs the lock. `type` is an nvmlEventType… bit. */
void event_post(struct box *box, unsigned gpu, uint32_t gi_id, uint32_t ci_id, uint64_t type,
                uint64_t data);
/* The number of the last event: where a new reader begins. */
uint64_t event_last(struct box *box);
/*
 * The first event after `*cursor`, which then is its number; events overwritten before they were
 * read are skipped. -ENOENT: none yet. Needs the lock.
 */
int event_next(struct box *box, uint64_t *cursor, struct box_event *ret);
/* Wake the threads that sleep in event_wait(), with or without news for them. */
void event_wake(struct box *box);
/* Sleep until something is posted after `seen` (a value of event_futex read under the lock) or
 * `timeout_ms` have passed (UINT32_MAX: for ever). Without the lock. 0 or -ETIMEDOUT. */
int event_wait(struct box *box, uint32_t seen, uint32_t timeout_ms);
