/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/methods.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

struct broker_peer methods_peer(const struct session *session) {
    return (struct broker_peer){
        .process = session->process,
        .uid = session->peer.uid,
        .gid = session->peer.gid,
        .gids = session->peer.groups,
        .n_gids = session->peer.n_groups,
        .is_admin = session_is_admin(session),
    };
}
