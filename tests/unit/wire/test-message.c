/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"
#include "tests/support/suite.h"
#include "wire/failure.h"
#include "wire/readings.h"
#include "wire/snapshot.h"
#include "wire/type.h"
#include "wire/varlink.h"

/* ---- The tables against the interface
 * ------------------------------------------------------------ */

/* The interface without comments and blanks. */
static char *squeezed(void) {
    char *text = calloc(1, strlen(varlink_interface_text) + 1);
    size_t n = 0;

    ck_assert_ptr_nonnull(text);
    for (const char *p = varlink_interface_text; *p; p++) {
        if (*p == '#')
            p += strcspn(p, "\n");
        if (*p != ' ' && *p != '\n')
            text[n++] = *p;
    }
    return text;
}

static void show_field(char *text, const struct wire_field *field) {
    strncat(text, field->key + 1, field->key_n - 3u);
    strcat(text, ":");
    if (wire_field_is_optional(field))
        strcat(text, "?");
    if (wire_field_is_array(field))
        strcat(text, "[]");
    switch ((enum wire_kind)field->kind) {
    case WIRE_UINT:
    case WIRE_INT:
        strcat(text, "int");
        break;
    case WIRE_BOOL:
        strcat(text, "bool");
        break;
    case WIRE_STRING:
        strcat(text, "string");
        break;
    case WIRE_ENUM:
        for (int i = 0; field->words[i]; i++) {
            strcat(text, i ? "," : "(");
            strcat(text, field->words[i]);
        }
        strcat(text, ")");
        break;
    case WIRE_OBJECT:
        strcat(text, field->object->name);
        break;
    case WIRE_MAP:
        strcat(text, "[string]string");
        break;
    }
}

static void show_fields(char *text, const struct wire_type *type) {
    strcat(text, "(");
    for (unsigned i = 0; i < type->n_fields; i++) {
        strcat(text, i ? "," : "");
        show_field(text, &type->fields[i]);
    }
    strcat(text, ")");
}

static unsigned count(const char *text, const char *word) {
    unsigned n = 0;

    for (const char *p = text; (p = strstr(p, word)); p++)
        n++;
    return n;
}

START_TEST(every_type_has_the_members_of_the_interface) {
    cleanup(freep) char *interface = squeezed();
    unsigned n = 0;

    for (; wire_types[n]; n++) {
        char shown[2048] = "type";

        strcat(shown, wire_types[n]->name);
        show_fields(shown, wire_types[n]);
        ck_assert_msg(strstr(interface, shown) != NULL, "not in the interface: %s", shown);
        ck_assert_uint_le(wire_types[n]->n_fields, 64);
    }
    ck_assert_uint_eq(count(varlink_interface_text, "\ntype "), n);
}
END_TEST

START_TEST(every_method_has_the_members_of_the_interface) {
    cleanup(freep) char *interface = squeezed();

    for (enum wire_method m = 0; m < WIRE_METHODS; m++) {
        char shown[1024] = "method";

        strcat(shown, wire_methods[m].name);
        show_fields(shown, wire_methods[m].call);
        strcat(shown, "->");
        show_fields(shown, wire_methods[m].reply);
        ck_assert_msg(strstr(interface, shown) != NULL, "not in the interface: %s", shown);
        ck_assert_uint_le(wire_methods[m].call->size, sizeof(union wire_call));
        ck_assert_uint_le(wire_methods[m].reply->size, sizeof(union wire_reply));
        ck_assert_uint_eq(wire_method_find(wire_methods[m].name, strlen(wire_methods[m].name)), m);
    }
    ck_assert_uint_eq(count(varlink_interface_text, "\nmethod "), WIRE_METHODS);
    ck_assert_uint_eq(wire_method_find("Gro", 3), WIRE_METHODS);
    ck_assert_uint_eq(wire_method_find("Growth", 6), WIRE_METHODS);
    ck_assert_uint_eq(wire_method_find("", 0), WIRE_METHODS);
}
END_TEST

START_TEST(every_error_has_the_members_of_the_interface) {
    static const char *const holders[] = { "lease 1" };
    const struct failure full = {
        .reason = "r",
        .device = "d",
        .free_bytes = { true, 1 },
        .place = { true, 2 },
        .retry_usec = { true, 3 },
        .holders = holders,
        .n_holders = 1,
        .parameter = "p",
        .method = "m",
        .interface = "i",
    };
    cleanup(freep) char *interface = squeezed();

    for (enum failure_code code = FAILURE_NO_MEMORY; code <= FAILURE_NOT_RUNNING; code++) {
        struct failure failure = full;
        struct failure kept;
        char shown[256] = "error";

        failure.code = code;
        kept = failure_prune(&failure);
        strcat(shown, strrchr(failure_name(code), '.') + 1);
        ck_assert_ptr_nonnull(kept.reason);
        strcat(shown, "(reason:string");
        if (kept.holders)
            strcat(shown, ",holders:[]string");
        if (kept.device)
            strcat(shown, ",device:?string");
        if (kept.free_bytes.has)
            strcat(shown, ",free_bytes:?int");
        if (kept.place.has)
            strcat(shown, ",place:?int");
        if (kept.retry_usec.has)
            strcat(shown, ",retry_usec:?int");
        strcat(shown, ")");
        ck_assert_msg(strstr(interface, shown) != NULL, "not in the interface: %s", shown);
        ck_assert(!kept.parameter && !kept.method && !kept.interface);
        ck_assert_int_eq(failure_find(failure_name(code)), code);
        ck_assert_int_lt(failure_errno(code), 0);
    }
    ck_assert_uint_eq(count(varlink_interface_text, "\nerror "), FAILURE_NOT_RUNNING);
    ck_assert_int_eq(failure_find("io.allot.Manager.Nonsense"), FAILURE_UNKNOWN);
    ck_assert_int_eq(failure_find(""), FAILURE_UNKNOWN);
}
END_TEST

/* ---- There and back
 * -------------------------------------------------------------------------------- */

static const struct wire_link links[] = { { "GPU-b", "NVLink", { true, 12 } },
                                          { "GPU-c", "PIX", { 0 } } };
static const struct wire_device devices[] = {
    { .uuid = "GPU-a",
      .kind = WIRE_DEVICE_GPU,
      .index = 0,
      .minor = { true, 3 },
      .bus_id = "00000000:3B:00.0",
      .name = "A100 \"sim\"",
      .mig_enabled = true,
      .state = WIRE_DEVICE_DRAINING,
      .reason = "Xid 79\n",
      .total_bytes = 42949672960,
      .usable_bytes = 42412802048,
      .temperature_celsius = { true, -3 },
      .used_bytes = { true, 0 },
      .links = links,
      .n_links = 2 },
    { .uuid = "MIG-b",
      .kind = WIRE_DEVICE_MIG,
      .parent = "GPU-a",
      .index = 1,
      .bus_id = "",
      .name = "",
      .state = WIRE_DEVICE_LOST,
      .links = links },
};
static const uint64_t tiers[] = { 2, 3 };
static const struct wire_share shares[] = { { "GPU-a", 100, 50, 20, 10, { true, 30 } } };
static const struct wire_holder holders[] = { { 4711, { true, 1 }, 20 } };
static const struct wire_lease leases[] = {
    { .id = 9,
      .uid = 1000,
      .user = "ada",
      .mode = LEASE_GROW,
      .priority = -5,
      .state = WIRE_LEASE_ACTIVE,
      .created_at = 123,
      .tiers = tiers,
      .n_tiers = 2,
      .shares = shares,
      .n_shares = 1,
      .holders = holders,
      .n_holders = 1 },
};
static const char *const notices[] = { "one", "zw\xc3\xb6lf" };
static const struct wire_box box = {
    .host = "h",
    .driver = "sim",
    .version = "0.1",
    .mode = WIRE_BOX_LOCKED,
    .started_at = INT64_MAX,
    .devices = devices,
    .n_devices = 2,
    .leases = leases,
    .n_leases = 1,
    .notices = notices,
    .n_notices = 2,
};

START_TEST(a_box_survives_the_way_there_and_back) {
    cleanup(snapshot_freep) struct snapshot *snapshot = NULL;
    struct json_writer w = { 0 }, again = { 0 };
    struct allot_error err = { 0 };
    const struct wire_box *got;

    snapshot_write(&w, &box);
    ck_assert(!w.failed);
    ck_assert_msg(snapshot_read(&snapshot, w.data, w.len, &err) == 0, "%s", err.text);
    got = &snapshot->box;
    ck_assert_str_eq(got->host, "h");
    ck_assert_ptr_null(got->driver_version);
    ck_assert_uint_eq(got->started_at, INT64_MAX);
    ck_assert_int_eq(got->mode, WIRE_BOX_LOCKED);
    ck_assert_uint_eq(got->n_devices, 2);
    ck_assert_str_eq(got->devices[0].name, "A100 \"sim\"");
    ck_assert_str_eq(got->devices[0].reason, "Xid 79\n");
    ck_assert(got->devices[0].used_bytes.has && got->devices[0].used_bytes.value == 0);
    ck_assert(!got->devices[1].used_bytes.has);
    ck_assert_int_eq(got->devices[0].temperature_celsius.value, -3);
    ck_assert_uint_eq(got->devices[0].n_links, 2);
    ck_assert_int_eq(got->devices[0].links[0].lanes.value, 12);
    ck_assert(!got->devices[0].links[1].lanes.has);
    ck_assert_uint_eq(got->devices[1].n_links, 0);
    ck_assert_int_eq(got->leases[0].priority, -5);
    ck_assert_uint_eq(got->leases[0].tiers[1], 3);
    ck_assert_uint_eq(got->leases[0].shares[0].used_bytes.value, 30);
    ck_assert_str_eq(got->notices[1], "zw\xc3\xb6lf");
    ck_assert_uint_eq(got->n_queue, 0);
    ck_assert_ptr_eq(snapshot_find_device(got, "MIG-b"), &got->devices[1]);
    ck_assert_ptr_null(snapshot_find_device(got, "MIG-"));
    ck_assert_ptr_eq(snapshot_find_lease(got, 9), &got->leases[0]);
    ck_assert_ptr_null(snapshot_find_lease(got, 8));

    snapshot_write(&again, got);
    ck_assert_uint_eq(w.len, again.len);
    ck_assert_mem_eq(w.data, again.data, w.len);
    json_writer_done(&w);
    json_writer_done(&again);
}
END_TEST

START_TEST(a_newer_daemon_may_say_more_but_not_less) {
    static const char more[] =
        "{\"host\":\"h\",\"driver\":\"d\",\"version\":\"9\",\"mode\":\"open\",\"started_at\":1,"
        "\"news\":{\"x\":[1,2,{}]},\"devices\":[],\"leases\":[],\"processes\":[],\"queue\":[],"
        "\"tiers\":[{\"number\":1,\"name\":\"n\",\"proven\":true,\"detail\":\"\",\"new\":0}],"
        "\"notices\":[],\"driver_version\":null}";
    static const char less[] = "{\"host\":\"h\"}";
    struct allot_error err = { 0 };
    struct snapshot *snapshot = NULL;

    ck_assert_msg(snapshot_read(&snapshot, more, strlen(more), &err) == 0, "%s", err.text);
    ck_assert(snapshot->box.tiers[0].proven);
    snapshot_free(snapshot);
    ck_assert_int_eq(snapshot_read(&snapshot, less, strlen(less), &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "driver is missing"));
    ck_assert_int_eq(snapshot_read(&snapshot, "", 0, &err), -EBADMSG);
    ck_assert_int_eq(snapshot_read(&snapshot, "[]", 2, &err), -EINVAL);
    ck_assert_int_eq(snapshot_read(&snapshot, more, strlen(more) - 1, &err), -EBADMSG);
}
END_TEST

START_TEST(a_grant_carries_its_environment) {
    static const struct wire_variable environment[] = { { "CUDA_VISIBLE_DEVICES", "GPU-a" },
                                                        { "ALLOT_LEASE", "9" } };
    const struct wire_grant grant = { .lease = 9,
                                      .shares = shares,
                                      .n_shares = 1,
                                      .environment = environment,
                                      .n_environment = 2,
                                      .reason = "fits" };
    const struct wire_acquire_reply sent = { .grant = &grant };
    static const char wanted[] =
        "{\"parameters\":{\"grant\":{\"lease\":9,\"shares\":[{\"device\":\"GPU-a\",\"limit_bytes\":"
        "100,"
        "\"guaranteed_bytes\":50,\"held_bytes\":20,\"context_bytes\":10,\"used_bytes\":30}],"
        "\"environment\":{"
        "\"CUDA_VISIBLE_DEVICES\":\"GPU-a\",\"ALLOT_LEASE\":\"9\"},\"reason\":\"fits\"}}}";
    struct json_writer w = { 0 };
    struct store store = { 0 };
    struct failure failure;
    union wire_reply got;

    varlink_reply_write(&w, WIRE_METHOD_ACQUIRE, &sent, false);
    ck_assert_uint_eq(w.len, strlen(wanted));
    ck_assert_mem_eq(w.data, wanted, w.len);
    ck_assert_int_eq(
        varlink_reply_read(&got, &failure, WIRE_METHOD_ACQUIRE, w.data, w.len, &store, NULL), 0);
    ck_assert_uint_eq(got.acquire.grant->n_environment, 2);
    ck_assert_str_eq(got.acquire.grant->environment[1].name, "ALLOT_LEASE");
    ck_assert_str_eq(got.acquire.grant->environment[1].value, "9");
    ck_assert_ptr_null(got.acquire.grant->token);
    json_writer_done(&w);
    store_done(&store);
}
END_TEST

START_TEST(maps_of_strangers_have_an_end) {
    static const char head[] =
        "{\"grant\":{\"lease\":9,\"shares\":[],\"reason\":\"\",\"environment\":{";
    cleanup(freep) char *text = malloc(65536), *copy = malloc(65536);

    for (size_t n_members = 1023; n_members <= 1025; n_members++) {
        size_t n = (size_t)sprintf(text, "%s", head);

        for (size_t i = 0; i < n_members; i++)
            n += (size_t)sprintf(text + n, "%s\"V%zu\":\"%zu\"", i ? "," : "", i, i);
        n += (size_t)sprintf(text + n, "}}}");
        for (int strict = 0; strict < 2; strict++) {
            struct wire_acquire_reply reply;
            struct store store = { 0 };
            struct wire_fault fault;
            struct json_reader r;
            int code;

            memcpy(copy, text, n);
            json_reader_init(&r, copy, n);
            code = wire_decode(&reply, wire_methods[WIRE_METHOD_ACQUIRE].reply,
                               strict ? WIRE_STRICT : WIRE_LENIENT, &r, &store, &fault);
            if (strict && n_members > 1024) {
                ck_assert_int_eq(code, -EINVAL);
                ck_assert_str_eq(fault.member, "grant.environment");
                ck_assert_str_eq(fault.reason, "has more than 1024 members");
            } else {
                ck_assert_int_eq(code, 0);
                ck_assert_uint_eq(reply.grant->n_environment, n_members);
                ck_assert_str_eq(reply.grant->environment[n_members - 1].name + 1,
                                 reply.grant->environment[n_members - 1].value);
            }
            store_done(&store);
        }
    }
}
END_TEST

START_TEST(a_reading_that_was_not_taken_is_absent) {
    for (unsigned which = 0; which < READING_COUNT; which++) {
        struct readings readings = { .has = UINT64_C(1) << which };
        struct wire_device device = { 0 };

        for (unsigned i = 0; i < READING_COUNT; i++)
            readings.values[i] = 100 + i;
        wire_readings_fill(&device, &readings);
#define X(group, kind, field)                                                                      \
    ck_assert_int_eq(device.field.has, which == READING_##field);                                  \
    ck_assert_int_eq((int)device.field.value, which == READING_##field ? 100 + (int)which : 0);
        READINGS(X)
        X(, , minor)
        X(, , numa)
        X(, , used_bytes)
#undef X
    }
}
END_TEST

SUITE("message", every_type_has_the_members_of_the_interface,
      every_method_has_the_members_of_the_interface, every_error_has_the_members_of_the_interface,
      a_box_survives_the_way_there_and_back, a_newer_daemon_may_say_more_but_not_less,
      a_grant_carries_its_environment, a_reading_that_was_not_taken_is_absent,
      maps_of_strangers_have_an_end)
