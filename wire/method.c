/* SPDX-License-Identifier: Apache-2.0 */
/* The methods of the interface: what each is sent, and what it answers. */
#include <string.h>

#include "base/cleanup.h"
#include "wire/message.h"
#include "wire/type.h"

static const struct wire_type nothing_type = { .name = "()", .size = sizeof(struct wire_nothing) };

static const struct wire_field get_box_reply_fields[] = {
    OBJECT(wire_get_box_reply, box, wire_box),
};
static const struct wire_field acquire_fields[] = {
    OBJECT(wire_acquire, request, wire_request),
};
static const struct wire_field acquire_reply_fields[] = {
    MAYBE_UINT(wire_acquire_reply, place),
    MAYBE_STRING(wire_acquire_reply, reason),
    MAYBE_OBJECT(wire_acquire_reply, grant, wire_grant),
};
static const struct wire_field explain_fields[] = {
    OBJECT(wire_explain, request, wire_request),
};
static const struct wire_field explain_reply_fields[] = {
    ENUM(wire_explain_reply, verdict, wire_verdict),
    MAYBE_UINT(wire_explain_reply, place),
    STRING(wire_explain_reply, reason),
    STRINGS(wire_explain_reply, devices),
    STRINGS(wire_explain_reply, detail),
};
static const struct wire_field attach_fields[] = {
    UINT(wire_attach, lease),
    MAYBE_STRING(wire_attach, token),
    MAYBE_OBJECTS(wire_attach, held, wire_held),
    MAYBE_UINT(wire_attach, tier),
    MAYBE_BOOL(wire_attach, credits),
};
static const struct wire_field attach_reply_fields[] = {
    MAYBE_OBJECTS(wire_attach_reply, shares, wire_share),
    MAYBE_OBJECT(wire_attach_reply, notice, wire_notice),
};
static const struct wire_field confine_fields[] = {
    UINT(wire_confine, lease),
    MAYBE_STRING(wire_confine, token),
};
static const struct wire_field confine_reply_fields[] = {
    MAYBE_STRING(wire_confine_reply, scope),
    UINTS(wire_confine_reply, tiers),
    STRINGS(wire_confine_reply, detail),
};
static const struct wire_field grow_fields[] = {
    UINT(wire_grow, lease),      STRING(wire_grow, device),           UINT(wire_grow, bytes),
    MAYBE_BOOL(wire_grow, wait), MAYBE_UINT(wire_grow, timeout_usec),
};
static const struct wire_field grow_reply_fields[] = {
    UINT(wire_grow_reply, held_bytes),
    UINT(wire_grow_reply, limit_bytes),
    MAYBE_UINT(wire_grow_reply, place),
    MAYBE_STRING(wire_grow_reply, reason),
};
static const struct wire_field shrink_fields[] = {
    UINT(wire_shrink, lease),
    STRING(wire_shrink, device),
    UINT(wire_shrink, bytes),
};
static const struct wire_field shrink_reply_fields[] = {
    UINT(wire_shrink_reply, held_bytes),
};
static const struct wire_field release_fields[] = {
    UINT(wire_release, lease),
};
static const struct wire_field kill_fields[] = {
    UINT(wire_kill, lease),
    MAYBE_UINT(wire_kill, signal),
};
static const struct wire_field kill_reply_fields[] = {
    UINT(wire_kill_reply, processes),
};
static const struct wire_field monitor_reply_fields[] = {
    MAYBE_OBJECT(wire_monitor_reply, event, wire_event),
};
static const struct wire_field usage_fields[] = {
    MAYBE_UINT(wire_usage, since_at),
    MAYBE_UINT(wire_usage, until_at),
    MAYBE_ENUM(wire_usage, by, wire_by),
};
static const struct wire_field usage_reply_fields[] = {
    OBJECTS(wire_usage_reply, rows, wire_usage_row),
};
static const struct wire_field drain_fields[] = {
    STRINGS(wire_drain, devices),
    MAYBE_STRING(wire_drain, reason),
};
static const struct wire_field resume_fields[] = {
    STRINGS(wire_resume, devices),
};

#define TAKES(noun)                                                                                \
    static const struct wire_type noun##_type = WIRE_TYPE(wire_##noun, #noun, noun##_fields);
TAKES(acquire)
TAKES(acquire_reply)
TAKES(attach)
TAKES(attach_reply)
TAKES(confine)
TAKES(confine_reply)
TAKES(drain)
TAKES(explain)
TAKES(explain_reply)
TAKES(get_box_reply)
TAKES(grow)
TAKES(grow_reply)
TAKES(kill)
TAKES(kill_reply)
TAKES(monitor_reply)
TAKES(release)
TAKES(resume)
TAKES(shrink)
TAKES(shrink_reply)
TAKES(usage)
TAKES(usage_reply)

const struct wire_method_info wire_methods[WIRE_METHODS] = {
    [WIRE_METHOD_GET_BOX] = { "GetBox", &nothing_type, &get_box_reply_type },
    [WIRE_METHOD_ACQUIRE] = { "Acquire", &acquire_type, &acquire_reply_type },
    [WIRE_METHOD_EXPLAIN] = { "Explain", &explain_type, &explain_reply_type },
    [WIRE_METHOD_ATTACH] = { "Attach", &attach_type, &attach_reply_type },
    [WIRE_METHOD_CONFINE] = { "Confine", &confine_type, &confine_reply_type },
    [WIRE_METHOD_GROW] = { "Grow", &grow_type, &grow_reply_type },
    [WIRE_METHOD_SHRINK] = { "Shrink", &shrink_type, &shrink_reply_type },
    [WIRE_METHOD_RELEASE] = { "Release", &release_type, &nothing_type },
    [WIRE_METHOD_KILL] = { "Kill", &kill_type, &kill_reply_type },
    [WIRE_METHOD_MONITOR] = { "Monitor", &nothing_type, &monitor_reply_type },
    [WIRE_METHOD_USAGE] = { "Usage", &usage_type, &usage_reply_type },
    [WIRE_METHOD_DRAIN] = { "Drain", &drain_type, &nothing_type },
    [WIRE_METHOD_RESUME] = { "Resume", &resume_type, &nothing_type },
    [WIRE_METHOD_RELOAD] = { "Reload", &nothing_type, &nothing_type },
};

enum wire_method wire_method_find(const char *name, size_t n) {
    for (enum wire_method m = 0; m < WIRE_METHODS; m++)
        if (strncmp(wire_methods[m].name, name, n) == 0 && wire_methods[m].name[n] == '\0')
            return m;
    return WIRE_METHODS;
}
