/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"
#include "tests/support/suite.h"
#include "wire/varlink.h"

#define M "\"method\":\"io.allot.Manager."

/* A call, read from memory that ends where the text does. */
struct heard {
    struct varlink_call call;
    struct failure failure;
    struct store store;
    char *text;
    int code;
};

static struct heard hear(const char *text) {
    struct heard h = { 0 };
    size_t n = strlen(text);

    h.text = malloc(n ? n : 1);
    ck_assert_ptr_nonnull(h.text);
    memcpy(h.text, text, n);
    h.failure.code = FAILURE_UNKNOWN;
    h.call.interface = "left over";
    h.code = varlink_call_read(&h.call, h.text, n, &h.store, &h.failure);
    if (h.code >= 0)
        ck_assert_int_eq(h.failure.code, FAILURE_NONE);
    if (h.call.method != VARLINK_GET_INTERFACE_DESCRIPTION)
        ck_assert_ptr_null(h.call.interface);
    return h;
}

static void forget(struct heard *h) {
    store_done(&h->store);
    free(h->text);
}

START_TEST(calls_are_read_whatever_the_order_of_their_members) {
    static const char *const texts[] = {
        "{" M
        "Grow\",\"parameters\":{\"lease\":7,\"device\":\"GPU-a\",\"bytes\":4096,\"wait\":true}}",
        " { \"parameters\" : "
        "{\"bytes\":4096,\"wait\":true,\"device\":\"GPU-\\u0061\",\"lease\":7.0, "
        "\"timeout_usec\":null } ,\n " M "Grow\" } ",
        "{\"more\":false,\"oneway\":null,\"upgrade\":false,\"parameters\":{\"device\":\"GPU-a\","
        "\"lease\":7,\"bytes\":4.096e3,\"wait\":true}," M "\\u0047row\"}",
    };

    for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
        struct heard h = hear(texts[i]);

        ck_assert_msg(h.code == 0, "%s: %s %s", texts[i], h.failure.parameter, h.failure.reason);
        ck_assert_uint_eq(h.call.method, WIRE_METHOD_GROW);
        ck_assert(!h.call.more && !h.call.oneway);
        ck_assert_uint_eq(h.call.parameters.grow.lease, 7);
        ck_assert_str_eq(h.call.parameters.grow.device, "GPU-a");
        ck_assert_uint_eq(h.call.parameters.grow.bytes, 4096);
        ck_assert(h.call.parameters.grow.wait.has && h.call.parameters.grow.wait.value == 1);
        ck_assert(!h.call.parameters.grow.timeout_usec.has);
        forget(&h);
    }
}
END_TEST

START_TEST(a_request_is_read_with_all_that_is_in_it) {
    struct heard h = hear(
        "{" M "Acquire\",\"more\":true,\"parameters\":{\"request\":{\"name\":\"job\",\"amounts\":[{"
        "\"mode\":"
        "\"grow\",\"min_bytes\":1,\"max_bytes\":2},{\"mode\":\"fraction\",\"permyriad\":4000}],"
        "\"devices\":["
        "\"0\",\"GPU-b\"],\"choose\":\"links\",\"priority\":-3,\"wait\":false,\"confine\":true,"
        "\"visible_devices\":\"\",\"gpus\":0}}}");
    const struct wire_request *request;

    ck_assert_int_eq(h.code, 0);
    ck_assert(h.call.more);
    request = h.call.parameters.acquire.request;
    ck_assert_str_eq(request->name, "job");
    ck_assert_ptr_null(request->amount);
    ck_assert_uint_eq(request->n_amounts, 2);
    ck_assert_int_eq(request->amounts[0].mode, LEASE_GROW);
    ck_assert_int_eq(request->amounts[0].max_bytes.value, 2);
    ck_assert_int_eq(request->amounts[1].permyriad.value, 4000);
    ck_assert_uint_eq(request->n_devices, 2);
    ck_assert_str_eq(request->devices[1], "GPU-b");
    ck_assert_int_eq(request->choose, CHOICE_LINKS);
    ck_assert(request->priority.has && request->priority.value == -3);
    ck_assert(request->wait.has && !request->wait.value);
    ck_assert(request->gpus.has && request->gpus.value == 0);
    ck_assert_str_eq(request->visible_devices, "");
    ck_assert_ptr_null(request->device_order);
    forget(&h);

    h = hear("{" M "Acquire\",\"parameters\":{\"request\":{\"devices\":[]}}}");
    ck_assert_int_eq(h.code, 0);
    ck_assert_ptr_nonnull(h.call.parameters.acquire.request->devices);
    ck_assert_uint_eq(h.call.parameters.acquire.request->n_devices, 0);
    ck_assert_ptr_null(h.call.parameters.acquire.request->amounts);
    forget(&h);
}
END_TEST

#define GROW(rest) "{" M "Grow\",\"parameters\":{" rest "}}"
#define ASK(rest)  "{" M "Acquire\",\"parameters\":{\"request\":{" rest "}}}"

START_TEST(what_is_wrong_is_named) {
    static const struct {
        const char *text;
        const char *parameter;
        const char *reason; /* a part of it */
    } rows[] = {
        { GROW("\"lease\":1,\"device\":\"a\""), "bytes", "missing" },
        { GROW(""), "lease", "missing" },
        { "{" M "Grow\"}", "lease", "missing" },
        { GROW("\"lease\":\"1\",\"device\":\"a\",\"bytes\":1"), "lease", "whole number" },
        { GROW("\"lease\":null,\"device\":\"a\",\"bytes\":1"), "lease", "whole number" },
        { GROW("\"lease\":-1,\"device\":\"a\",\"bytes\":1"), "lease", "from 0 to" },
        { GROW("\"lease\":0.5,\"device\":\"a\",\"bytes\":1"), "lease", "from 0 to" },
        { GROW("\"lease\":9223372036854775808,\"device\":\"a\",\"bytes\":1"), "lease", "from 0" },
        { GROW("\"lease\":1,\"device\":5,\"bytes\":1"), "device", "a string" },
        { GROW("\"lease\":1,\"device\":\"a\",\"bytes\":1,\"wait\":1"), "wait", "true or false" },
        { GROW("\"lease\":1,\"device\":\"a\",\"bytes\":1,\"lease\":1"), "lease", "twice" },
        { GROW("\"lease\":1,\"device\":\"a\",\"bytes\":1,\"uid\":0"), "uid", "not known" },
        { GROW("\"lease\":1,\"device\":\"a\",\"bytes\":1,\"timeout_usec\":-1"), "timeout_usec",
          "from 0" },
        { ASK("\"amount\":{}"), "request.amount.mode", "missing" },
        { ASK("\"amount\":[]"), "request.amount", "an object" },
        { ASK("\"amount\":{\"mode\":\"half\"}"), "request.amount.mode", "fraction, grow" },
        { ASK("\"amounts\":[{\"mode\":\"fixed\"},{\"mode\":\"fixed\",\"bytes\":true}]"),
          "request.amounts[1].bytes", "whole number" },
        { ASK("\"amounts\":[{\"mode\":\"fixed\"},7]"), "request.amounts[1]", "an object" },
        { ASK("\"amounts\":{}"), "request.amounts", "an array" },
        { ASK("\"devices\":[\"0\",null]"), "request.devices[1]", "a string" },
        { ASK("\"choose\":\"\""), "request.choose", "pack, spread" },
        { ASK("\"gpu\":1"), "request.gpu", "not known" },
        { "{" M "Acquire\",\"parameters\":{}}", "request", "missing" },
        { "{" M "Acquire\",\"parameters\":{\"request\":null}}", "request", "an object" },
        { "{" M "GetBox\",\"parameters\":{\"box\":1}}", "box", "not known" },
        { "{" M "GetBox\",\"parameters\":[]}", "parameters", "an object" },
        { "{" M "GetBox\",\"more\":1}", "more", "true or false" },
        { "{" M "GetBox\",\"more\":true,\"oneway\":true}", "more", "oneway" },
        { "{" M "GetBox\",\"upgrade\":true}", "upgrade", "not offered" },
        { "{" M "GetBox\",\"fds\":1}", "fds", "not known" },
        { "{" M "GetBox\"," M "GetBox\"}", "method", "twice" },
        { "{\"method\":1}", "method", "a string" },
        { "{\"method\":\"org.varlink.service.GetInterfaceDescription\"}", "interface", "missing" },
        { "{\"method\":\"org.varlink.service.GetInfo\",\"parameters\":{\"x\":{\"y\":[]}}}", "x",
          "not known" },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        struct heard h = hear(rows[i].text);

        ck_assert_msg(h.code == -EINVAL, "%s: %d", rows[i].text, h.code);
        ck_assert_int_eq(h.failure.code, FAILURE_INVALID_PARAMETER);
        ck_assert_str_eq(h.failure.parameter, rows[i].parameter);
        ck_assert_msg(strstr(h.failure.reason, rows[i].reason) != NULL, "%s: %s", rows[i].text,
                      h.failure.reason);
        forget(&h);
    }
}
END_TEST

START_TEST(what_is_no_call_at_all_is_told_from_a_wrong_one) {
    static const char *const texts[] = {
        "",
        "x",
        "[]",
        "7",
        "{}",
        "{\"method\":null",
        "{\"method\":\"a.b\"}{}",
        "{" M "Grow\"",
        "{" M "Grow\",\"parameters\":{\"lease\":}}",
        "{" M "Grow\",\"parameters\":{\"lease\":1,,}}",
        "{\"uid\":0," M "Grow\",\"parameters\":{\"lease\":\xff}}",
        /* 17 deep */
        "{" M "Grow\",\"parameters\":{\"x\":[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]}}",
    };

    for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
        struct heard h = hear(texts[i]);

        ck_assert_msg(h.code == -EBADMSG, "%s: %d", texts[i], h.code);
        ck_assert_int_eq(h.failure.code, FAILURE_INVALID_PARAMETER);
        ck_assert_str_eq(h.failure.parameter, "");
        ck_assert_uint_gt(strlen(h.failure.reason), 0);
        forget(&h);
    }
}
END_TEST

START_TEST(members_of_a_call_are_given_once) {
    static const struct {
        const char *member, *text;
    } twice[] = {
        { "method", "{" M "GetBox\"," M "GetBox\"}" },
        { "parameters", "{\"parameters\":{}," M "GetBox\",\"parameters\":{}}" },
        { "more", "{\"more\":false,\"more\":false," M "GetBox\"}" },
        { "oneway", "{\"oneway\":false," M "GetBox\",\"oneway\":false}" },
        { "upgrade", "{\"upgrade\":false,\"upgrade\":false," M "GetBox\"}" },
    };

    for (size_t i = 0; i < ELEMENTSOF(twice); i++) {
        struct heard h = hear(twice[i].text);

        ck_assert_int_eq(h.code, -EINVAL);
        ck_assert_str_eq(h.failure.parameter, twice[i].member);
        ck_assert_str_eq(h.failure.reason, "is given twice");
        forget(&h);
    }
}
END_TEST

START_TEST(what_is_no_call_says_why) {
    struct heard h = hear("{\"method\":1,}");

    ck_assert_int_eq(h.code, -EBADMSG);
    ck_assert_int_eq(strncmp(h.failure.reason, "is not JSON at byte 12: ", 24), 0);
    forget(&h);
    h = hear("{\"parameters\":{}}");
    ck_assert_int_eq(h.code, -EBADMSG);
    ck_assert_str_eq(h.failure.reason, "is not a call: a call is an object with a method");
    forget(&h);
    h = hear("[]");
    ck_assert_str_eq(h.failure.reason, "is not a call: a call is an object with a method");
    forget(&h);
}
END_TEST

START_TEST(methods_that_are_not_there_are_named) {
    static const struct {
        const char *text;
        enum failure_code code;
        const char *name;
    } rows[] = {
        { "{" M "Steal\"}", FAILURE_METHOD_NOT_FOUND, "io.allot.Manager.Steal" },
        { "{" M "\"}", FAILURE_METHOD_NOT_FOUND, "io.allot.Manager." },
        { "{" M "grow\"}", FAILURE_METHOD_NOT_FOUND, "io.allot.Manager.grow" },
        { "{\"method\":\"\"}", FAILURE_METHOD_NOT_FOUND, "" },
        { "{\"method\":\"Grow\"}", FAILURE_METHOD_NOT_FOUND, "Grow" },
        { "{\"method\":\"org.varlink.service.Get\"}", FAILURE_METHOD_NOT_FOUND,
          "org.varlink.service.Get" },
        { "{\"method\":\"io.systemd.Grow\"}", FAILURE_INTERFACE_NOT_FOUND, "io.systemd" },
        { "{\"method\":\".\"}", FAILURE_INTERFACE_NOT_FOUND, "" },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        struct heard h = hear(rows[i].text);

        ck_assert_msg(h.code == -EOPNOTSUPP, "%s: %d", rows[i].text, h.code);
        ck_assert_int_eq(h.failure.code, rows[i].code);
        ck_assert_str_eq(rows[i].code == FAILURE_METHOD_NOT_FOUND ? h.failure.method
                                                                  : h.failure.interface,
                         rows[i].name);
        forget(&h);
    }
}
END_TEST

START_TEST(parameters_are_an_object_or_none) {
    struct heard h = hear("{" M "GetBox\",\"parameters\":null}");

    ck_assert_int_eq(h.code, 0);
    forget(&h);
    h = hear("{" M "GetBox\"}");
    ck_assert_int_eq(h.code, 0);
    forget(&h);
    h = hear("{" M "GetBox\",\"parameters\":[]}");
    ck_assert_int_lt(h.code, 0);
    ck_assert_str_eq(h.failure.parameter, "parameters");
    ck_assert_ptr_nonnull(strstr(h.failure.reason, "must be an object"));
    forget(&h);
}
END_TEST

START_TEST(oneway_is_known_whatever_else_is_wrong) {
    static const char *const texts[] = {
        "{" M "Grow\",\"parameters\":{\"lease\":\"x\"},\"oneway\":true}",
        "{" M "Nonsense\",\"oneway\":true}",
        "{\"uid\":1," M "Grow\",\"oneway\":true}",
        "{\"method\":1,\"oneway\":true}",
    };

    for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
        struct heard h = hear(texts[i]);

        ck_assert_int_lt(h.code, 0);
        ck_assert(h.call.oneway);
        forget(&h);
    }
}
END_TEST

START_TEST(an_array_without_end_is_refused) {
    size_t n = 0;
    char *text = malloc(65536);
    struct heard h;

    n += (size_t)sprintf(text, "{" M "Drain\",\"parameters\":{\"devices\":[\"\"");
    while (n < 60000)
        n += (size_t)sprintf(text + n, ",\"\"");
    sprintf(text + n, "]}}");
    h = hear(text);
    ck_assert_int_eq(h.code, -EINVAL);
    ck_assert_str_eq(h.failure.parameter, "devices");
    forget(&h);
    free(text);
}
END_TEST

START_TEST(long_names_of_members_are_cut) {
    char text[4096];
    struct heard h;
    int n = sprintf(text, "{" M "GetBox\",\"parameters\":{\"");

    memset(text + n, 'x', 3000);
    strcpy(text + n + 3000, "\":1}}");
    h = hear(text);
    ck_assert_int_eq(h.code, -EINVAL);
    ck_assert_uint_lt(strlen(h.failure.parameter), 200);
    forget(&h);
}
END_TEST

static const char *written(struct json_writer *w) {
    json_put_raw(w, "", 1);
    ck_assert(!w->failed);
    return w->data;
}

START_TEST(replies_and_failures_have_their_envelopes) {
    static const struct wire_grow_reply grown = { 4096, 8192 };
    static const struct failure none = { .code = FAILURE_NO_MEMORY,
                                         .reason = "full",
                                         .device = "GPU-a",
                                         .free_bytes = { true, 17 },
                                         .place = { true, 1 } };
    struct json_writer w = { 0 };

    varlink_reply_write(&w, WIRE_METHOD_GROW, &grown, false);
    ck_assert_str_eq(written(&w), "{\"parameters\":{\"held_bytes\":4096,\"limit_bytes\":8192}}");
    w.len = 0;
    varlink_reply_write(&w, WIRE_METHOD_RELOAD, NULL, false);
    ck_assert_str_eq(written(&w), "{\"parameters\":{}}");
    w.len = 0;
    varlink_reply_write(&w, WIRE_METHOD_ACQUIRE,
                        &(struct wire_acquire_reply){ .place = { true, 3 }, .reason = "full" },
                        true);
    ck_assert_str_eq(written(&w),
                     "{\"parameters\":{\"place\":3,\"reason\":\"full\"},\"continues\":true}");
    w.len = 0;
    varlink_failure_write(&w, &none);
    ck_assert_str_eq(written(&w),
                     "{\"error\":\"io.allot.Manager.NoMemory\",\"parameters\":{\"reason\":"
                     "\"full\",\"device\":\"GPU-a\",\"free_bytes\":17}}");
    w.len = 0;
    varlink_failure_write(&w, &(struct failure){ .code = FAILURE_DEADLOCK, .reason = "a knot" });
    ck_assert_ptr_nonnull(strstr(written(&w), "\"reason\":\"a knot\",\"holders\":[]}}"));
    w.len = 0;
    varlink_failure_write(&w, &(struct failure){ .code = FAILURE_INVALID_PARAMETER });
    ck_assert_ptr_nonnull(strstr(written(&w), "\"parameter\":\"\""));
    w.len = 0;
    varlink_failure_write(&w, &(struct failure){ .code = FAILURE_METHOD_NOT_FOUND });
    ck_assert_ptr_nonnull(strstr(written(&w), "\"method\":\"\""));
    w.len = 0;
    varlink_failure_write(&w, &(struct failure){ .code = FAILURE_INTERFACE_NOT_FOUND });
    ck_assert_ptr_nonnull(strstr(written(&w), "\"interface\":\"\""));
    json_writer_done(&w);
}
END_TEST

START_TEST(the_service_describes_itself) {
    static const struct varlink_service service = { "v", "p", "1", "u" };
    struct heard h = hear("{\"method\":\"org.varlink.service.GetInfo\"}");
    struct json_writer w = { 0 };

    ck_assert_int_eq(h.code, 0);
    ck_assert_uint_eq(h.call.method, VARLINK_GET_INFO);
    varlink_service_reply_write(&w, &h.call, &service);
    ck_assert_str_eq(
        written(&w),
        "{\"parameters\":{\"vendor\":\"v\",\"product\":\"p\",\"version\":\"1\",\"url\":\"u\","
        "\"interfaces\":[\"org.varlink.service\",\"io.allot.Manager\"]}}");
    forget(&h);

    w.len = 0;
    h = hear("{\"method\":\"org.varlink.service.GetInterfaceDescription\",\"parameters\":{"
             "\"interface\":\"io.allot.Manager\"}}");
    ck_assert_int_eq(h.code, 0);
    varlink_service_reply_write(&w, &h.call, &service);
    ck_assert_ptr_nonnull(strstr(written(&w), "method Grow(lease: int, device: string"));
    forget(&h);

    w.len = 0;
    h = hear("{\"method\":\"org.varlink.service.GetInterfaceDescription\",\"parameters\":{"
             "\"interface\":\"org.varlink.service\"}}");
    ck_assert_int_eq(h.code, 0);
    varlink_service_reply_write(&w, &h.call, &service);
    ck_assert_ptr_nonnull(strstr(written(&w), "method GetInfo() -> ("));
    forget(&h);

    w.len = 0;
    h = hear("{\"method\":\"org.varlink.service.GetInterfaceDescription\",\"parameters\":{"
             "\"interface\":\"io.nobody\"}}");
    varlink_service_reply_write(&w, &h.call, &service);
    ck_assert_ptr_eq(strstr(written(&w), "{\"error\":\"org.varlink.service.InterfaceNotFound\","
                                         "\"parameters\":{\"interface\":\"io.nobody\""),
                     w.data);
    forget(&h);
    json_writer_done(&w);
}
END_TEST

START_TEST(what_a_caller_writes_the_daemon_reads) {
    const struct wire_kill kill = { .lease = 3, .signal = { true, 9 } };
    struct json_writer w = { 0 };
    struct heard h;

    for (int wait = 0; wait < 2; wait++) {
        const struct wire_grow grow = {
            .lease = 3, .device = "GPU-a", .bytes = 5, .wait = { true, wait }
        };

        w.len = 0;
        varlink_call_write(&w, WIRE_METHOD_GROW, &grow, 0);
        h = hear(written(&w));
        ck_assert_int_eq(h.code, 0);
        ck_assert(h.call.parameters.grow.wait.has);
        ck_assert_int_eq((int)h.call.parameters.grow.wait.value, wait);
        ck_assert(!h.call.parameters.grow.timeout_usec.has);
        forget(&h);
    }
    w.len = 0;
    varlink_call_write(&w, WIRE_METHOD_RELEASE, &(struct wire_release){ 4 }, 0); /* one member */
    h = hear(written(&w));
    ck_assert_int_eq(h.code, 0);
    ck_assert_uint_eq(h.call.parameters.release.lease, 4);
    forget(&h);
    w.len = 0;
    varlink_call_write(&w, WIRE_METHOD_GET_BOX, NULL, 0);
    ck_assert_str_eq(written(&w), "{\"method\":\"io.allot.Manager.GetBox\"}");
    w.len = 0;
    varlink_call_write(&w, WIRE_METHOD_KILL, &kill, VARLINK_ONEWAY);
    h = hear(written(&w));
    ck_assert_int_eq(h.code, 0);
    ck_assert(h.call.oneway);
    ck_assert_uint_eq(h.call.method, WIRE_METHOD_KILL);
    ck_assert_int_eq(h.call.parameters.kill.signal.value, 9);
    forget(&h);

    w.len = 0;
    varlink_call_write(&w, WIRE_METHOD_MONITOR, NULL, VARLINK_MORE);
    h = hear(written(&w));
    ck_assert_int_eq(h.code, 0);
    ck_assert(h.call.more);
    forget(&h);
    json_writer_done(&w);
}
END_TEST

START_TEST(a_caller_reads_replies_failures_and_nonsense) {
    static const struct {
        const char *text;
        int code;
        const char *said;
    } rows[] = {
        { "{\"parameters\":{\"held_bytes\":1,\"limit_bytes\":2}}", 0, "" },
        { "{\"continues\":true,\"x\":[],\"parameters\":{\"held_bytes\":1,\"limit_bytes\":2,\"n\":0}"
          "}",
          1, "" },
        { "{\"error\":\"io.allot.Manager.NoMemory\",\"parameters\":{\"reason\":\"full\"}}",
          -EREMOTEIO, "full" },
        { "{\"error\":\"io.allot.Manager.NoMemory\"}", -EREMOTEIO, "not enough" },
        { "{\"error\":\"io.allot.Manager.NoMemory\",\"parameters\":{\"reason\":7}}", -EREMOTEIO,
          "not enough" },
        { "{\"error\":\"org.varlink.service.InvalidParameter\",\"parameters\":{\"parameter\":"
          "\"bytes\"}}",
          -EREMOTEIO, "bytes is not valid" },
        { "{\"error\":\"com.example.Odd\",\"parameters\":{}}", -EREMOTEIO, "com.example.Odd" },
        { "{\"parameters\":{\"held_bytes\":1}}", -EINVAL, "limit_bytes is missing" },
        { "{}", -EINVAL, "held_bytes is missing" },
        { "{\"parameters\":[]}", -EINVAL, "object" },
        { "{\"parameters\":{\"held_bytes\":1,\"limit_bytes\":2}} x", -EBADMSG,
          "not a Varlink reply" },
        { "{\"error\":7}", -EINVAL, "not a Varlink reply" },
        { "[]", -EINVAL, "not a Varlink reply" },
        { "", -EBADMSG, "not a Varlink reply" },
        { "HTTP/1.1 400 Bad Request", -EBADMSG, "not a Varlink reply" },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        cleanup(freep) char *text = strdup(rows[i].text);
        struct allot_error err = { 0 };
        struct store store = { 0 };
        struct failure failure;
        union wire_reply reply;
        int code = varlink_reply_read(&reply, &failure, WIRE_METHOD_GROW, text,
                                      strlen(rows[i].text), &store, &err);

        ck_assert_msg(code == rows[i].code, "%s: %d", rows[i].text, code);
        ck_assert_msg(strstr(err.text, rows[i].said) != NULL, "%s: %s", rows[i].text, err.text);
        ck_assert((code == -EREMOTEIO) == (failure.code != FAILURE_NONE));
        if (code >= 0)
            ck_assert_uint_eq(reply.grow.limit_bytes, 2);
        store_done(&store);
    }
}
END_TEST

SUITE("varlink", calls_are_read_whatever_the_order_of_their_members,
      a_request_is_read_with_all_that_is_in_it, what_is_wrong_is_named,
      what_is_no_call_at_all_is_told_from_a_wrong_one, what_is_no_call_says_why,
      members_of_a_call_are_given_once, methods_that_are_not_there_are_named,
      parameters_are_an_object_or_none, oneway_is_known_whatever_else_is_wrong,
      an_array_without_end_is_refused, long_names_of_members_are_cut,
      replies_and_failures_have_their_envelopes, the_service_describes_itself,
      what_a_caller_writes_the_daemon_reads, a_caller_reads_replies_failures_and_nonsense)
