/* SPDX-License-Identifier: Apache-2.0 */
/* Acquire: makes a request from options, and a lease from its grant. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/lease/lease.h"

/* However long the daemon says that it is busy, it is asked again after this time. */
#define RETRY_MAX_USEC UINT64_C(60000000)

static struct wire_maybe given(uint64_t number) {
    return number ? wire_some(number) : (struct wire_maybe){ 0 };
}

/* The public enums have the same values as those of the wire. */
#define X(name, value, word) _Static_assert((int)ALLOT_LEASE_##name == (int)LEASE_##name, word);
LEASE_MODES(X)
#undef X
#define X(name, value, word) _Static_assert((int)ALLOT_LEASE_##name == (int)CHOICE_##name, word);
CHOICES(X)
#undef X

static int make_amount(struct wire_amount *ret, const struct allot_lease_amount *amount,
                       struct allot_error *err) {
    if (amount->mode == ALLOT_LEASE_DEFAULT || (unsigned)amount->mode > ALLOT_LEASE_EXCLUSIVE)
        return error_set(err, -EINVAL, "%d is not a lease mode", (int)amount->mode);
    *ret = (struct wire_amount){
        .mode = (enum lease_mode)amount->mode,
        .permyriad = given(amount->permyriad),
        .bytes = given(amount->bytes),
        .min_bytes = given(amount->min_bytes),
        .max_bytes = given(amount->max_bytes),
    };
    return 0;
}

/* The amounts of a request, in one array; none where the administrator's default is wanted. */
static int make_amounts(struct wire_request *request, const struct allot_lease_options *options,
                        struct wire_amount **ret, struct allot_error *err) {
    size_t n = options->n_amounts ? options->n_amounts : 1;
    struct wire_amount *amounts;
    int r = 0;

    if (!options->n_amounts && options->amount.mode == ALLOT_LEASE_DEFAULT)
        return 0;
    amounts = calloc(n, sizeof(*amounts));
    if (!amounts)
        return error_set(err, -ENOMEM, "no host memory for a request of %zu amounts", n);
    for (size_t i = 0; i < n && r >= 0; i++)
        r = make_amount(&amounts[i], options->n_amounts ? &options->amounts[i] : &options->amount,
                        err);
    *ret = amounts;
    if (options->n_amounts) {
        request->amounts = amounts;
        request->n_amounts = n;
    } else {
        request->amount = amounts;
    }
    return r;
}

static int make_request(struct wire_request *ret, const struct allot_lease_options *options,
                        struct wire_amount **ret_amounts, struct allot_error *err) {
    if (options->n_devices && !options->devices)
        return error_null(err, "array of devices");
    for (size_t i = 0; i < options->n_devices; i++)
        if (!options->devices[i])
            return error_null(err, "name of a device");
    if (options->n_amounts && !options->amounts)
        return error_null(err, "array of amounts");
    if ((unsigned)options->choose > ALLOT_LEASE_LINKS)
        return error_set(err, -EINVAL, "%d is not a way to choose devices", (int)options->choose);
    *ret = (struct wire_request){
        .name = options->name,
        .gpus = given(options->gpus),
        .devices = options->n_devices ? options->devices : NULL,
        .n_devices = options->n_devices,
        .choose = (enum choice)options->choose,
        .visible_devices = options->visible_devices,
        .device_order = options->device_order,
        .wait = wire_some(!options->no_wait),
        .timeout_usec = given(options->timeout_usec),
        .time_limit_usec = given(options->time_limit_usec),
        /* A process that runs already cannot be put in a scope of its own: the token shows that it
         * belongs to the lease. */
        .confine = wire_some(0),
    };
    if (options->has_priority)
        ret->priority = (struct wire_maybe){ true, options->priority };
    if (!ret->visible_devices)
        ret->visible_devices = getenv("CUDA_VISIBLE_DEVICES");
    if (!ret->device_order)
        ret->device_order = getenv("CUDA_DEVICE_ORDER");
    return make_amounts(ret, options, ret_amounts, err);
}

/* Copy the grant, which ends with this call, into the lease. */
static int take_grant(struct allot_lease *lease, const struct wire_grant *grant,
                      struct allot_error *err) {
    lease->id = grant->lease;
    if (grant->token) {
        lease->token = strdup(grant->token);
        if (!lease->token)
            return error_set(err, -ENOMEM, "no host memory for a lease");
    }
    lease->environment = calloc(grant->n_environment + 1, sizeof(*lease->environment));
    if (!lease->environment)
        return error_set(err, -ENOMEM, "no host memory for a lease");
    for (size_t i = 0; i < grant->n_environment; i++) {
        struct lease_variable *variable = &lease->environment[lease->n_environment++];

        variable->name = strdup(grant->environment[i].name);
        variable->value = strdup(grant->environment[i].value);
        if (!variable->name || !variable->value)
            return error_set(err, -ENOMEM, "no host memory for a lease");
    }
    return 0;
}

/* ---- Asking --------------------------------------------------------------------------------- */

/* When to give up on a daemon that is away: never later than the call would wait for the lease. */
static uint64_t away_deadline(const struct allot_lease_options *options) {
    uint64_t usec = options->reconnect_usec;

    if (options->no_wait)
        usec = MIN(usec, LEASE_HANGS_USEC);
    else if (options->timeout_usec)
        usec = MIN(usec, options->timeout_usec);
    return wait_deadline(usec);
}

static struct wait wait_for_lease(const struct allot_lease_options *options) {
    struct wait wait = wait_begin(UINT64_MAX, NULL);

    if (options->timeout_usec && !options->no_wait)
        wait.until_nsec = wait_deadline(options->timeout_usec);
    wait.away_nsec = away_deadline(options);
    /* In the queue, the answer is due a little after the end of the wait. */
    wait.answer_nsec = wait_later(wait.until_nsec, LEASE_HANGS_USEC);
    wait.progress = options->progress;
    wait.userdata = options->userdata;
    wait.fd = options->cancel_fd;
    return wait;
}

/* Send the request and wait for its last reply, reporting those before it. */
static int ask(struct client *client, const struct wire_request *request, struct wait *wait,
               union wire_reply *reply, struct failure *failure, struct allot_error *err) {
    const struct wire_acquire call = { request };
    int r;

    *failure = (struct failure){ 0 };
    r = client_send(client, WIRE_METHOD_ACQUIRE, &call, VARLINK_MORE, err);
    if (r >= 0)
        r = lease_first_answer(client, WIRE_METHOD_ACQUIRE, wait, reply, failure, err);
    while (r > 0) {
        wait->is_queued = true;
        if (wait->progress)
            wait->progress(wait->userdata,
                           reply->acquire.place.has ? (uint64_t)reply->acquire.place.value : 0,
                           reply->acquire.reason ? reply->acquire.reason : "");
        r = client_receive(client, WIRE_METHOD_ACQUIRE,
                           MAX(wait_left_usec(wait->answer_nsec), UINT64_C(1)), wait->fd, reply,
                           failure, err);
        if (r == -ETIMEDOUT && failure->code == FAILURE_NONE)
            r = client_silent(client_path(client), err);
    }
    if (r == 0 && !reply->acquire.grant)
        return error_set(err, -EPROTO, "the daemon answered Acquire without a grant");
    return r;
}

/*
 * The caller stops waiting, for the reason `why`. The daemon may answer just now: it does not grant
 * a lease that it cannot tell us of (docs/wire.md), and one that it has told us of is ours.
 */
static int give_up(struct client *client, int why, union wire_reply *reply,
                   struct allot_error *err) {
    struct allot_error last = { 0 };
    struct failure failure;
    int r;

    client_hang_up(client);
    do
        r = client_receive(client, WIRE_METHOD_ACQUIRE, 0, -1, reply, &failure, &last);
    while (r > 0);
    if (r == 0 && reply->acquire.grant)
        return 0;
    if (failure.code == FAILURE_NONE)
        return why;
    if (err)
        *err = last;
    return r;
}

/*
 * The daemon is busy and says when to ask again: wait until then, if the wait may take so long. 1:
 * ask again; -ECANCELED: the caller does not want it any more; 0: the refusal stands.
 */
static int wait_to_retry(const struct failure *failure, const struct allot_lease_options *options,
                         const struct wait *wait, struct wire_request *request,
                         struct allot_error *err) {
    uint64_t usec = MIN((uint64_t)failure->retry_usec.value, RETRY_MAX_USEC);
    struct pollfd cancel = { .fd = wait->fd, .events = POLLIN };
    uint64_t until_nsec = wait_deadline(usec);

    if (failure->code != FAILURE_BUSY || !failure->retry_usec.has || options->no_wait ||
        until_nsec >= wait->until_nsec)
        return 0;
    if (wait->progress)
        wait->progress(wait->userdata, 0, failure->reason ? failure->reason : "");
    while ((usec = wait_left_usec(until_nsec)) > 0)
        if (poll(&cancel, 1, (int)((usec + 999) / 1000)) > 0)
            return error_set(err, -ECANCELED, "the request was called off");
    if (wait->until_nsec != UINT64_MAX)
        request->timeout_usec = wire_some(wait_left_usec(wait->until_nsec));
    return 1;
}

/*
 * A daemon that restarts while we wait knows our place from its records, but our connection is
 * gone: reconnect and ask again. If the daemon never reports a place, this happens only once.
 */
static int ask_until_answered(struct client *client, struct wire_request *request,
                              const struct allot_lease_options *options, struct wait *wait,
                              union wire_reply *reply, struct allot_error *err) {
    struct failure failure;
    int r;

    r = client_connect(client, err);
    if (r == -ENOENT || r == -ECONNREFUSED)
        return err ? (err->code = -ENOTCONN) : -ENOTCONN;
    if (r == -EAGAIN)
        r = lease_reach(client, wait, err);
    while (r >= 0) {
        r = ask(client, request, wait, reply, &failure, err);
        if (r < 0) {
            int again = wait_to_retry(&failure, options, wait, request, err);

            if (again < 0)
                return again;
            if (again > 0) {
                r = 0;
                continue;
            }
        }
        if ((r == -ENOTCONN || r == -ECANCELED) && failure.code == FAILURE_NONE &&
            client_is_connected(client))
            return give_up(client, r, reply, err);
        if (r >= 0 || failure.code != FAILURE_NONE || client_is_connected(client) ||
            r == -EBADMSG || r == -EINVAL)
            return r;
        if (wait->is_queued) {
            wait->is_queued = wait->told_away = false;
            wait->away_nsec = MIN(away_deadline(options), wait->answer_nsec);
            if (wait->until_nsec != UINT64_MAX)
                request->timeout_usec = wire_some(wait_left_usec(wait->until_nsec));
        }
        if (wait_left_usec(wait->away_nsec) == 0) /* a daemon that ends every connection */
            return err ? (err->code = -ENOTCONN) : -ENOTCONN;
        lease_tell_away(client_path(client), false, wait);
        r = lease_reach(client, wait, err);
    }
    return r;
}

/* Release a lease that no process will hold. A daemon that hangs reads this when it goes on. */
static void give_away(struct client *client, uint64_t id, bool is_silent) {
    client_close(client);
    if (client_connect(client, NULL) >= 0)
        client_call(client, WIRE_METHOD_RELEASE, &(struct wire_release){ id },
                    is_silent ? 1 : LEASE_HANGS_USEC, NULL, NULL, NULL);
}

int allot_lease_acquire(struct allot_lease **ret, const struct allot_lease_options *given_options,
                        struct allot_error *err) {
    cleanup(client_freep) struct client *client = NULL;
    cleanup(lease_freep) struct allot_lease *lease = NULL;
    cleanup(freep) struct wire_amount *amounts = NULL;
    struct allot_lease_options options;
    struct wire_request request;
    union wire_reply reply;
    struct wait wait;
    int r;

    r = ret ? lease_options_take(&options, given_options, err)
            : error_null(err, "place for a lease");
    if (r >= 0)
        r = make_request(&request, &options, &amounts, err);
    if (r >= 0)
        r = lease_new(&lease, &options, err);
    if (r >= 0)
        r = client_new(&client, lease->path, err);
    if (r < 0)
        return r;
    wait = wait_for_lease(&options);
    r = ask_until_answered(client, &request, &options, &wait, &reply, err);
    if (r < 0)
        return r;

    r = take_grant(lease, reply.acquire.grant, err);
    wait.away_nsec = MIN(away_deadline(&options), wait.answer_nsec);
    wait.told_away = false;
    if (r >= 0)
        r = lease_hold(lease, &wait, err);
    if (r < 0) {
        give_away(client, lease->id, r == -ENOTCONN || r == -ECANCELED);
        return r;
    }
    *ret = TAKE(lease);
    return 0;
}

/* ALLOT_LEASE of the environment; 0: this process belongs to no job. */
static uint64_t job_lease(void) {
    const char *text = secure_getenv("ALLOT_LEASE");
    char *end = NULL;
    uint64_t id;

    if (!text || *text < '0' || *text > '9')
        return 0;
    errno = 0;
    id = strtoull(text, &end, 10);
    return errno || *end || id > INT64_MAX ? 0 : id;
}

int allot_lease_attach(struct allot_lease **ret, uint64_t id, const char *token,
                       const struct allot_lease_options *given_options, struct allot_error *err) {
    cleanup(lease_freep) struct allot_lease *lease = NULL;
    struct allot_lease_options options;
    const struct allot_charger *charger;
    uint64_t job = job_lease();
    struct wait wait;
    int r;

    if (!ret)
        return error_null(err, "place for a lease");
    if (!id && !job)
        return error_set(err, -ENOENT,
                         "this process belongs to no lease (ALLOT_LEASE is not set): start it by "
                         "gpuctl run, or acquire one");
    id = id ? id : job;
    if (!token && id == job)
        token = secure_getenv("ALLOT_TOKEN");
    r = lease_options_take(&options, given_options, err);
    if (r >= 0)
        r = lease_new(&lease, &options, err);
    if (r < 0)
        return r;
    lease->id = id;
    if (token) {
        lease->token = strdup(token);
        if (!lease->token)
            return error_set(err, -ENOMEM, "no host memory for a lease");
    }
    wait = lease_wait_begin(lease);
    wait.progress = options.progress;
    wait.userdata = options.userdata;
    wait.fd = options.cancel_fd;
    charger = id == job ? via_guard_charger(lease) : NULL;
    r = charger ? via_guard_hold(lease, charger, err) : lease_hold(lease, &wait, err);
    if (r < 0)
        return r;
    *ret = TAKE(lease);
    return 0;
}
