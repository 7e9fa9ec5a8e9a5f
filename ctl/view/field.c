/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/view/field.h"

#include <inttypes.h>
#include <string.h>

#include "base/cleanup.h"

/* Enums are all of the size of an unsigned; their words have functions of their own type. */
#define WORD(noun)                                                                                 \
    static const char *noun##_word(unsigned value) {                                               \
        return wire_##noun##_name(value);                                                          \
    }
WORD(box_mode)
WORD(device_kind)
WORD(device_state)
WORD(lease_state)
WORD(mode)
WORD(process_kind)
WORD(what)
#undef WORD

#define UINT(member)                                                                               \
    { #member, FIELD_UINT, offsetof(struct RECORD, member), NULL }
#define INT(member)                                                                                \
    { #member, FIELD_INT, offsetof(struct RECORD, member), NULL }
#define BOOL(member)                                                                               \
    { #member, FIELD_BOOL, offsetof(struct RECORD, member), NULL }
#define MAYBE(member)                                                                              \
    { #member, FIELD_MAYBE, offsetof(struct RECORD, member), NULL }
#define STRING(member)                                                                             \
    { #member, FIELD_STRING, offsetof(struct RECORD, member), NULL }
#define WORD(member, noun)                                                                         \
    { #member, FIELD_WORD, offsetof(struct RECORD, member), noun##_word }
#define FIELDS(noun) const struct fields fields_##noun = { noun##_list, ELEMENTSOF(noun##_list) };

#define RECORD wire_box
static const struct field box_list[] = {
    STRING(host),         STRING(driver),    STRING(driver_version), STRING(version),
    WORD(mode, box_mode), MAYBE(grace_usec), UINT(started_at),
};
FIELDS(box)
#undef RECORD

#define RECORD wire_device
static const struct field device_list[] = {
    STRING(uuid),
    WORD(kind, device_kind),
    STRING(parent),
    UINT(index),
    MAYBE(minor),
    MAYBE(gpu_instance),
    MAYBE(compute_instance),
    STRING(bus_id),
    STRING(name),
    MAYBE(numa),
    BOOL(mig_enabled),
    WORD(state, device_state),
    STRING(reason),
    MAYBE(stale_usec),
    UINT(total_bytes),
    UINT(reserved_bytes),
    UINT(usable_bytes),
    MAYBE(used_bytes),
    UINT(leased_bytes),
    UINT(guaranteed_bytes),
    UINT(held_bytes),
    UINT(unmanaged_bytes),
    UINT(releasing_bytes),
    UINT(overcommitted_bytes),
    UINT(free_bytes),
    UINT(context_bytes),
    MAYBE(utilization_percent),
    MAYBE(memory_utilization_percent),
    MAYBE(temperature_celsius),
    MAYBE(power_milliwatts),
    MAYBE(power_limit_milliwatts),
    MAYBE(sm_clock_mhz),
    MAYBE(memory_clock_mhz),
    MAYBE(ecc_corrected),
    MAYBE(ecc_uncorrected),
};
FIELDS(device)
#undef RECORD

#define RECORD wire_link
static const struct field link_list[] = {
    STRING(device),
    STRING(kind),
    MAYBE(lanes),
};
FIELDS(link)
#undef RECORD

#define RECORD wire_lease
static const struct field lease_list[] = {
    UINT(id),
    STRING(name),
    UINT(uid),
    STRING(user),
    WORD(mode, mode),
    INT(priority),
    WORD(state, lease_state),
    STRING(reason),
    UINT(created_at),
    MAYBE(expires_at),
    MAYBE(idle_usec),
    STRING(scope),
};
FIELDS(lease)
#undef RECORD

#define RECORD wire_share
static const struct field share_list[] = {
    STRING(device),   UINT(limit_bytes),   UINT(guaranteed_bytes),
    UINT(held_bytes), UINT(context_bytes), MAYBE(used_bytes),
};
FIELDS(share)
#undef RECORD

#define RECORD wire_holder
static const struct field holder_list[] = {
    UINT(pid),
    MAYBE(attached_at),
    UINT(held_bytes),
};
FIELDS(holder)
#undef RECORD

#define RECORD wire_process
static const struct field process_list[] = {
    UINT(pid),         MAYBE(namespace_pid), MAYBE(uid),     STRING(user),
    STRING(command),   STRING(container),    STRING(device), WORD(kind, process_kind),
    MAYBE(used_bytes), MAYBE(lease),         MAYBE(tier),    STRING(offence),
};
FIELDS(process)
#undef RECORD

#define RECORD wire_waiter
static const struct field waiter_list[] = {
    UINT(id),       UINT(place),       UINT(uid),      STRING(user),
    STRING(name),   WORD(what, what),  MAYBE(lease),   INT(priority),
    UINT(since_at), MAYBE(timeout_at), STRING(reason), STRING(asked),
};
FIELDS(waiter)
#undef RECORD

#define RECORD wire_tier
static const struct field tier_list[] = {
    UINT(number),
    STRING(name),
    BOOL(proven),
    STRING(detail),
};
FIELDS(tier)
#undef RECORD

#define RECORD wire_usage_row
static const struct field usage_list[] = {
    STRING(key),
    UINT(leases),
    UINT(held_byte_seconds),
    UINT(guaranteed_byte_seconds),
    UINT(wait_usec),
    UINT(granted),
    UINT(denied),
    UINT(actions),
    UINT(xids),
};
FIELDS(usage)
#undef RECORD

#define RECORD wire_event
static const struct field event_list[] = {
    UINT(at), STRING(kind), STRING(text), STRING(device), MAYBE(lease), MAYBE(pid), MAYBE(uid),
};
FIELDS(event)
#undef RECORD

static const void *at(const struct field *field, const void *record) {
    return (const char *)record + field->offset;
}

static const char *string_of(const struct field *field, const void *record) {
    if (field->type == FIELD_WORD)
        return field->word(*(const unsigned *)at(field, record));
    return *(const char *const *)at(field, record);
}

void field_write_json(const struct fields *fields, const void *record, struct json_writer *w) {
    for (size_t i = 0; i < fields->n; i++) {
        const struct field *field = &fields->list[i];
        const void *value = at(field, record);

        json_name(w, field->name);
        switch (field->type) {
        case FIELD_UINT:
            json_put_uint(w, *(const uint64_t *)value);
            break;
        case FIELD_INT:
            json_put_int(w, *(const int64_t *)value);
            break;
        case FIELD_BOOL:
            json_put_bool(w, *(const bool *)value);
            break;
        case FIELD_MAYBE:
            if (((const struct wire_maybe *)value)->has)
                json_put_int(w, ((const struct wire_maybe *)value)->value);
            else
                json_put_null(w);
            break;
        default:
            json_put_string(w, string_of(field, record));
        }
    }
}

void field_write_csv_string(const char *text, FILE *out) {
    if (!text)
        return;
    if (!text[strcspn(text, ",\"\r\n")] && *text != ' ') {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

void field_write_csv(const struct fields *fields, const void *record, bool first, FILE *out) {
    for (size_t i = 0; i < fields->n; i++) {
        const struct field *field = &fields->list[i];
        const void *value;

        if (i > 0 || !first)
            fputc(',', out);
        if (!record) {
            fputs(field->name, out);
            continue;
        }
        value = at(field, record);
        switch (field->type) {
        case FIELD_UINT:
            fprintf(out, "%" PRIu64, *(const uint64_t *)value);
            break;
        case FIELD_INT:
            fprintf(out, "%" PRIi64, *(const int64_t *)value);
            break;
        case FIELD_BOOL:
            fputs(*(const bool *)value ? "true" : "false", out);
            break;
        case FIELD_MAYBE:
            if (((const struct wire_maybe *)value)->has)
                fprintf(out, "%" PRIi64, ((const struct wire_maybe *)value)->value);
            break;
        default:
            field_write_csv_string(string_of(field, record), out);
        }
    }
}
