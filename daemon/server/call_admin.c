/* SPDX-License-Identifier: Apache-2.0 */
/* The calls about the box. Every user may look; changes are for administrators. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/accounts/accounts.h"
#include "daemon/broker_events.h"
#include "daemon/devices/inventory.h"
#include "daemon/manager.h"
#include "daemon/server/methods.h"
#include "daemon/server/reload.h"
#include "daemon/server/status.h"
#include "daemon/devices/device_record.h"

#define ROWS_PER_CHEAP 32 /* rows of a box that cost as much as a cheap call */

static_assert(DEVICE_REASON_SIZE == 160 && DEVICE_REASON_SIZE <= RECORD_TEXT_SIZE,
              "call_admin_drain() says how long a reason may be");

/* If not, the client was told. */
static bool is_admin(struct session *session, const struct varlink_call *call, const char *what) {
    const char *more;
    char reason[320];

    if (session_is_admin(session))
        return true;
    more = session_not_admin_reason(session);
    snprintf(reason, sizeof(reason),
             "only root and the group %s may %s: ask your administrator%s%s%s",
             session->manager->config->admin_group, what, *more ? " (" : "",
             *more && session->peer.uid == 0 ? "this process runs as root, but " : "", more);
    if (*more)
        strncat(reason, ")", sizeof(reason) - strlen(reason) - 1);
    session_fail(session, call,
                 &(struct failure){ .code = FAILURE_PERMISSION_DENIED, .reason = reason });
    return false;
}

unsigned call_admin_get_box(struct session *session, const struct varlink_call *call) {
    struct manager *manager = session->manager;
    struct status_viewer viewer = { session->account, session_is_admin(session) };
    const struct wire_box *box;

    store_reset(&manager->reply);
    box = status_make(manager, &viewer, &manager->reply);
    if (!box)
        return methods_fail(session, call, FAILURE_BUSY,
                            "the daemon is out of memory: try again later");
    session_reply(session, call, &(struct wire_get_box_reply){ box });
    return 4 + (unsigned)((box->n_leases + box->n_processes + box->n_queue + box->n_devices) /
                          ROWS_PER_CHEAP);
}

unsigned call_admin_monitor(struct session *session, const struct varlink_call *call) {
    if (!call->more) {
        session_fail(session, call, &(struct failure){ .code = FAILURE_EXPECTED_MORE });
        return 1;
    }
    session_block(session, call, NULL, NULL);
    list_append(&session->manager->methods.monitors, &session->in_monitors);
    return 1;
}

/* ---- Usage -------------------------------------------------------------------------------------
 */

static void on_usage(void *userdata, const struct accounts_row *rows, size_t n_rows,
                     const struct allot_error *error) {
    struct session *session = userdata;
    struct store *store = &session->manager->reply;
    struct wire_usage_row *wire;

    store_reset(store);
    wire = store_get(store, (n_rows + 1) * sizeof(*wire));
    if (error && error->code) {
        session_finish_failed(session,
                              &(struct failure){ .code = FAILURE_BUSY, .reason = error->text });
        return;
    }
    if (!wire) {
        session_finish_failed(
            session, &(struct failure){ .code = FAILURE_BUSY,
                                        .reason = "the daemon is out of memory: ask for less" });
        return;
    }
    for (size_t i = 0; i < n_rows; i++)
        wire[i] = (struct wire_usage_row){
            .key = rows[i].key,
            .leases = rows[i].leases,
            .held_byte_seconds = rows[i].held_byte_seconds,
            .guaranteed_byte_seconds = rows[i].guaranteed_byte_seconds,
            .wait_usec = rows[i].wait_usec,
            .granted = rows[i].granted,
            .denied = rows[i].denied,
            .actions = rows[i].actions,
            .xids = rows[i].xids,
        };
    session_finish(session, &(struct wire_usage_reply){ wire, n_rows });
}

static void on_usage_cancelled(struct session *session) {
    accounts_forget(session->manager->accounts, session);
}

unsigned call_admin_usage(struct session *session, const struct varlink_call *call) {
    static const enum accounts_by bys[] = {
        [0] = ACCOUNTS_BY_USER,
        [WIRE_BY_USER] = ACCOUNTS_BY_USER,
        [WIRE_BY_GROUP] = ACCOUNTS_BY_GROUP,
        [WIRE_BY_DEVICE] = ACCOUNTS_BY_DEVICE,
    };
    struct manager *manager = session->manager;
    const struct wire_usage *wire = &call->parameters.usage;
    struct accounts_query query = {
        .since_usec = wire->since_at.has ? (uint64_t)wire->since_at.value : 0,
        .until_usec = wire->until_at.has ? (uint64_t)wire->until_at.value : UINT64_MAX,
        .by = bys[wire->by],
        .only_uid = !session_is_admin(session),
        .uid = session->account,
    };

    if (!manager->accounts)
        return methods_fail(session, call, FAILURE_BUSY,
                            "nothing is accounted: the daemon could not open its database when "
                            "it was started; its log says why");
    session_block(session, call, NULL, on_usage_cancelled);
    if (accounts_usage(manager->accounts, &query, on_usage, session) < 0) {
        session->blocked = false;
        return methods_fail(session, call, FAILURE_BUSY,
                            "the daemon is out of memory: try again later");
    }
    return 8;
}

/* ---- Drain and resume --------------------------------------------------------------------------
 */

/* Handles that the reader closes or opens for one call. */
struct closing {
    struct list in_manager;
    struct session *session; /* NULL: it has ended */
    bool opens;
    unsigned n_open;
    struct allot_error err;
};

static void closing_free(struct closing *closing) {
    list_remove(&closing->in_manager);
    free(closing);
}

void call_admin_done(struct methods *methods) {
    struct closing *closing;

    while ((closing = list_first(&methods->closings, struct closing, in_manager)))
        closing_free(closing);
}

static const char *closing_text(const struct closing *closing) {
    return closing->opens ? "the device takes leases again, but its handles could not be opened"
                          : "the device takes no new leases, but its handles could not be closed";
}

static void closing_end(struct closing *closing) {
    struct session *session = closing->session;

    if (--closing->n_open > 0)
        return;
    if (session && closing->err.code)
        session_finish_failed(
            session, &(struct failure){ .code = FAILURE_BUSY, .reason = closing->err.text });
    else if (session)
        session_finish(session, &(struct wire_nothing){ 0 });
    closing_free(closing);
    if (session)
        manager_settle(session->manager);
}

static void on_closed(void *userdata, int r, const struct hand_answer *answer,
                      const struct allot_error *err) {
    struct closing *closing = userdata;

    if (r < 0 && !closing->err.code)
        error_set(&closing->err, r, "%s: %s", closing_text(closing), err->text);
    closing_end(closing);
}

/* The drain or resume is in effect: answer without waiting for the hand any longer. */
void methods_stale(struct manager *manager, const char *reason) {
    struct closing *closing;

    list_foreach (closing, &manager->methods.closings, in_manager) {
        struct allot_error err;

        if (!closing->session)
            continue;
        error_set(&err, -EBUSY, "%s yet: %s", closing_text(closing), reason);
        session_finish_failed(closing->session,
                              &(struct failure){ .code = FAILURE_BUSY, .reason = err.text });
        closing->session = NULL;
    }
}

static void on_closing_cancelled(struct session *session) {
    struct closing *closing = session->call.data;

    closing->session = NULL;
}

/* Find the devices that the caller named; false: the client was told which is unknown. */
static bool resolve(struct session *session, const struct varlink_call *call,
                    const char *const *names, size_t n, const struct device_facts **ret) {
    for (size_t i = 0; i < n; i++) {
        int r = inventory_resolve(session->manager->inventory, names[i], &ret[i]);
        char reason[256];

        if (r >= 0)
            continue;
        if (r == -ENOTUNIQ)
            snprintf(reason, sizeof(reason),
                     "several devices begin with %.100s: write more of the UUID", names[i]);
        else
            snprintf(reason, sizeof(reason),
                     "no device of this box is called %.100s: gpuctl devices lists them", names[i]);
        session_fail(
            session, call,
            &(struct failure){ .code = FAILURE_NO_DEVICE, .reason = reason, .device = names[i] });
        return false;
    }
    return true;
}

static unsigned drain_or_resume(struct session *session, const struct varlink_call *call,
                                const char *const *names, size_t n, const char *reason) {
    struct manager *manager = session->manager;
    const struct device_facts **devices;
    struct gpuid *ids;
    struct closing *closing;

    if (n == 0 || n > BOOKS_MAX) {
        session_fail(session, call,
                     &(struct failure){ .code = FAILURE_INVALID_PARAMETER,
                                        .parameter = "devices",
                                        .reason = "must name 1 to 256 devices" });
        return 1;
    }
    devices = store_get(&manager->store, n * sizeof(*devices));
    ids = store_get(&manager->store, n * sizeof(*ids));
    closing = calloc(1, sizeof(*closing));
    if (!devices || !ids || !closing) {
        free(closing);
        return methods_fail(session, call, FAILURE_BUSY,
                            "the daemon is out of memory: try again later");
    }
    if (!resolve(session, call, names, n, devices)) {
        free(closing);
        return 1;
    }
    list_append(&manager->methods.closings, &closing->in_manager);
    closing->session = session;
    closing->opens = !reason;
    closing->n_open = 1; /* until all are asked */
    session_block(session, call, closing, on_closing_cancelled);
    for (size_t i = 0; i < n; i++)
        ids[i] = devices[i]->seen.id; /* pointers are good until the first change */
    for (size_t i = 0; i < n; i++) {
        const struct device_facts *device = inventory_find(manager->inventory, &ids[i]);
        bool is_gpu = device && !device->seen.is_mig;

        if (reason)
            device_record_drain(manager, &ids[i], reason);
        else
            device_record_resume(manager, &ids[i]);
        if (is_gpu &&
            hand_close_device(manager->hand, &ids[i], reason != NULL, on_closed, closing) >= 0)
            closing->n_open++;
    }
    closing_end(closing);
    if (manager->sampling.stale_usec)
        methods_stale(manager, manager->sampling.stale_reason);
    return 8;
}

unsigned call_admin_drain(struct session *session, const struct varlink_call *call) {
    const struct wire_drain *wire = &call->parameters.drain;

    if (!is_admin(session, call, "drain devices"))
        return 1;
    if (wire->reason && strlen(wire->reason) >= DEVICE_REASON_SIZE) {
        session_fail(session, call,
                     &(struct failure){ .code = FAILURE_INVALID_PARAMETER,
                                        .parameter = "reason",
                                        .reason = "has more than 159 bytes: shorten it" });
        return 1;
    }
    return drain_or_resume(session, call, wire->devices, wire->n_devices,
                           wire->reason && *wire->reason ? wire->reason
                                                         : "drained by an administrator");
}

unsigned call_admin_resume(struct session *session, const struct varlink_call *call) {
    const struct wire_resume *wire = &call->parameters.resume;

    if (!is_admin(session, call, "put devices back into use"))
        return 1;
    return drain_or_resume(session, call, wire->devices, wire->n_devices, NULL);
}

unsigned call_admin_reload(struct session *session, const struct varlink_call *call) {
    if (!is_admin(session, call, "reload the configuration"))
        return 1;
    return reload_call(session->manager->reload, session, call);
}
