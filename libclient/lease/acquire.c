/* SPDX-License-Identifier: Apache-2.0 */
/* From options to a request, from a request to a lease. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/lease/lease.h"

static struct wire_maybe given(uint64_t number) {
    return number ? wire_some(number) : (struct wire_maybe){ 0 };
}

static int make_amount(struct wire_amount *ret, const struct allot_lease_amount *amount,
                       struct allot_error *err) {
    static const enum wire_mode modes[] = {
        [ALLOT_LEASE_FRACTION] = WIRE_MODE_FRACTION,
        [ALLOT_LEASE_GROW] = WIRE_MODE_GROW,
        [ALLOT_LEASE_FIXED] = WIRE_MODE_FIXED,
        [ALLOT_LEASE_EXCLUSIVE] = WIRE_MODE_EXCLUSIVE,
    };

    if ((size_t)amount->mode >= ELEMENTSOF(modes) || !modes[amount->mode])
        return error_set(err, -EINVAL, "%d is not a lease mode", (int)amount->mode);
    *ret = (struct wire_amount){
        .mode = modes[amount->mode],
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
        return error_set(err, -ENOMEM, "out of memory for a request of %zu amounts", n);
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
    static const enum wire_choose chooses[] = {
        [ALLOT_LEASE_PACK] = WIRE_CHOOSE_PACK,
        [ALLOT_LEASE_SPREAD] = WIRE_CHOOSE_SPREAD,
        [ALLOT_LEASE_LINKS] = WIRE_CHOOSE_LINKS,
    };

    if (options->n_devices && !options->devices)
        return error_null(err, "array of devices");
    for (size_t i = 0; i < options->n_devices; i++)
        if (!options->devices[i])
            return error_null(err, "name of a device");
    if (options->n_amounts && !options->amounts)
        return error_null(err, "array of amounts");
    if ((size_t)options->choose >= ELEMENTSOF(chooses))
        return error_set(err, -EINVAL, "%d is not a way to choose devices", (int)options->choose);
    *ret = (struct wire_request){
        .name = options->name,
        .gpus = given(options->gpus),
        .devices = options->n_devices ? options->devices : NULL,
        .n_devices = options->n_devices,
        .choose = chooses[options->choose],
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

/* Keep what the grant says beyond this call. */
static int take_grant(struct allot_lease *lease, const struct wire_grant *grant,
                      struct allot_error *err) {
    lease->id = grant->lease;
    if (grant->token) {
        lease->token = strdup(grant->token);
        if (!lease->token)
            return error_set(err, -ENOMEM, "out of memory for a lease");
    }
    lease->environment = calloc(grant->n_environment + 1, sizeof(*lease->environment));
    if (!lease->environment)
        return error_set(err, -ENOMEM, "out of memory for a lease");
    for (size_t i = 0; i < grant->n_environment; i++) {
        struct lease_variable *variable = &lease->environment[lease->n_environment++];

        variable->name = strdup(grant->environment[i].name);
        variable->value = strdup(grant->environment[i].value);
        if (!variable->name || !variable->value)
            return error_set(err, -ENOMEM, "out of memory for a lease");
    }
    return 0;
}

/* ---- Asking --------------------------------------------------------------------------------- */

/* From now on; no longer than the call waits for the lease itself. */
static uint64_t away_deadline(const struct allot_lease_options *options) {
    uint64_t usec = options->reconnect_usec;

    if (options->no_wait)
        usec = MIN(usec, LEASE_HANGS_USEC);
    else if (options->timeout_usec)
        usec = MIN(usec, options->timeout_usec);
    return lease_deadline(usec);
}

static struct lease_wait wait_begin(const struct allot_lease_options *options) {
    uint64_t timeout_usec =
        options->timeout_usec && !options->no_wait ? options->timeout_usec : UINT64_MAX;

    return (struct lease_wait){
        .away_usec = away_deadline(options),
        /* In the queue: a little after the wait is to end. */
        .answer_usec = lease_later(lease_deadline(timeout_usec), LEASE_HANGS_USEC),
        .progress = options->progress,
        .userdata = options->userdata,
        .cancel_fd = options->cancel_fd,
    };
}

/* Send the request and wait for its last reply, reporting those before it. */
static int ask(struct client *client, const struct wire_request *request, struct lease_wait *wait,
               union wire_reply *reply, struct failure *failure, struct allot_error *err) {
    const struct wire_acquire call = { request };
    int r;

    *failure = (struct failure){ 0 };
    r = client_send(client, WIRE_METHOD_ACQUIRE, &call, VARLINK_MORE, err);
    if (r >= 0)
        r = lease_first_answer(client, WIRE_METHOD_ACQUIRE, wait, reply, failure, err);
    while (r > 0) {
        wait->in_line = true;
        if (wait->progress)
            wait->progress(wait->userdata,
                           reply->acquire.place.has ? (uint64_t)reply->acquire.place.value : 0,
                           reply->acquire.reason ? reply->acquire.reason : "");
        r = client_receive(client, WIRE_METHOD_ACQUIRE,
                           MAX(lease_left(wait->answer_usec), UINT64_C(1)), wait->cancel_fd, reply,
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
 * A daemon that restarts while we wait knows our place from its records, but our connection is
 * gone: reconnect and ask again. A daemon that never reports a place is waited for only once.
 */
static int ask_until_answered(struct client *client, struct wire_request *request,
                              const struct allot_lease_options *options, struct lease_wait *wait,
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
        if ((r == -ENOTCONN || r == -ECANCELED) && failure.code == FAILURE_NONE &&
            client_is_connected(client))
            return give_up(client, r, reply, err);
        if (r >= 0 || failure.code != FAILURE_NONE || client_is_connected(client) ||
            r == -EBADMSG || r == -EINVAL)
            return r;
        if (wait->in_line) {
            wait->in_line = wait->told_away = false;
            wait->away_usec = MIN(away_deadline(options), wait->answer_usec);
            if (wait->answer_usec != UINT64_MAX)
                request->timeout_usec = wire_some(lease_left(wait->answer_usec - LEASE_HANGS_USEC));
        }
        if (lease_left(wait->away_usec) == 0) /* a daemon that ends every connection */
            return err ? (err->code = -ENOTCONN) : -ENOTCONN;
        lease_tell_away(client_path(client), false, wait);
        r = lease_reach(client, wait, err);
    }
    return r;
}

/* No process will ever hold it. A daemon that hangs reads this when it goes on, if not before. */
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
    struct lease_wait wait;
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
    wait = wait_begin(&options);
    r = ask_until_answered(client, &request, &options, &wait, &reply, err);
    if (r < 0)
        return r;

    r = take_grant(lease, reply.acquire.grant, err);
    wait.away_usec = MIN(away_deadline(&options), wait.answer_usec);
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
    struct lease_wait wait;
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
            return error_set(err, -ENOMEM, "out of memory for a lease");
    }
    wait = lease_wait_begin(lease);
    wait.progress = options.progress;
    wait.userdata = options.userdata;
    wait.cancel_fd = options.cancel_fd;
    charger = id == job ? via_guard_charger(lease) : NULL;
    r = charger ? via_guard_hold(lease, charger, err) : lease_hold(lease, &wait, err);
    if (r < 0)
        return r;
    *ret = TAKE(lease);
    return 0;
}
