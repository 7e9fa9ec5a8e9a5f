/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/box/event.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/box/box.h"

void event_wake(struct box *box) {
    __atomic_add_fetch(&box->file->event_futex, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &box->file->event_futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void event_post(struct box *box, unsigned gpu, uint32_t gi_id, uint32_t ci_id, uint64_t type,
                uint64_t data) {
    const uint64_t seq = box->file->event_seq + 1;
    struct box_event *event = &box->file->event[seq % BOX_MAX_EVENTS];

    __atomic_store_n(&event->seq, 0, __ATOMIC_RELEASE); /* half written if we die here: skipped */
    event->at_us = box_now_us();
    event->type = type;
    event->data = data;
    event->gpu = gpu;
    event->gi_id = gi_id;
    event->ci_id = ci_id;
    __atomic_store_n(&event->seq, seq, __ATOMIC_RELEASE);
    __atomic_store_n(&box->file->event_seq, seq, __ATOMIC_RELEASE);
    event_wake(box);
}

uint64_t event_last(struct box *box) {
    return __atomic_load_n(&box->file->event_seq, __ATOMIC_ACQUIRE);
}

int event_next(struct box *box, uint64_t *cursor, struct box_event *ret) {
    const uint64_t last = box->file->event_seq;
    uint64_t seq = *cursor + 1;

    if (last >= BOX_MAX_EVENTS)
        seq = MAX(seq, last - BOX_MAX_EVENTS + 1);
    for (; seq <= last; seq++) {
        const struct box_event *event = &box->file->event[seq % BOX_MAX_EVENTS];

        *cursor = seq;
        if (event->seq != seq)
            continue;
        *ret = *event;
        return 0;
    }
    return -ENOENT;
}

int event_wait(struct box *box, uint32_t seen, uint32_t timeout_ms) {
    const struct timespec timeout = {
        .tv_sec = timeout_ms / 1000,
        .tv_nsec = timeout_ms % 1000 * 1000000L,
    };

    if (syscall(SYS_futex, &box->file->event_futex, FUTEX_WAIT, seen,
                timeout_ms == UINT32_MAX ? NULL : &timeout, NULL, 0) < 0 &&
        errno == ETIMEDOUT)
        return -ETIMEDOUT;
    return 0;
}
