/* SPDX-License-Identifier: Apache-2.0 */
/* The types of the interface, in its order. */
#include "wire/message.h"

#include "base/cleanup.h"
#include "wire/type.h"

/* ---- Words ---------------------------------------------------------------------------------- */

#define WORDS(e, ...)                                                                              \
    const char *const e##_words[] = { __VA_ARGS__, NULL };                                         \
    const char *e##_name(enum e value) {                                                           \
        return words_name(e##_words, value);                                                       \
    }

WORDS(wire_device_kind, "gpu", "mig")
WORDS(wire_device_state, "ready", "draining", "lost")
WORDS(wire_lease_state, "active", "ending")
WORDS(wire_process_kind, "compute", "graphics", "both")
WORDS(wire_what, "lease", "growth")
WORDS(wire_box_mode, "open", "locked")
WORDS(wire_verdict, "grant", "wait", "deny")
WORDS(wire_by, "user", "group", "device")

/* ---- What is asked for ---------------------------------------------------------------------- */

static const struct wire_field amount_fields[] = {
    ENUM(wire_amount, mode, lease_mode), MAYBE_UINT(wire_amount, permyriad),
    MAYBE_UINT(wire_amount, bytes),      MAYBE_UINT(wire_amount, min_bytes),
    MAYBE_UINT(wire_amount, max_bytes),
};
static const struct wire_type wire_amount_type = WIRE_TYPE(wire_amount, "Amount", amount_fields);

static const struct wire_field request_fields[] = {
    MAYBE_STRING(wire_request, name),
    MAYBE_OBJECT(wire_request, amount, wire_amount),
    MAYBE_OBJECTS(wire_request, amounts, wire_amount),
    MAYBE_UINT(wire_request, gpus),
    MAYBE_STRINGS(wire_request, devices),
    MAYBE_ENUM(wire_request, choose, choice),
    MAYBE_STRING(wire_request, visible_devices),
    MAYBE_STRING(wire_request, device_order),
    MAYBE_INT(wire_request, priority),
    MAYBE_BOOL(wire_request, wait),
    MAYBE_UINT(wire_request, timeout_usec),
    MAYBE_UINT(wire_request, time_limit_usec),
    MAYBE_BOOL(wire_request, confine),
    MAYBE_BOOL(wire_request, guard),
};
const struct wire_type wire_request_type = WIRE_TYPE(wire_request, "Request", request_fields);

/* ---- What there is -------------------------------------------------------------------------- */

static const struct wire_field link_fields[] = {
    STRING(wire_link, device),
    STRING(wire_link, kind),
    MAYBE_UINT(wire_link, lanes),
};
const struct wire_type wire_link_type = WIRE_TYPE(wire_link, "Link", link_fields);

static const struct wire_field device_fields[] = {
    STRING(wire_device, uuid),
    ENUM(wire_device, kind, wire_device_kind),
    MAYBE_STRING(wire_device, parent),
    UINT(wire_device, index),
    MAYBE_UINT(wire_device, minor),
    MAYBE_UINT(wire_device, gpu_instance),
    MAYBE_UINT(wire_device, compute_instance),
    STRING(wire_device, bus_id),
    STRING(wire_device, name),
    MAYBE_UINT(wire_device, numa),
    BOOL(wire_device, mig_enabled),
    ENUM(wire_device, state, wire_device_state),
    MAYBE_STRING(wire_device, reason),
    MAYBE_UINT(wire_device, stale_usec),
    UINT(wire_device, total_bytes),
    UINT(wire_device, reserved_bytes),
    UINT(wire_device, usable_bytes),
    MAYBE_UINT(wire_device, used_bytes),
    UINT(wire_device, leased_bytes),
    UINT(wire_device, guaranteed_bytes),
    UINT(wire_device, held_bytes),
    UINT(wire_device, unmanaged_bytes),
    UINT(wire_device, releasing_bytes),
    UINT(wire_device, overcommitted_bytes),
    UINT(wire_device, free_bytes),
    UINT(wire_device, context_bytes),
    MAYBE_UINT(wire_device, unguarded_processes),
#define X(group, kind, field) MAYBE_##kind(wire_device, field),
    READINGS(X)
#undef X
        OBJECTS(wire_device, links, wire_link),
};
const struct wire_type wire_device_type = WIRE_TYPE(wire_device, "Device", device_fields);

static const struct wire_field share_fields[] = {
    STRING(wire_share, device),         UINT(wire_share, limit_bytes),
    UINT(wire_share, guaranteed_bytes), UINT(wire_share, held_bytes),
    UINT(wire_share, context_bytes),    MAYBE_UINT(wire_share, used_bytes),
};
const struct wire_type wire_share_type = WIRE_TYPE(wire_share, "Share", share_fields);

static const struct wire_field holder_fields[] = {
    UINT(wire_holder, pid),
    MAYBE_UINT(wire_holder, attached_at),
    UINT(wire_holder, held_bytes),
};
const struct wire_type wire_holder_type = WIRE_TYPE(wire_holder, "Holder", holder_fields);

static const struct wire_field lease_fields[] = {
    UINT(wire_lease, id),
    MAYBE_STRING(wire_lease, name),
    UINT(wire_lease, uid),
    STRING(wire_lease, user),
    ENUM(wire_lease, mode, lease_mode),
    INT(wire_lease, priority),
    ENUM(wire_lease, state, wire_lease_state),
    MAYBE_STRING(wire_lease, reason),
    UINT(wire_lease, created_at),
    MAYBE_UINT(wire_lease, expires_at),
    MAYBE_UINT(wire_lease, idle_usec),
    MAYBE_STRING(wire_lease, scope),
    UINTS(wire_lease, tiers),
    OBJECTS(wire_lease, shares, wire_share),
    OBJECTS(wire_lease, holders, wire_holder),
};
const struct wire_type wire_lease_type = WIRE_TYPE(wire_lease, "Lease", lease_fields);

static const struct wire_field process_fields[] = {
    UINT(wire_process, pid),
    MAYBE_UINT(wire_process, namespace_pid),
    MAYBE_UINT(wire_process, uid),
    MAYBE_STRING(wire_process, user),
    STRING(wire_process, command),
    MAYBE_STRING(wire_process, container),
    STRING(wire_process, device),
    ENUM(wire_process, kind, wire_process_kind),
    MAYBE_UINT(wire_process, used_bytes),
    MAYBE_UINT(wire_process, lease),
    MAYBE_UINT(wire_process, tier),
    MAYBE_STRING(wire_process, offence),
};
const struct wire_type wire_process_type = WIRE_TYPE(wire_process, "Process", process_fields);

static const struct wire_field waiter_fields[] = {
    UINT(wire_waiter, id),           UINT(wire_waiter, place),
    UINT(wire_waiter, uid),          STRING(wire_waiter, user),
    MAYBE_STRING(wire_waiter, name), ENUM(wire_waiter, what, wire_what),
    MAYBE_UINT(wire_waiter, lease),  INT(wire_waiter, priority),
    UINT(wire_waiter, since_at),     MAYBE_UINT(wire_waiter, timeout_at),
    STRING(wire_waiter, reason),     STRING(wire_waiter, asked),
};
const struct wire_type wire_waiter_type = WIRE_TYPE(wire_waiter, "Waiter", waiter_fields);

static const struct wire_field tier_fields[] = {
    UINT(wire_tier, number),
    STRING(wire_tier, name),
    BOOL(wire_tier, proven),
    STRING(wire_tier, detail),
};
const struct wire_type wire_tier_type = WIRE_TYPE(wire_tier, "Tier", tier_fields);

static const struct wire_field box_fields[] = {
    STRING(wire_box, host),
    STRING(wire_box, driver),
    MAYBE_STRING(wire_box, driver_version),
    STRING(wire_box, version),
    ENUM(wire_box, mode, wire_box_mode),
    MAYBE_UINT(wire_box, grace_usec),
    UINT(wire_box, started_at),
    OBJECTS(wire_box, devices, wire_device),
    OBJECTS(wire_box, leases, wire_lease),
    OBJECTS(wire_box, processes, wire_process),
    OBJECTS(wire_box, queue, wire_waiter),
    OBJECTS(wire_box, tiers, wire_tier),
    STRINGS(wire_box, notices),
};
const struct wire_type wire_box_type = WIRE_TYPE(wire_box, "Box", box_fields);

/* ---- Leases --------------------------------------------------------------------------------- */

static const struct wire_field grant_fields[] = {
    UINT(wire_grant, lease),
    MAYBE_STRING(wire_grant, token),
    OBJECTS(wire_grant, shares, wire_share),
    MAP(wire_grant, environment),
    STRING(wire_grant, reason),
};
const struct wire_type wire_grant_type = WIRE_TYPE(wire_grant, "Grant", grant_fields);

static const struct wire_field held_fields[] = {
    STRING(wire_held, device),
    UINT(wire_held, bytes),
};
const struct wire_type wire_held_type = WIRE_TYPE(wire_held, "Held", held_fields);

static const struct wire_field notice_fields[] = {
    ENUM(wire_notice, kind, notice_kind),
    MAYBE_STRING(wire_notice, device),
    MAYBE_UINT(wire_notice, bytes),
    STRING(wire_notice, text),
};
const struct wire_type wire_notice_type = WIRE_TYPE(wire_notice, "Notice", notice_fields);

/* ---- Administration ------------------------------------------------------------------------- */

static const struct wire_field event_fields[] = {
    UINT(wire_event, at),          STRING(wire_event, kind),
    STRING(wire_event, text),      MAYBE_STRING(wire_event, device),
    MAYBE_UINT(wire_event, lease), MAYBE_UINT(wire_event, pid),
    MAYBE_UINT(wire_event, uid),
};
const struct wire_type wire_event_type = WIRE_TYPE(wire_event, "Event", event_fields);

static const struct wire_field usage_row_fields[] = {
    STRING(wire_usage_row, key),
    UINT(wire_usage_row, leases),
    UINT(wire_usage_row, held_byte_seconds),
    UINT(wire_usage_row, guaranteed_byte_seconds),
    UINT(wire_usage_row, wait_usec),
    UINT(wire_usage_row, granted),
    UINT(wire_usage_row, denied),
    UINT(wire_usage_row, actions),
    UINT(wire_usage_row, xids),
};
const struct wire_type wire_usage_row_type =
    WIRE_TYPE(wire_usage_row, "UsageRow", usage_row_fields);

const struct wire_type *const wire_types[] = {
    &wire_amount_type,
    &wire_request_type,
    &wire_link_type,
    &wire_device_type,
    &wire_share_type,
    &wire_holder_type,
    &wire_lease_type,
    &wire_process_type,
    &wire_waiter_type,
    &wire_tier_type,
    &wire_box_type,
    &wire_grant_type,
    &wire_held_type,
    &wire_notice_type,
    &wire_event_type,
    &wire_usage_row_type,
    NULL,
};
