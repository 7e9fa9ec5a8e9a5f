/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/methods.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/accounts/accounts.h"
#include "daemon/config/user_database.h"
#include "daemon/enforce/privilege.h"
#include "daemon/manager.h"

static const method_fn handlers[WIRE_METHODS] = {
    [WIRE_METHOD_GET_BOX] = call_admin_get_box,   [WIRE_METHOD_ACQUIRE] = call_acquire,
    [WIRE_METHOD_EXPLAIN] = call_acquire_explain, [WIRE_METHOD_ATTACH] = call_lease_attach,
    [WIRE_METHOD_CONFINE] = call_lease_confine,   [WIRE_METHOD_GROW] = call_lease_grow,
    [WIRE_METHOD_SHRINK] = call_lease_shrink,     [WIRE_METHOD_RELEASE] = call_lease_release,
    [WIRE_METHOD_KILL] = call_lease_kill,         [WIRE_METHOD_MONITOR] = call_admin_monitor,
    [WIRE_METHOD_USAGE] = call_admin_usage,       [WIRE_METHOD_DRAIN] = call_admin_drain,
    [WIRE_METHOD_RESUME] = call_admin_resume,     [WIRE_METHOD_RELOAD] = call_admin_reload,
};

static const struct varlink_service service = {
    .vendor = "Allot",
    .product = "allotd",
    .version = ALLOT_VERSION,
    .url = "",
};

void methods_init(struct methods *methods) {
    list_init(&methods->monitors);
    list_init(&methods->closings);
    list_init(&methods->confinements);
}

void methods_done(struct methods *methods) {
    call_admin_done(methods);
    call_lease_done(methods);
    grant_rate_done(&methods->grant_rate);
}

unsigned methods_handle(struct session *session, const struct varlink_call *call) {
    if (call->method < WIRE_METHODS)
        return handlers[call->method](session, call);
    session_answer_service(session, call, &service);
    return 4;
}

unsigned methods_fail(struct session *session, const struct varlink_call *call,
                      enum failure_code code, const char *format, ...) {
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    session_fail(session, call, &(struct failure){ .code = code, .reason = text });
    return 1;
}

struct failure methods_refusal(const struct verdict *verdict, struct store *store) {
    static const enum failure_code codes[] = {
        [REFUSAL_NONE] = FAILURE_DENIED,         [REFUSAL_NO_MEMORY] = FAILURE_NO_MEMORY,
        [REFUSAL_DENIED] = FAILURE_DENIED,       [REFUSAL_NO_DEVICE] = FAILURE_NO_DEVICE,
        [REFUSAL_NOT_FOUND] = FAILURE_NOT_FOUND, [REFUSAL_TIMEOUT] = FAILURE_TIMEOUT,
        [REFUSAL_DEADLOCK] = FAILURE_DEADLOCK,   [REFUSAL_DRAINING] = FAILURE_DRAINING,
        [REFUSAL_BUSY] = FAILURE_BUSY,
    };
    _Static_assert(ELEMENTSOF(codes) == REFUSAL_LAST + 1, "every refusal has a wire error");
    static const char *const nobody[] = { "" };
    struct failure failure = { .code = codes[verdict->refusal], .reason = verdict->reason };
    bool names_device = verdict->refusal == REFUSAL_NO_MEMORY ||
                        verdict->refusal == REFUSAL_NO_DEVICE ||
                        verdict->refusal == REFUSAL_DRAINING;

    if (verdict->has_device && names_device) {
        char *uuid = store_get(store, GPUID_TEXT_SIZE);

        failure.device = uuid ? gpuid_format(&verdict->device, uuid) : NULL;
        if (verdict->refusal == REFUSAL_NO_MEMORY)
            failure.free_bytes = wire_some(verdict->free_bytes);
    }
    if (verdict->refusal == REFUSAL_TIMEOUT && verdict->place)
        failure.place = wire_some(verdict->place);
    if (verdict->refusal == REFUSAL_DEADLOCK) {
        const char **holders = store_get(store, (verdict->n_holders + 1) * sizeof(*holders));

        failure.holders = holders ? holders : nobody;
        failure.n_holders = holders ? verdict->n_holders : 0;
        for (size_t i = 0; i < failure.n_holders; i++)
            holders[i] = verdict->holders[i];
    }
    return failure;
}

static bool has_gid(const gid_t *gids, size_t n, gid_t gid) {
    for (size_t i = 0; i < n; i++)
        if (gids[i] == gid)
            return true;
    return false;
}

bool methods_peer(const struct session *session, struct broker_peer *ret) {
    const struct user_facts *facts =
        user_database_find(session->manager->user_database, session->peer.uid);
    const struct peer *peer = &session->peer;
    bool has_groups = facts && facts->has_groups;
    size_t n = has_groups ? facts->n_gids : 0;
    gid_t *gids = store_get(&session->manager->store, (n + peer->n_groups + 1) * sizeof(*gids));

    *ret = (struct broker_peer){
        .process = session->process,
        .uid = session->account,
        .gid = peer->gid,
        .is_admin = session_is_admin(session),
        .spent_byte_seconds = accounts_spent(session->manager->accounts, session->account),
    };
    if (!gids)
        return false;
    /*
     * In a user namespace of its own a process can drop groups, and take on those that are
     * subordinate to its user. A dropped group must not lift a rule, and a subordinate group has no
     * account.
     */
    if (has_groups && !has_gid(facts->gids, n, peer->gid))
        ret->gid = facts->gid;
    ret->gids = gids;
    for (size_t i = 0; i < n; i++)
        gids[ret->n_gids++] = facts->gids[i];
    if (!has_gid(gids, ret->n_gids, peer->gid))
        gids[ret->n_gids++] = peer->gid;
    for (size_t i = 0; i < peer->n_groups; i++)
        if (!has_gid(gids, n, peer->groups[i]))
            gids[ret->n_gids++] = peer->groups[i];
    return true;
}

bool methods_is_known(struct session *session, const struct varlink_call *call) {
    struct user_database *users = session->manager->user_database;
    const uid_t uid = session->peer.uid;

    if (session_is_admin(session) || user_database_find(users, uid))
        return true;
    if (user_database_owner(users, uid) == uid && privilege_is_at_home(&session->process))
        return true;
    methods_fail(session, call, FAILURE_BUSY,
                 "the user database of this machine does not answer, and without it the groups of "
                 "a process in a user namespace are not known: try again later");
    return false;
}
