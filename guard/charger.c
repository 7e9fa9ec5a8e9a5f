/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Charger: the registered users of liballot in this process. The thread that receives a notice
 * calls them, one at a time; unregistering waits for a call that is in progress.
 */
#include "libclient/allot/charger.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "guard/credit.h"

struct registration {
    struct list in_registrations;
    allot_lease_notice_fn notice;
    void *userdata;
};

static struct list registrations = LIST_INIT(registrations);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int fail(struct allot_error *err, int code, const char *text) {
    if (err) {
        err->code = code;
        snprintf(err->text, sizeof(err->text), "%s", text);
    }
    return code;
}

static int join(void **ret_registration, allot_lease_notice_fn notice, void *userdata,
                struct allot_error *err) {
    struct registration *registration;

    if (credit_n_shares() == 0)
        return fail(err, -ENOTCONN,
                    "the guard could not attach to the lease of this job; its message on standard "
                    "error says why");
    registration = calloc(1, sizeof(*registration));
    if (!registration)
        return fail(err, -ENOMEM, "no host memory for a lease");
    registration->notice = notice;
    registration->userdata = userdata;
    pthread_mutex_lock(&lock);
    list_append(&registrations, &registration->in_registrations);
    pthread_mutex_unlock(&lock);
    *ret_registration = registration;
    return 0;
}

static void leave(void *given) {
    struct registration *registration = given;

    pthread_mutex_lock(&lock);
    list_remove(&registration->in_registrations);
    pthread_mutex_unlock(&lock);
    free(registration);
}

static void hear(const struct allot_lease_notice *notice) {
    struct registration *registration;

    pthread_mutex_lock(&lock);
    list_foreach (registration, &registrations, in_registrations)
        if (registration->notice)
            registration->notice(registration->userdata, notice);
    pthread_mutex_unlock(&lock);
}

static size_t shares(struct allot_lease_share *ret, size_t n) {
    size_t n_shares = (size_t)credit_n_shares();

    for (size_t i = 0; i < n_shares && i < n; i++) {
        ret[i] = (struct allot_lease_share){
            .limit_bytes = credit_limit((int)i),
            .guaranteed_bytes = credit_guaranteed((int)i),
            .context_bytes = credit_context((int)i),
        };
        snprintf(ret[i].device, sizeof(ret[i].device), "%s", credit_uuid((int)i));
    }
    return n_shares;
}

static int share_of(const char *device) {
    for (int i = 0; i < credit_n_shares(); i++)
        if (strcmp(credit_uuid(i), device) == 0)
            return i;
    return CREDIT_REFUSED;
}

static int reserve(const char *device, uint64_t bytes, const struct allot_lease_patience *patience,
                   struct allot_error *err) {
    int share = share_of(device);

    return share < 0 ? fail(err, -ENODEV, "the lease of this job has no such device")
                     : credit_reserve(share, bytes, patience, err);
}

static void unreserve(const char *device, uint64_t bytes) {
    int share = share_of(device);

    if (share >= 0)
        credit_unreserve(share, bytes);
}

static int held(const char *device, uint64_t *ret_bytes, struct allot_error *err) {
    int share = share_of(device);

    return share < 0 ? fail(err, -ENODEV, "the lease of this job has no such device")
                     : credit_held(share, ret_bytes, err);
}

/* liballot finds it by this name: ALLOT_CHARGER_SYMBOL. */
__attribute__((visibility("default"))) extern const struct allot_charger allot_guard_charger;
const struct allot_charger allot_guard_charger = {
    .version = ALLOT_CHARGER_VERSION,
    .join = join,
    .leave = leave,
    .shares = shares,
    .reserve = reserve,
    .unreserve = unreserve,
    .held = held,
};

/* A forked child registers its own users. The parent's entries are left alone: another thread may
 * have been changing the list. */
static void after_fork(void) {
    pthread_mutex_init(&lock, NULL);
    list_init(&registrations);
}

__attribute__((constructor)) static void begin(void) {
    credit_on_notice(hear);
    pthread_atfork(NULL, NULL, after_fork);
}
