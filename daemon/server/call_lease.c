/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of clients that have a lease: attach to it, be confined, grow, shrink, release, kill.
 * Grow may have to wait, as Acquire (daemon/server/call_acquire.c).
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup_owner.h"
#include "base/sha256.h"
#include "daemon/broker_events.h"
#include "daemon/manager.h"
#include "daemon/server/methods.h"
#include "daemon/server/pending.h"
#include "daemon/state/replay.h"
#include "daemon/enforce/scope.h"
#include "daemon/state/state.h"
#include "daemon/enforce/watch_actions.h"

/* ---- Belonging to a lease ----------------------------------------------------------------------
 */

/*
 * Whether the process may act for the lease, by its cgroup or by the token. It cannot even see
 * leases of others. If not, the client was told.
 */
static bool belongs(struct session *session, const struct varlink_call *call,
                    const struct lease *lease, const char *token) {
    char cgroup[PROCESS_CGROUP_SIZE];
    uint8_t digest[SHA256_SIZE];

    if (lease->uid != session->account) {
        methods_fail(session, call, FAILURE_NOT_FOUND,
                     "you have no lease %llu: it has ended, or never existed",
                     (unsigned long long)lease->id);
        return false;
    }
    if (lease->cgroup[0] && process_cgroup(cgroup, session->process.pid) >= 0 &&
        process_is_within(cgroup, lease->cgroup))
        return true;
    if (lease->has_token && token) {
        sha256(digest, token, strlen(token));
        if (sha256_equal(digest, lease->token))
            return true;
    }
    methods_fail(session, call, FAILURE_DENIED,
                 lease->has_token
                     ? "the token does not belong to lease %llu: use the one that came "
                       "with the grant, which the job also has in ALLOT_TOKEN"
                     : "this process is not in the scope of lease %llu: only "
                       "processes that its job started are",
                 (unsigned long long)lease->id);
    return false;
}

/*
 * Whether the peer may end the lease, or signal its processes: it is the owner or an administrator.
 * Root of a container has uid 0 too, but no right to root's leases, except those that the process
 * itself asked for or holds.
 */
static bool may_end(const struct session *session, const struct lease *lease) {
    const struct process_id *owner = broker_owner(lease);

    if (!session_owns(session, lease->uid))
        return false;
    return !session->not_root || (owner && process_id_equal(owner, &session->process)) ||
           broker_holder(session->manager->broker, &session->process, lease->id);
}

/* Read `held` of Attach; false: the client was told what is wrong. */
static bool read_held(struct session *session, const struct varlink_call *call,
                      const struct wire_attach *wire, struct broker_attach *ret) {
    struct broker_held *held;

    if (!wire->held || wire->n_held == 0)
        return true;
    held = store_get(&session->manager->store, wire->n_held * sizeof(*held));
    if (!held) {
        pending_no_memory(session, call);
        return false;
    }
    for (size_t i = 0; i < wire->n_held; i++) {
        if (!pending_read_device(session, call, wire->held[i].device, &held[i].device))
            return false;
        held[i].bytes = wire->held[i].bytes;
    }
    ret->held = held;
    ret->n_held = wire->n_held;
    return true;
}

/*
 * The scope that the hand once made for the lease of this number, if the process is in it; false:
 * it is not. A cgroup of that name that a user made does not count.
 */
static bool find_scope(const struct session *session, uint64_t called,
                       char cgroup[static PROCESS_CGROUP_SIZE]) {
    char scope[64], *at;
    size_t n =
        (size_t)snprintf(scope, sizeof(scope), "/allot-%llu.scope", (unsigned long long)called);

    if (process_cgroup(cgroup, session->process.pid) < 0)
        return false;
    at = strstr(cgroup, scope);
    if (!at || (at[n] && at[n] != '/'))
        return false;
    at[n] = 0;
    return cgroup_owner_is_root(cgroup_owner_root(), cgroup);
}

/* A lease that was rebuilt, and has no token, belongs to the scope that its processes are in. */
static void adopt_scope(struct session *session, uint64_t called, uint64_t id) {
    struct manager *manager = session->manager;
    const struct lease *lease = broker_lease(manager->broker, id);
    char cgroup[PROCESS_CGROUP_SIZE];

    if (!lease || lease->has_token || lease->cgroup[0] || !find_scope(session, called, cgroup))
        return;
    /* The daemon no longer knows which tiers were in force, so it claims none. */
    if (broker_confined(manager->broker, id, strrchr(cgroup, '/') + 1, cgroup, 0,
                        manager_now(manager)) >= 0)
        scope_watch(manager, id, cgroup);
}

/* A process may claim the guard or arenas for itself; every other tier we have to verify. */
static uint8_t tier_claimed(const struct wire_attach *wire) {
    enum { GUARD = 3, ARENAS = 4 };

    return wire->tier.has && (wire->tier.value == GUARD || wire->tier.value == ARENAS)
               ? (uint8_t)wire->tier.value
               : 0;
}

/* Whether the driver shows that the process uses a device. */
static bool is_shown(const struct manager *manager, const struct process_id *process) {
    const struct sample *sample = manager->sampling.sample;

    for (size_t i = 0; sample && i < sample->n_processes; i++) {
        const struct sample_process *row = &sample->processes[i];

        if (row->pid == process->pid && row->start == process->start && row->used_bytes > 0)
            return true;
    }
    return false;
}

/*
 * A client attaches again to a daemon that has just started without any state, and the driver shows
 * its memory: so the state was lost. A client that comes later than that has slept, or lies.
 */
static void believe_loss(struct session *session, const struct wire_attach *wire) {
    struct manager *manager = session->manager;
    char what[96];
    bool holds = false;

    for (size_t i = 0; wire->held && i < wire->n_held; i++)
        holds |= wire->held[i].bytes > 0;
    if (!holds || !is_shown(manager, &session->process) ||
        manager_now(manager).usec - manager->begun_usec > manager->config->policy.grace_usec)
        return;
    snprintf(what, sizeof(what), "process %d comes back with lease %llu", (int)session->process.pid,
             (unsigned long long)wire->lease);
    replay_lost(manager, what);
}

unsigned call_lease_attach(struct session *session, const struct varlink_call *call) {
    struct manager *manager = session->manager;
    const struct wire_attach *wire = &call->parameters.attach;
    struct broker_peer peer;
    const struct lease *lease = broker_lease_called(manager->broker, wire->lease, session->account);
    /* Attaching again promises nothing new, so it must be possible on a full disk, too. */
    bool is_back = lease && broker_holder(manager->broker, &session->process, wire->lease);
    struct broker_attach attach = {
        .lease = wire->lease,
        .tier = tier_claimed(wire),
        .credits = wire->credits.has && wire->credits.value,
        .cookie = session,
    };
    struct wire_attach_reply reply = { 0 };
    struct verdict verdict;

    if (!(is_back ? pending_may_hold : pending_may_promise)(session, call) ||
        !read_held(session, call, wire, &attach))
        return 1;
    if (!methods_peer(session, &peer))
        return pending_no_memory(session, call);
    if (wire->token) {
        attach.has_token = true;
        sha256(attach.token, wire->token, strlen(wire->token));
    }
    if (lease && !belongs(session, call, lease, wire->token))
        return 1;
    if (!lease) {
        char cgroup[PROCESS_CGROUP_SIZE];

        attach.is_in_scope = find_scope(session, wire->lease, cgroup);
        believe_loss(session, wire);
    }
    if (session_add_lease(session, wire->lease) < 0 ||
        broker_attach(manager->broker, &peer, &attach, manager_now(manager), &verdict) < 0)
        return pending_no_memory(session, call);
    store_reset(&manager->reply);
    if (verdict.kind != VERDICT_GRANT) {
        struct failure failure = methods_refusal(&verdict, &manager->reply);

        session_fail(session, call, &failure);
        return 2;
    }
    if (manager->books_lost)
        adopt_scope(session, wire->lease, verdict.lease);
    lease = broker_lease(manager->broker, verdict.lease);
    reply.shares = lease ? pending_shares(&manager->reply, lease, &reply.n_shares) : NULL;
    if (!reply.shares)
        return pending_no_memory(session, call);
    if (call->more) {
        session_block(session, call, NULL, NULL);
        session_stream(session, &reply);
    } else
        session_reply(session, call, &reply);
    return 2;
}

/* ---- Bytes -------------------------------------------------------------------------------------
 */

/* Must be whole granules: Grow rounds up and Shrink rounds down, so other amounts would not add
 * up. */
static bool read_bytes(struct session *session, const struct varlink_call *call, uint64_t bytes) {
    if (bytes % BOOKS_GRANULE == 0)
        return true;
    session_fail(session, call,
                 &(struct failure){ .code = FAILURE_INVALID_PARAMETER,
                                    .parameter = "bytes",
                                    .reason = "must be a multiple of 2097152 (2 MiB), in which "
                                              "devices give memory" });
    return false;
}

unsigned call_lease_grow(struct session *session, const struct varlink_call *call) {
    struct manager *manager = session->manager;
    const struct wire_grow *wire = &call->parameters.grow;
    struct broker_growth growth = {
        .lease = wire->lease,
        .bytes = wire->bytes,
        .wait = wire->wait.has && wire->wait.value,
        .timeout_usec = pending_limit(wire->timeout_usec),
    };
    struct pending *pending = NULL;
    struct verdict verdict;
    struct failure failure;
    struct allot_error err;
    int r;

    if (!pending_read_device(session, call, wire->device, &growth.device) ||
        !read_bytes(session, call, wire->bytes))
        return 1;
    if (!state_is_ready(manager->state, &err))
        return methods_fail(session, call, FAILURE_BUSY, "%s", err.text);
    if (growth.bytes && watch_actions_refuses(manager, growth.lease, &growth.device))
        return methods_fail(session, call, FAILURE_NO_MEMORY,
                            "lease %llu uses more than its limit on %s: no growth until it is "
                            "back under it",
                            (unsigned long long)growth.lease, wire->device);
    r = broker_grow(manager->broker, &session->process, &growth, session, manager_now(manager),
                    &verdict);
    if (r < 0)
        return pending_no_memory(session, call);
    if (verdict.kind == VERDICT_GRANT) {
        session_reply(session, call,
                      &(struct wire_grow_reply){ .held_bytes = verdict.held_bytes,
                                                 .limit_bytes = verdict.limit_bytes });
        return 1;
    }
    if (verdict.kind == VERDICT_WAIT) {
        pending = calloc(1, sizeof(*pending));
        if (pending) {
            pending->waiter = verdict.waiter;
            session_block(session, call, pending, pending_cancel);
            session_stream(session, &(struct wire_grow_reply){ .place = wire_some(verdict.place),
                                                               .reason = verdict.reason });
            return 2;
        }
        broker_cancel(manager->broker, verdict.waiter, manager_now(manager));
        return pending_no_memory(session, call);
    }
    store_reset(&manager->reply);
    failure = methods_refusal(&verdict, &manager->reply);
    session_fail(session, call, &failure);
    return 1;
}

unsigned call_lease_shrink(struct session *session, const struct varlink_call *call) {
    struct manager *manager = session->manager;
    const struct wire_shrink *wire = &call->parameters.shrink;
    struct gpuid device;
    struct verdict verdict;
    struct failure failure;

    if (!pending_read_device(session, call, wire->device, &device) ||
        !read_bytes(session, call, wire->bytes))
        return 1;
    broker_shrink(manager->broker, &session->process, wire->lease, &device, wire->bytes,
                  manager_now(manager), &verdict);
    if (verdict.kind == VERDICT_GRANT) {
        session_reply(session, call, &(struct wire_shrink_reply){ verdict.held_bytes });
        return 1;
    }
    store_reset(&manager->reply);
    failure = methods_refusal(&verdict, &manager->reply);
    session_fail(session, call, &failure);
    return 1;
}

unsigned call_lease_release(struct session *session, const struct varlink_call *call) {
    struct manager *manager = session->manager;
    const struct lease *lease =
        broker_lease_called(manager->broker, call->parameters.release.lease, session->account);
    struct broker_peer peer;
    struct verdict verdict;
    struct failure failure;

    if (session->not_root && lease && !may_end(session, lease))
        return methods_fail(session, call, FAILURE_NOT_FOUND,
                            "you have no lease %llu: it has ended, or never existed",
                            (unsigned long long)lease->id);
    if (!methods_peer(session, &peer))
        return pending_no_memory(session, call);
    broker_release(manager->broker, &peer, call->parameters.release.lease, manager_now(manager),
                   &verdict);
    if (verdict.kind == VERDICT_GRANT) {
        session_reply(session, call, &(struct wire_nothing){ 0 });
        return 2;
    }
    store_reset(&manager->reply);
    failure = methods_refusal(&verdict, &manager->reply);
    session_fail(session, call, &failure);
    return 1;
}

/* ---- By the hand --------------------------------------------------------------------------------
 */

/*
 * A scope that the hand is making. It outlives its session: the process is put into the scope
 * whether or not the client learns of it, and a lease has one scope, so that its limit applies
 * once.
 */
struct confinement {
    struct list in_manager;
    struct manager *manager;
    struct session *session; /* NULL: it has ended */
    uint64_t lease;
};

static void confinement_free(struct confinement *confinement) {
    list_remove(&confinement->in_manager);
    free(confinement);
}

void call_lease_done(struct methods *methods) {
    struct confinement *confinement;

    while ((confinement = list_first(&methods->confinements, struct confinement, in_manager)))
        confinement_free(confinement);
}

static bool is_being_confined(const struct manager *manager, uint64_t lease) {
    const struct confinement *confinement;

    list_foreach (confinement, &manager->methods.confinements, in_manager)
        if (confinement->lease == lease)
            return true;
    return false;
}

/* Jobs ask for their scope at once; a lease that is not confined within this time ends. */
#define CONFINE_USEC (UINT64_C(30) * 1000 * 1000)

void call_lease_tick(struct manager *manager, struct moment now) {
    const struct lease *lease;

    for (size_t pos = 0; (lease = broker_next_lease(manager->broker, &pos));)
        if (!lease->has_token && !lease->cgroup[0] && !lease->is_ending &&
            now.usec - lease->created_usec > CONFINE_USEC && !is_being_confined(manager, lease->id))
            broker_end(manager->broker, lease->id, "its job was never confined", now);
}

static void on_confine_cancelled(struct session *session) {
    struct confinement *confinement = session->call.data;

    confinement->session = NULL;
}

/* The lease cannot be enforced as the administrator requires: it ends, and its job is told why. */
static void refuse_unenforced(struct confinement *confinement, enum require require,
                              uint32_t in_force, const struct wire_confine_reply *reply) {
    struct manager *manager = confinement->manager;
    /* Without its scope a lease has no driver's limit either: that is the reason to give. */
    int missing = 31 - __builtin_clz(policy_require_tiers(require) & ~in_force);
    const char *why = reply->n_detail ? reply->detail[0] : "allot-hand did not say why";
    char tier[16], text[400];

    snprintf(tier, sizeof(tier), "tier %d: ", missing);
    for (size_t i = 0; i < reply->n_detail; i++)
        if (strncmp(reply->detail[i], tier, strlen(tier)) == 0)
            why = reply->detail[i];
    snprintf(text, sizeof(text),
             "the administrator requires tier %d for this lease (require = %s): %s", missing,
             policy_require_name(require), why);
    broker_end(manager->broker, confinement->lease,
               "it cannot be enforced as the administrator requires", manager_now(manager));
    if (confinement->session)
        session_finish_failed(confinement->session,
                              &(struct failure){ .code = FAILURE_DENIED, .reason = text });
}

static void on_confined(void *userdata, int r, const struct hand_answer *answer,
                        const struct allot_error *err) {
    struct confinement *confinement = userdata;
    struct manager *manager = confinement->manager;
    const struct lease *lease = broker_lease(manager->broker, confinement->lease);
    uint32_t in_force = r < 0 ? 0 : answer->confined.tiers;
    uint64_t tiers[8];
    const char *details[HAND_DETAILS_MAX + 1];
    struct wire_confine_reply reply = { .tiers = tiers, .detail = details };
    bool is_short = lease && policy_require_tiers(broker_require(lease)) & ~in_force;

    if (r < 0)
        details[reply.n_detail++] = err->text;
    else {
        const struct hand_confined *confined = &answer->confined;

        broker_confined(manager->broker, confinement->lease,
                        confined->scope[0] ? confined->scope : NULL, confined->cgroup,
                        confined->tiers, manager_now(manager));
        if (broker_lease(manager->broker, confinement->lease))
            scope_watch(manager, confinement->lease, confined->cgroup);
        reply.scope = confined->scope[0] ? confined->scope : NULL;
        for (unsigned tier = 1; tier < ELEMENTSOF(tiers); tier++)
            if (confined->tiers >> tier & 1)
                tiers[reply.n_tiers++] = tier;
        for (uint32_t i = 0; i < MIN(confined->n_details, (uint32_t)HAND_DETAILS_MAX); i++)
            details[reply.n_detail++] = confined->details[i];
    }
    if (is_short)
        refuse_unenforced(confinement, broker_require(lease), in_force, &reply);
    else if (confinement->session)
        session_finish(confinement->session, &reply);
    confinement_free(confinement);
    manager_settle(manager);
}

unsigned call_lease_confine(struct session *session, const struct varlink_call *call) {
    struct manager *manager = session->manager;
    const struct wire_confine *wire = &call->parameters.confine;
    const struct lease *lease = broker_lease(manager->broker, wire->lease);
    struct hand_confine confine = { .lease = wire->lease };
    struct confinement *confinement;
    int r;

    if (!lease || lease->uid != session->account)
        return methods_fail(session, call, FAILURE_NOT_FOUND,
                            "you have no lease %llu: it has ended, or never existed",
                            (unsigned long long)wire->lease);
    if (lease->cgroup[0])
        return methods_fail(session, call, FAILURE_DENIED,
                            "lease %llu has its scope already (%s): start the process inside it",
                            (unsigned long long)lease->id, lease->scope);
    if (is_being_confined(manager, lease->id))
        return methods_fail(session, call, FAILURE_BUSY,
                            "lease %llu is being given its scope: start the process inside it",
                            (unsigned long long)lease->id);
    /* A lease that was to be confined has no token: then being its owner is enough. */
    if (lease->has_token && !belongs(session, call, lease, wire->token))
        return 1;
    if (!pending_may_promise(session, call))
        return 1;
    confinement = calloc(1, sizeof(*confinement));
    if (!confinement)
        return pending_no_memory(session, call);

    confine.pid = session->process.pid;
    confine.start = session->process.start;
    confine.uid = session->peer.uid;
    confine.want_scope = confine.want_limit = true;
    for (uint32_t i = 0; i < lease->n_shares; i++)
        if (lease->shares[i].book) {
            confine.devices[confine.n_devices].id = lease->shares[i].book->device.seen.id;
            confine.devices[confine.n_devices++].limit_bytes = lease->shares[i].limit_bytes;
        }
    confinement->manager = manager;
    confinement->session = session;
    confinement->lease = lease->id;
    list_append(&manager->methods.confinements, &confinement->in_manager);
    session_block(session, call, confinement, on_confine_cancelled);
    r = hand_confine(manager->hand, &confine, on_confined, confinement);
    if (r < 0) {
        session->blocked = false;
        confinement_free(confinement);
        return methods_fail(session, call, FAILURE_BUSY, "allot-hand cannot be asked: %s",
                            strerror(-r));
    }
    return 8;
}

static void on_killed(void *userdata, int r, uint32_t n_processes, const struct allot_error *err) {
    struct session *session = userdata;
    struct pending *pending = session->call.data;

    if (r < 0)
        session_finish_failed(
            session, &(struct failure){ .code = r == -EPERM ? FAILURE_DENIED : FAILURE_BUSY,
                                        .reason = err->text });
    else
        session_finish(session, &(struct wire_kill_reply){ n_processes });
    free(pending);
}

unsigned call_lease_kill(struct session *session, const struct varlink_call *call) {
    struct manager *manager = session->manager;
    const struct wire_kill *wire = &call->parameters.kill;
    const struct lease *lease = broker_lease(manager->broker, wire->lease);
    int number = wire->signal.has ? (int)MIN(wire->signal.value, INT64_C(1000)) : SIGTERM;
    struct pending *pending;
    int r;

    if (!lease || !may_end(session, lease))
        return methods_fail(session, call, FAILURE_NOT_FOUND,
                            "you have no lease %llu: it has ended, or never existed",
                            (unsigned long long)wire->lease);
    if (number < 1 || number > SIGRTMAX) {
        session_fail(
            session, call,
            &(struct failure){ .code = FAILURE_INVALID_PARAMETER,
                               .parameter = "signal",
                               .reason = "must be the number of a signal of this system" });
        return 1;
    }
    pending = calloc(1, sizeof(*pending));
    if (!pending)
        return pending_no_memory(session, call);
    broker_events_report(manager, LOG_NOTICE,
                         &(struct log_about){ .message = LOG_SIGNALLED,
                                              .lease = lease->id,
                                              .pid = session->peer.pid,
                                              .has_uid = true,
                                              .uid = session->peer.uid },
                         "action", "uid %u sends signal %d to the processes of lease %llu",
                         session->peer.uid, number, (unsigned long long)lease->id);
    session_block(session, call, pending, pending_cancel);
    r = signal_request_new(&pending->signal_request, manager, lease, number,
                           session_is_admin(session) ? SIGNAL_AS_ADMIN : SIGNAL_AS_OWNER, on_killed,
                           session);
    if (r > 0)
        return 8;
    session->blocked = false;
    free(pending);
    if (r < 0)
        return methods_fail(session, call, FAILURE_BUSY, "allot-hand cannot be asked: %s",
                            strerror(-r));
    session_reply(session, call, &(struct wire_kill_reply){ 0 });
    return 2;
}
