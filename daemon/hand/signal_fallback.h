/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Signal fallback: signals that do not wait for a hand that is busy.
 *
 * A hand does one thing after the other, so one that waits for systemd sends no signals meanwhile.
 * A second hand then sends them: it is started for this purpose and ends when nothing is left to
 * do. Embedded in struct hand; event-loop thread only.
 */
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "daemon/hand/hand.h"
#include "daemon/hand/link.h"

struct sd_event_source;

struct signal_fallback {
    struct sd_event *event; /* borrowed */
    enum driver_choice driver;
    uint64_t timeout_usec;
    struct hand_link link;
    struct sd_event_source *io, *deadline;
    struct list queue; /* the first one is out, once the hand was greeted */
    uint64_t serial;
};

/* As hand_link_init(). -ENOMEM. */
int signal_fallback_init(struct signal_fallback *fallback, const struct hand_options *options,
                         uint64_t timeout_usec);
void signal_fallback_done(
    struct signal_fallback *fallback); /* also of zeroed memory; drops what is open */

/*
 * Send it. 0: `done` will be called once, from the loop; as hand_signal() otherwise.
 */
int signal_fallback_send(struct signal_fallback *fallback, const struct hand_signal *signal,
                         hand_fn done, void *userdata);
