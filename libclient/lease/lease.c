/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/lease/lease.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECONNECT_USEC UINT64_C(60000000)

int lease_struct_take(void *ret, size_t size, const void *given, size_t given_size,
                      struct allot_error *err) {
    if (given_size <= sizeof(size_t))
        return error_set(err, -EINVAL,
                         "the options of a lease, or of its growth, begin with their initialiser, "
                         "such as ALLOT_LEASE_OPTIONS_INIT");
    /* Fields that a newer caller adds are unknown here; where one is set, report it. */
    for (size_t i = size; i < given_size; i++)
        if (((const char *)given)[i] != 0)
            return error_set(err, -EINVAL,
                             "the options of a lease ask for something that this liballot is too "
                             "old for; install a newer one");
    memcpy(ret, given, MIN(given_size, size));
    return 0;
}

int lease_options_take(struct allot_lease_options *ret, const struct allot_lease_options *given,
                       struct allot_error *err) {
    struct allot_lease_options options = ALLOT_LEASE_OPTIONS_INIT;
    int r;

    if (given) {
        r = lease_struct_take(&options, sizeof(options), given, given->size, err);
        if (r < 0)
            return r;
    }
    options.size = sizeof(options);
    if (options.reconnect_usec == 0)
        options.reconnect_usec = RECONNECT_USEC;
    *ret = options;
    return 0;
}

void lease_set_state(struct allot_lease *lease, enum lease_state state) {
    lease->state = state;
    if (state == LEASE_AWAY)
        lease_event_lower(&lease->there);
    else
        lease_event_raise(&lease->there);
}

static int locks_init(struct allot_lease *lease) {
    pthread_condattr_t attributes;
    int r;

    r = pthread_mutex_init(&lease->lock, NULL);
    if (r != 0)
        return -r;
    r = pthread_condattr_init(&attributes);
    if (r == 0) {
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        r = pthread_cond_init(&lease->changed, &attributes);
        pthread_condattr_destroy(&attributes);
    }
    if (r != 0)
        pthread_mutex_destroy(&lease->lock);
    return -r;
}

/* Set up what a process needs to hold a lease: lock, events and thread. */
static int process_init(struct allot_lease *lease, struct allot_error *err) {
    int wake_r, interrupt_r, there_r, r;

    lease->pid = getpid();
    lease->state = LEASE_AWAY;
    lease->stop = lease->again = lease->has_thread = false;
    lease->telling = lease->changed_since = lease->silent = false;
    lease->n_calls = lease->n_idle = 0;
    list_init(&lease->calls);
    /* Set up all three in any case, so that each can be released. */
    wake_r = lease_event_init(&lease->wake);
    interrupt_r = lease_event_init(&lease->interrupt);
    there_r = lease_event_init(&lease->there);
    r = MIN(wake_r, interrupt_r);
    r = MIN(r, there_r);
    return r < 0 ? error_set(err, r, "cannot watch a lease: %s", strerror(-r)) : 0;
}

int lease_new(struct allot_lease **ret, const struct allot_lease_options *options,
              struct allot_error *err) {
    struct allot_lease *lease = calloc(1, sizeof(*lease));
    int r;

    if (!lease)
        return error_set(err, -ENOMEM, "no host memory for a lease");
    r = locks_init(lease);
    if (r < 0) {
        free(lease);
        return error_set(err, r, "cannot make a lease: %s", strerror(-r));
    }
    lease->options = *options;
    r = process_init(lease, err);
    if (r >= 0)
        r = client_new(&lease->holder, options->socket, err);
    if (r >= 0) {
        lease->path = strdup(client_path(lease->holder));
        if (!lease->path)
            r = error_set(err, -ENOMEM, "no host memory for a lease");
    }
    if (r < 0) {
        allot_lease_free(lease);
        return r;
    }
    *ret = lease;
    return 0;
}

struct allot_lease *allot_lease_free(struct allot_lease *lease) {
    if (!lease)
        return NULL;
    if (lease->pid == getpid()) {
        /* In a notice callback the thread would wait for itself: do not join it. */
        if (lease->has_thread && pthread_equal(lease->thread, pthread_self()))
            return NULL;
        lease_let_go(lease);
        lease_calls_free(lease);
        client_free(lease->holder);
        pthread_cond_destroy(&lease->changed);
        pthread_mutex_destroy(&lease->lock);
    } else {
        lease_calls_abandon(lease);
        client_abandon(lease->holder);
        client_free(lease->holder);
    }
    lease_event_done(&lease->wake);
    lease_event_done(&lease->interrupt);
    lease_event_done(&lease->there);
    for (size_t i = 0; i < lease->n_environment; i++) {
        free(lease->environment[i].name);
        free(lease->environment[i].value);
    }
    free(lease->environment);
    free(lease->shares);
    free(lease->token);
    free(lease->path);
    free(lease);
    return NULL;
}

int lease_check_process(const struct allot_lease *lease, struct allot_error *err) {
    if (!lease)
        return error_null(err, "lease");
    if (lease->pid == getpid())
        return 0;
    return error_set(err, -ECHILD,
                     "lease %ju is held by process %d, of which this is a fork: call "
                     "allot_lease_reattach() in the child first",
                     (uintmax_t)lease->id, (int)lease->pid);
}

int allot_lease_reattach(struct allot_lease *lease, struct allot_error *err) {
    struct wait wait;
    int r;

    if (!lease)
        return lease_check_process(NULL, err);
    if (lease->pid == getpid())
        return error_set(err, -EALREADY, "this process holds lease %ju already",
                         (uintmax_t)lease->id);

    /* The lock may be held by a thread that does not exist in the child: everything shared is made
     * anew. */
    lease_calls_abandon(lease);
    client_abandon(lease->holder);
    lease_event_done(&lease->wake);
    lease_event_done(&lease->interrupt);
    lease_event_done(&lease->there);
    r = locks_init(lease);
    if (r < 0)
        return error_set(err, r, "cannot hold a lease: %s", strerror(-r));
    r = process_init(lease, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < lease->n_shares; i++)
        lease->shares[i].held_bytes = 0;
    wait = lease_wait_begin(lease);
    return lease->charger ? via_guard_hold(lease, lease->charger, err)
                          : lease_hold(lease, &wait, err);
}

uint64_t allot_lease_id(const struct allot_lease *lease) {
    return lease ? lease->id : 0;
}

size_t allot_lease_shares(struct allot_lease *lease, struct allot_lease_share *ret, size_t n) {
    size_t n_shares;

    if (lease_check_process(lease, NULL) < 0)
        return 0;
    pthread_mutex_lock(&lease->lock);
    n_shares = lease->n_shares;
    if (ret && n_shares > 0)
        memcpy(ret, lease->shares, MIN(n, n_shares) * sizeof(*ret));
    pthread_mutex_unlock(&lease->lock);
    return n_shares;
}

int allot_lease_environment(const struct allot_lease *lease, size_t i, const char **ret_name,
                            const char **ret_value) {
    if (!lease || !ret_name || !ret_value)
        return -EINVAL;
    if (i >= lease->n_environment)
        return -ENOENT;
    *ret_name = lease->environment[i].name;
    *ret_value = lease->environment[i].value;
    return 0;
}

int lease_find_share(struct allot_lease *lease, const char *device, struct allot_lease_share **ret,
                     struct allot_error *err) {
    if (!device) {
        if (lease->n_shares != 1)
            return error_set(err, -EINVAL, "lease %ju has %zu devices: name one of them",
                             (uintmax_t)lease->id, lease->n_shares);
        *ret = &lease->shares[0];
        return 0;
    }
    for (size_t i = 0; i < lease->n_shares; i++)
        if (strcmp(lease->shares[i].device, device) == 0) {
            *ret = &lease->shares[i];
            return 0;
        }
    return error_set(err, -ENODEV, "%.96s is not a device of lease %ju", device,
                     (uintmax_t)lease->id);
}
