/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/fake-lease.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#pragma GCC visibility push(default)

struct fake_lease fake_lease = { .lock = PTHREAD_MUTEX_INITIALIZER };

int allot_lease_attach(struct allot_lease **ret, uint64_t id, const char *token,
                       const struct allot_lease_options *options, struct allot_error *err) {
    fake_lease.n_attached++;
    fake_lease.options = *options;
    fake_lease.attached_id = id;
    fake_lease.attached_token = token;
    if (fake_lease.attach_result < 0) {
        snprintf(err->text, sizeof(err->text), "%s", fake_lease.refusal);
        return fake_lease.attach_result;
    }
    if (fake_lease.n_attached == 1) {
        sem_init(&fake_lease.shrunk, 0, 0);
        sem_init(&fake_lease.shrinking, 0, 0);
        sem_init(&fake_lease.refused, 0, 0);
    }
    fake_lease.self = (struct allot_lease *)(void *)&fake_lease;
    *ret = fake_lease.self;
    return 0;
}

/* In a fork: the process that it was holds what it held, this one nothing. */
struct allot_lease *allot_lease_free(struct allot_lease *lease) {
    if (lease == fake_lease.self)
        fake_lease.n_freed++;
    memset(fake_lease.held_bytes, 0, sizeof(fake_lease.held_bytes));
    return NULL;
}

size_t allot_lease_shares(struct allot_lease *lease, struct allot_lease_share *ret, size_t n) {
    (void)lease;
    for (size_t i = 0; i < fake_lease.n_shares && i < n; i++)
        ret[i] = fake_lease.shares[i];
    return fake_lease.n_shares;
}

static size_t share_of(const char *device) {
    size_t i = 0;

    while (i < fake_lease.n_shares && strcmp(fake_lease.shares[i].device, device) != 0)
        i++;
    return i;
}

int allot_lease_grow_with(struct allot_lease *lease, const char *device, uint64_t bytes,
                          const struct allot_lease_patience *patience, struct allot_error *err) {
    struct fake_call call = { .bytes = bytes,
                              .timeout_usec = patience->timeout_usec,
                              .reconnect_usec = patience->reconnect_usec,
                              .hangs_usec = patience->hangs_usec,
                              .cancel_fd = patience->cancel_fd };
    uint64_t room;
    size_t i = share_of(device);
    int r = 0;

    if (lease != fake_lease.self || i == fake_lease.n_shares)
        return -EINVAL;
    pthread_mutex_lock(&fake_lease.lock);
    room = fake_lease.room_bytes + (patience->timeout_usec ? fake_lease.patient_bytes : 0);
    snprintf(call.device, sizeof(call.device), "%s", device);
    if (fake_lease.n_growths < FAKE_CALLS_MAX)
        fake_lease.growths[fake_lease.n_growths] = call;
    fake_lease.n_growths++;
    if (fake_lease.held_bytes[i] + bytes > room) {
        r = fake_lease.grow_result ? fake_lease.grow_result : -ENOSPC;
        if (err)
            snprintf(err->text, sizeof(err->text), "%s",
                     fake_lease.refusal ? fake_lease.refusal : "");
        if (fake_lease.holds_shrinks)
            sem_post(&fake_lease.refused);
    } else {
        fake_lease.held_bytes[i] += bytes;
    }
    pthread_mutex_unlock(&fake_lease.lock);
    return r;
}

int allot_lease_shrink(struct allot_lease *lease, const char *device, uint64_t bytes,
                       struct allot_error *err) {
    struct fake_call call = { .bytes = bytes };
    size_t i = share_of(device);
    int r = fake_lease.shrink_result;

    (void)err;
    if (lease != fake_lease.self || i == fake_lease.n_shares)
        return -EINVAL;
    if (fake_lease.holds_shrinks) {
        sem_post(&fake_lease.shrinking);
        while (sem_wait(&fake_lease.refused) < 0)
            ;
    }
    pthread_mutex_lock(&fake_lease.lock);
    snprintf(call.device, sizeof(call.device), "%s", device);
    if (fake_lease.n_shrinks < FAKE_CALLS_MAX)
        fake_lease.shrinks[fake_lease.n_shrinks] = call;
    fake_lease.n_shrinks++;
    if (r == 0 && bytes > fake_lease.held_bytes[i]) {
        fake_lease.n_overdrawn++;
        r = -EINVAL;
    }
    if (r == 0)
        fake_lease.held_bytes[i] -= bytes;
    pthread_mutex_unlock(&fake_lease.lock);
    sem_post(&fake_lease.shrunk);
    return r;
}

int allot_lease_held(struct allot_lease *lease, const char *device, uint64_t *ret_bytes,
                     struct allot_error *err) {
    size_t i = share_of(device);

    (void)err;
    fake_lease.n_held_asked++;
    if (lease != fake_lease.self || i == fake_lease.n_shares)
        return -EINVAL;
    if (fake_lease.held_result < 0)
        return fake_lease.held_result;
    *ret_bytes = fake_lease.held_bytes[i] + fake_lease.others_bytes;
    return 0;
}

#pragma GCC visibility pop
