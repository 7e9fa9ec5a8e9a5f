/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Acquire and Explain. Acquire may have to wait: the session, which is the broker's cookie, is then
 * blocked until methods_decided(), and its end takes the request out of the queue.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/safe_text.h"
#include "base/sha256.h"
#include "daemon/manager.h"
#include "daemon/server/methods.h"
#include "daemon/server/pending.h"
#include "daemon/server/server.h"

/* Read an amount. Returns NULL, or the name of a member that makes no sense, and `*ret_reason`. */
static const char *read_amount(const struct wire_amount *wire, struct amount *ret,
                               const char **ret_reason) {
    *ret = (struct amount){
        .mode = wire->mode,
        .permyriad = wire->permyriad.has ? (uint32_t)MIN(wire->permyriad.value, INT64_C(10001))
                                         : POLICY_NO_SHARE,
        .bytes = pending_limit(wire->bytes),
        .min_bytes = pending_limit(wire->min_bytes),
        .max_bytes = pending_limit(wire->max_bytes),
    };
    *ret_reason = "is not for this mode";
    if (wire->permyriad.has && wire->permyriad.value > 10000) {
        *ret_reason = "must be from 0 to 10000: parts of ten thousand";
        return "permyriad";
    }
    if (wire->permyriad.has && wire->mode != LEASE_FRACTION && wire->mode != LEASE_GROW)
        return "permyriad";
    if (wire->bytes.has && wire->mode != LEASE_FIXED)
        return "bytes";
    if (wire->min_bytes.has && wire->mode != LEASE_GROW)
        return "min_bytes";
    if (wire->max_bytes.has && wire->mode != LEASE_GROW)
        return "max_bytes";
    *ret_reason = "is needed for this mode";
    if (wire->mode == LEASE_FRACTION && !wire->permyriad.has)
        return "permyriad";
    if (wire->mode == LEASE_FIXED && !wire->bytes.has)
        return "bytes";
    *ret_reason = "is less than min_bytes";
    if (wire->min_bytes.has && wire->max_bytes.has && wire->max_bytes.value < wire->min_bytes.value)
        return "max_bytes";
    return NULL;
}

/*
 * The name of a job. Every user can read it, and clients may print it as it is. Unsafe characters
 * become '?', as in the commands of processes: a name is decoration, and no reason to refuse a job.
 * NULL for NULL, or if there is no memory.
 */
static const char *safe_name(struct session *session, const char *name) {
    const size_t n = name ? strlen(name) : 0;
    char *copy = name ? store_get(&session->manager->store, n + 1) : NULL;

    if (copy)
        safe_text_clean(copy, n + 1, name, n);
    return copy;
}

/* Read the request of a message; false: the client was told what is wrong. */
static bool read_request(struct session *session, const struct varlink_call *call,
                         const struct wire_request *wire, struct request *ret) {
    struct amount *amounts = NULL;
    const char *member = NULL, *reason = NULL, *job_name = safe_name(session, wire->name);
    char name[96];

    if (wire->name && !job_name) {
        pending_no_memory(session, call);
        return false;
    }
    *ret = (struct request){
        .name = job_name,
        .devices = wire->devices,
        .n_devices = wire->devices ? wire->n_devices : 0,
        .has_choose = wire->choose != 0,
        .choose = wire->choose,
        .visible_devices = wire->visible_devices,
        .device_order = wire->device_order,
        .has_priority = wire->priority.has,
        .no_wait = wire->wait.has && !wire->wait.value,
        .timeout_usec = pending_limit(wire->timeout_usec),
        .time_limit_usec = pending_limit(wire->time_limit_usec),
    };
    if (wire->amount) {
        ret->has_amount = true;
        member = read_amount(wire->amount, &ret->amount, &reason);
        if (member)
            snprintf(name, sizeof(name), "request.amount.%s", member);
    }
    if (!member && wire->amount && wire->amounts) {
        member = "amount";
        snprintf(name, sizeof(name), "request.amount");
        reason = "contradicts amounts: leave one of them out";
    }
    if (!member && wire->amounts) {
        amounts = store_get(&session->manager->store, (wire->n_amounts + 1) * sizeof(*amounts));
        if (!amounts) {
            pending_no_memory(session, call);
            return false;
        }
        ret->amounts = amounts;
        ret->n_amounts = wire->n_amounts;
        for (size_t i = 0; i < wire->n_amounts && !member; i++) {
            member = read_amount(&wire->amounts[i], &amounts[i], &reason);
            if (member)
                snprintf(name, sizeof(name), "request.amounts[%zu].%s", i, member);
        }
        if (!member && wire->n_amounts != ret->n_devices) {
            member = "amounts";
            snprintf(name, sizeof(name), "request.amounts");
            reason = "must have one amount for each of devices";
        }
    }
    if (!member && wire->priority.has &&
        (wire->priority.value > POLICY_PRIORITY_MAX ||
         wire->priority.value < -POLICY_PRIORITY_MAX)) {
        member = "priority";
        snprintf(name, sizeof(name), "request.priority");
        reason = "must be from -100 to 100";
    }
    if (!member && wire->gpus.has &&
        (wire->gpus.value < 1 || wire->gpus.value > BOOKS_SHARES_MAX)) {
        member = "gpus";
        snprintf(name, sizeof(name), "request.gpus");
        reason = "must be from 1 to 64";
    }
    if (!member && ret->n_devices > BOOKS_SHARES_MAX) {
        member = "devices";
        snprintf(name, sizeof(name), "request.devices");
        reason = "has more than 64 devices";
    }
    if (!member && wire->gpus.has && ret->n_devices > 0 &&
        (size_t)wire->gpus.value != ret->n_devices) {
        member = "gpus";
        snprintf(name, sizeof(name), "request.gpus");
        reason = "contradicts devices: leave one of them out";
    }
    if (member) {
        session_fail(session, call,
                     &(struct failure){
                         .code = FAILURE_INVALID_PARAMETER, .parameter = name, .reason = reason });
        return false;
    }
    ret->priority = wire->priority.has ? (int32_t)wire->priority.value : 0;
    ret->n_gpus = wire->gpus.has ? (uint32_t)wire->gpus.value : 0;
    return true;
}

static bool make_token(char token[static TOKEN_SIZE], uint8_t digest[static SHA256_SIZE]) {
    uint8_t bytes[TOKEN_BYTES];

    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return false;
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    sha256(digest, token, strlen(token));
    return true;
}

/* The grant of a lease that was just made, in the store of replies; NULL: no memory. */
static const struct wire_grant *make_grant(struct manager *manager, const struct verdict *verdict,
                                           const char *token) {
    const struct lease *lease = broker_lease(manager->broker, verdict->lease);
    struct store *store = &manager->reply;
    struct wire_grant *grant = store_get(store, sizeof(*grant));
    struct wire_variable *variables = store_get(store, 5 * sizeof(*variables));
    char *id = store_get(store, 24), *visible;
    int n;

    if (!lease || !grant || !variables || !id)
        return NULL;
    n = broker_visible_devices(lease, NULL, 0);
    visible = n < 0 ? NULL : store_get(store, (size_t)n + 1);
    if (!visible)
        return NULL;
    broker_visible_devices(lease, visible, (size_t)n + 1);
    snprintf(id, 24, "%llu", (unsigned long long)lease->id);

    *grant = (struct wire_grant){
        .lease = lease->id,
        .token = *token ? token : NULL,
        .environment = variables,
        .reason = verdict->reason,
    };
    grant->shares = pending_shares(store, lease, &grant->n_shares);
    variables[grant->n_environment++] =
        (struct wire_variable){ "ALLOT_SOCKET", manager->server->path };
    variables[grant->n_environment++] = (struct wire_variable){ "ALLOT_LEASE", id };
    if (*token)
        variables[grant->n_environment++] = (struct wire_variable){ "ALLOT_TOKEN", token };
    variables[grant->n_environment++] = (struct wire_variable){ "CUDA_VISIBLE_DEVICES", visible };
    variables[grant->n_environment++] = (struct wire_variable){ "CUDA_DEVICE_ORDER", "PCI_BUS_ID" };
    return grant->shares ? grant : NULL;
}

/*
 * What enforcement the job cannot have: what the request declines, and what this box has not
 * proven.
 */
static void read_reach(const struct manager *manager, const struct wire_request *wire,
                       struct request *ret) {
    bool confines = wire->confine.has && wire->confine.value;

    if (wire->guard.has && !wire->guard.value) {
        ret->cannot_have = REQUIRE_GUARD;
        ret->cannot_reason =
            "this job would run without the guard: leave --no-guard out, or install "
            "liballot-guard.so";
    } else if (!confines) {
        ret->cannot_have = REQUIRE_SCOPE;
        ret->cannot_reason =
            "this request asks for no scope: start the job by \"gpuctl run\" without "
            "--no-confine (a container's lease cannot have one)";
    } else if (!manager->tiers.has_probes || !manager->tiers.probes.tiers[2].proven) {
        ret->cannot_have = REQUIRE_SCOPE;
        ret->cannot_reason = manager->tiers.has_probes
                                 ? "this box has not proven its device filter (tier 2): \"gpuctl "
                                   "doctor\" says why"
                                 : "the device filter of this box (tier 2) has not been tried yet: "
                                   "ask again in some seconds";
    } else if (!manager->tiers.probes.tiers[1].proven) {
        ret->cannot_have = REQUIRE_DRIVER;
        ret->cannot_reason = "this box has not proven the driver's own limit (tier 1): \"gpuctl "
                             "doctor\" says why";
    }
}

/* Whether a scope, and not a token, will say which processes are of the lease. */
static bool will_be_confined(const struct manager *manager, const struct wire_request *wire) {
    return wire->confine.has && wire->confine.value && manager->tiers.has_probes &&
           manager->tiers.probes.tiers[2].proven;
}

/* Send a verdict other than wait; `token` is for the lease of Acquire. */
static void answer(struct session *session, const struct varlink_call *call,
                   const struct verdict *verdict, const char *token) {
    struct manager *manager = session->manager;
    const struct wire_grant *grant;
    struct failure failure;

    store_reset(&manager->reply);
    if (verdict->kind != VERDICT_GRANT) {
        failure = methods_refusal(verdict, &manager->reply);
        session_fail(session, call, &failure);
        return;
    }
    if (call->method == WIRE_METHOD_GROW) {
        session_reply(session, call,
                      &(struct wire_grow_reply){ .held_bytes = verdict->held_bytes,
                                                 .limit_bytes = verdict->limit_bytes });
        return;
    }
    grant = make_grant(manager, verdict, token);
    if (grant) {
        session_add_grant(session, grant->lease);
        session_reply(session, call, &(struct wire_acquire_reply){ .grant = grant });
    } else
        session_fail(session, call,
                     &(struct failure){ .code = FAILURE_BUSY,
                                        .reason = "the daemon is out of memory: close the "
                                                  "connection, which ends the lease, and try "
                                                  "again later" });
}

void methods_decided(struct session *session, const struct verdict *verdict) {
    struct pending *pending = session->call.data;
    struct varlink_call call;

    if (session_unblock(session, &call))
        answer(session, &call, verdict, pending->token);
    free(pending);
}

/* How many leases per minute the rules allow this user. */
static uint32_t grants_per_minute(const struct session *session, const struct broker_peer *peer) {
    struct policy_rules rules;

    if (peer->is_admin)
        return UINT32_MAX;
    policy_rules_for(&rules, &session->manager->config->policy, peer->uid, peer->gids,
                     peer->n_gids);
    return rules.grants_per_minute;
}

/* Whether the user may have one more lease in this minute. If not, the client was told. */
static bool take_grant(struct session *session, const struct varlink_call *call,
                       const struct broker_peer *peer, uint32_t per_minute) {
    char wait[UNITS_TEXT_SIZE], reason[160];
    uint64_t wait_usec = 0;
    int r = grant_rate_take(&session->manager->methods.grant_rate, peer->uid, per_minute,
                            manager_now(session->manager).usec, &wait_usec);

    if (r == -EAGAIN) {
        wait_usec = MAX(wait_usec, UINT64_C(1000));
        snprintf(reason, sizeof(reason),
                 "you had %u leases within a minute, and may have the next in %s "
                 "(grants-per-minute)",
                 per_minute, units_format_usec(wait_usec, wait));
        session_fail(session, call,
                     &(struct failure){ .code = FAILURE_BUSY,
                                        .reason = reason,
                                        .retry_usec = wire_some(wait_usec) });
    } else if (r < 0)
        pending_no_memory(session, call);
    return r == 0;
}

unsigned call_acquire(struct session *session, const struct varlink_call *call) {
    struct manager *manager = session->manager;
    const struct wire_request *wire = call->parameters.acquire.request;
    struct broker_peer peer;
    char token[TOKEN_SIZE] = "";
    struct pending *pending;
    struct request request;
    struct verdict verdict;
    uint32_t per_minute;

    if (!read_request(session, call, wire, &request) || !pending_may_promise(session, call) ||
        !methods_is_known(session, call))
        return 1;
    if (!methods_peer(session, &peer))
        return pending_no_memory(session, call);
    per_minute = grants_per_minute(session, &peer);
    if (!take_grant(session, call, &peer, per_minute))
        return 1;
    read_reach(manager, wire, &request);
    if (!will_be_confined(manager, wire)) {
        request.has_token = true;
        if (!make_token(token, request.token))
            return methods_fail(session, call, FAILURE_BUSY,
                                "the system has no random numbers yet: try again later");
    }
    if (broker_submit(manager->broker, &peer, &request, session, manager_now(manager), &verdict) <
        0)
        return pending_no_memory(session, call);
    if (verdict.kind == VERDICT_DENY)
        grant_rate_give(&manager->methods.grant_rate, peer.uid, per_minute);
    if (verdict.kind != VERDICT_WAIT) {
        answer(session, call, &verdict, token);
        return 4;
    }
    pending = calloc(1, sizeof(*pending));
    if (!pending) {
        broker_cancel(manager->broker, verdict.waiter, manager_now(manager));
        return pending_no_memory(session, call);
    }
    pending->waiter = verdict.waiter;
    memcpy(pending->token, token, sizeof(token));
    session_block(session, call, pending, pending_cancel);
    session_stream(session, &(struct wire_acquire_reply){ .place = wire_some(verdict.place),
                                                          .reason = verdict.reason });
    return 4;
}

unsigned call_acquire_explain(struct session *session, const struct varlink_call *call) {
    static const enum wire_verdict verdicts[] = {
        [VERDICT_GRANT] = WIRE_VERDICT_GRANT,
        [VERDICT_WAIT] = WIRE_VERDICT_WAIT,
        [VERDICT_DENY] = WIRE_VERDICT_DENY,
    };
    struct manager *manager = session->manager;
    struct broker_peer peer;
    struct explanation *explanation;
    struct wire_explain_reply reply = { 0 };
    const char *devices[BOOKS_SHARES_MAX], *details[EXPLANATION_LINES];
    char(*uuids)[GPUID_TEXT_SIZE];
    struct request request;

    if (!read_request(session, call, call->parameters.explain.request, &request) ||
        !methods_is_known(session, call))
        return 1;
    if (!methods_peer(session, &peer))
        return pending_no_memory(session, call);
    read_reach(manager, call->parameters.explain.request, &request);
    store_reset(&manager->reply);
    explanation = store_get(&manager->reply, sizeof(*explanation));
    uuids = store_get(&manager->reply, sizeof(*uuids) * BOOKS_SHARES_MAX);
    if (!explanation || !uuids ||
        broker_explain(manager->broker, &peer, &request, manager_now(manager), explanation) < 0)
        return pending_no_memory(session, call);
    reply.verdict = verdicts[explanation->verdict.kind];
    if (explanation->verdict.kind == VERDICT_WAIT)
        reply.place = wire_some(explanation->verdict.place);
    reply.reason = explanation->verdict.reason;
    for (uint32_t i = 0; i < explanation->n_devices; i++)
        devices[i] = gpuid_format(&explanation->devices[i], uuids[i]);
    for (uint32_t i = 0; i < explanation->n_details; i++)
        details[i] = explanation->details[i];
    reply.devices = devices;
    reply.n_devices = explanation->n_devices;
    reply.detail = details;
    reply.n_detail = explanation->n_details;
    session_reply(session, call, &reply);
    return 16;
}
