/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call is walked twice: first its envelope, which skips the parameters and so checks all of the
 * text, then the parameters by the type of the method. So the order of members does not matter,
 * `oneway` is known whatever is wrong with the parameters, and text that is not JSON is told from
 * JSON that is not a call. The first walk takes a tenth of a microsecond.
 */
#include "wire/varlink.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "wire/type.h"

#define ALLOT_PREFIX   VARLINK_INTERFACE "."
#define SERVICE_PREFIX "org.varlink.service."

static const struct wire_type nothing_type = { .name = "()", .size = sizeof(struct wire_nothing) };

struct describe {
    const char *interface;
};
static const struct wire_field describe_fields[] = { STRING(describe, interface) };
static const struct wire_type describe_type = WIRE_TYPE(describe, "describe", describe_fields);

/* ---- Reading a call ------------------------------------------------------------------------- */

static int refuse(struct failure *failure, enum failure_code code) {
    *failure = (struct failure){ .code = code };
    return failure_errno(code);
}

/* InvalidParameter, with texts that outlive the caller's. */
static int refuse_member(struct failure *failure, struct store *store, const char *member,
                         const char *reason) {
    failure->parameter = store_copy(store, member);
    failure->reason = store_copy(store, reason);
    failure->code = FAILURE_INVALID_PARAMETER;
    return failure->parameter && failure->reason ? -EINVAL : -ENOMEM;
}

struct envelope {
    char *method;
    size_t method_n;
    char *parameters; /* NULL: none */
    size_t parameters_n;
    bool more, oneway, upgrade;
};

enum envelope_member { METHOD, PARAMETERS, MORE, ONEWAY, UPGRADE, MEMBERS };

static enum envelope_member member_find(const char *name) {
    static const char *const names[] = { "method", "parameters", "more", "oneway", "upgrade" };
    enum envelope_member m = METHOD;

    while (m < MEMBERS && strcmp(names[m], name) != 0)
        m++;
    return m;
}

static int read_flag(struct json_reader *r, bool *ret) {
    return json_peek(r) == JSON_NULL ? json_read_null(r) : json_read_bool(r, ret);
}

/* -EINVAL: the member `*ret_wrong` is wrong in the way that `*ret_reason` says. */
static int read_envelope(struct json_reader *r, struct envelope *ret, const char **ret_wrong,
                         const char **ret_reason) {
    unsigned seen = 0;
    char *name;
    size_t n;
    int code, fault = 0;

    code = json_enter(r, JSON_OBJECT);
    while (code >= 0 && (code = json_next_member(r, &name, &n)) > 0) {
        enum envelope_member member = member_find(name);
        const char *reason = "is not known";

        if (member == MEMBERS) {
            code = -EINVAL;
        } else if (seen & 1u << member) {
            code = -EINVAL;
            reason = "is given twice";
        } else if (member == METHOD) {
            code = json_read_string(r, &ret->method, &ret->method_n);
            reason = "must be a string";
        } else if (member == PARAMETERS) {
            code = json_peek(r) == JSON_OBJECT ? json_skip(r, &ret->parameters, &ret->parameters_n)
                   : json_peek(r) == JSON_NULL ? json_read_null(r)
                                               : -EPROTOTYPE;
            reason = "must be an object";
        } else {
            code = read_flag(r, member == MORE     ? &ret->more
                                : member == ONEWAY ? &ret->oneway
                                                   : &ret->upgrade);
            reason = "must be true or false";
        }
        seen |= 1u << member;
        if (code == -EINVAL || code == -EPROTOTYPE) {
            /* Walk on: `oneway` may still follow, or the rest may not be JSON. */
            if (!fault) {
                *ret_wrong = name;
                *ret_reason = reason;
                fault = -EINVAL;
            }
            code = json_skip(r, NULL, NULL);
        }
    }
    if (code >= 0)
        code = json_finish(r);
    return code < 0 ? code : fault;
}

/* Find the method by its full name, otherwise set a failure. */
static int find_method(unsigned *ret, const struct envelope *envelope, struct store *store,
                       struct failure *failure) {
    const size_t ours = sizeof(ALLOT_PREFIX) - 1, service = sizeof(SERVICE_PREFIX) - 1;
    const char *name = envelope->method;
    char *dot;

    if (strncmp(name, ALLOT_PREFIX, ours) == 0) {
        *ret = wire_method_find(name + ours, envelope->method_n - ours);
        if (*ret != WIRE_METHODS)
            return 0;
    } else if (strncmp(name, SERVICE_PREFIX, service) == 0) {
        *ret = strcmp(name + service, "GetInfo") == 0 ? VARLINK_GET_INFO
               : strcmp(name + service, "GetInterfaceDescription") == 0
                   ? VARLINK_GET_INTERFACE_DESCRIPTION
                   : WIRE_METHODS;
        if (*ret != WIRE_METHODS)
            return 0;
    } else if ((dot = strrchr(envelope->method, '.'))) {
        refuse(failure, FAILURE_INTERFACE_NOT_FOUND);
        failure->interface = store_copy(store, name);
        if (!failure->interface)
            return -ENOMEM;
        ((char *)failure->interface)[dot - name] = '\0';
        return -EOPNOTSUPP;
    }
    refuse(failure, FAILURE_METHOD_NOT_FOUND);
    failure->method = store_copy(store, name);
    return failure->method ? -EOPNOTSUPP : -ENOMEM;
}

static int read_parameters(struct varlink_call *call, const struct envelope *envelope,
                           struct store *store, struct failure *failure) {
    const struct wire_type *type = call->method < WIRE_METHODS ? wire_methods[call->method].call
                                   : call->method == VARLINK_GET_INFO ? &nothing_type
                                                                      : &describe_type;
    char none[] = "{}";
    struct describe describe;
    struct wire_fault fault;
    struct json_reader r;
    int code;

    json_reader_init(&r, envelope->parameters ? envelope->parameters : none,
                     envelope->parameters ? envelope->parameters_n : sizeof(none) - 1);
    code = wire_decode(type == &describe_type ? (void *)&describe : &call->parameters, type,
                       WIRE_STRICT, &r, store, &fault);
    if (code < 0)
        return code == -ENOMEM ? code : refuse_member(failure, store, fault.member, fault.reason);
    if (type == &describe_type)
        call->interface = describe.interface;
    return 0;
}

int varlink_call_read(struct varlink_call *ret, char *text, size_t n, struct store *store,
                      struct failure *failure) {
    const char *wrong = "", *reason = "";
    struct envelope envelope = { 0 };
    struct json_reader r;
    int code;

    *failure = (struct failure){ 0 };
    json_reader_init(&r, text, n);
    code = read_envelope(&r, &envelope, &wrong, &reason);
    ret->method = WIRE_METHODS;
    ret->more = envelope.more;
    ret->oneway = envelope.oneway;
    ret->interface = NULL;
    if (code == -EINVAL)
        return refuse_member(failure, store, wrong, reason);
    if (code < 0 || !envelope.method) {
        char why[128];

        if (code == -EBADMSG)
            snprintf(why, sizeof(why), "is not JSON at byte %td: %s", r.at - r.start, r.why);
        else
            snprintf(why, sizeof(why), "is not a call: a call is an object with a method");
        code = refuse_member(failure, store, "", why);
        return code == -ENOMEM ? code : -EBADMSG;
    }
    if (envelope.upgrade)
        return refuse_member(failure, store, "upgrade", "is not offered");
    if (envelope.more && envelope.oneway)
        return refuse_member(failure, store, "more", "cannot go with oneway");

    code = find_method(&ret->method, &envelope, store, failure);
    return code < 0 ? code : read_parameters(ret, &envelope, store, failure);
}

/* ---- Writing replies ------------------------------------------------------------------------ */

#define PUT(w, literal) json_put_raw(w, literal, sizeof(literal) - 1)

void varlink_reply_write(struct json_writer *w, unsigned method, const void *reply,
                         bool continues) {
    PUT(w, "{\"parameters\":");
    w->comma = false;
    wire_encode(w, wire_methods[method].reply, reply);
    if (continues)
        PUT(w, ",\"continues\":true");
    PUT(w, "}");
}

void varlink_failure_write(struct json_writer *w, const struct failure *failure) {
    struct failure kept = failure_prune(failure);

    PUT(w, "{\"error\":");
    w->comma = false;
    json_put_string(w, failure_name(failure->code));
    PUT(w, ",\"parameters\":");
    w->comma = false;
    wire_encode(w, &failure_type, &kept);
    PUT(w, "}");
}

/* ---- The caller's side ---------------------------------------------------------------------- */

void varlink_call_write(struct json_writer *w, enum wire_method method, const void *parameters,
                        enum varlink_flags flags) {
    const struct wire_method_info *info = &wire_methods[method];

    PUT(w, "{\"method\":\"" ALLOT_PREFIX);
    json_put_raw(w, info->name, strlen(info->name));
    PUT(w, "\"");
    if (info->call->n_fields > 0) {
        PUT(w, ",\"parameters\":");
        w->comma = false;
        wire_encode(w, info->call, parameters);
    }
    if (flags & VARLINK_MORE)
        PUT(w, ",\"more\":true");
    if (flags & VARLINK_ONEWAY)
        PUT(w, ",\"oneway\":true");
    PUT(w, "}");
}

struct varlink_answer {
    char *parameters;
    size_t parameters_n;
    char *error;
    bool continues;
};

static int read_answer(struct json_reader *r, struct varlink_answer *ret) {
    char *name;
    size_t n;
    int code;

    code = json_enter(r, JSON_OBJECT);
    while (code >= 0 && (code = json_next_member(r, &name, &n)) > 0) {
        if (strcmp(name, "parameters") == 0 && json_peek(r) != JSON_NULL)
            code = json_skip(r, &ret->parameters, &ret->parameters_n);
        else if (strcmp(name, "error") == 0 && json_peek(r) != JSON_NULL)
            code = json_read_string(r, &ret->error, NULL);
        else if (strcmp(name, "continues") == 0)
            code = read_flag(r, &ret->continues);
        else
            code = json_skip(r, NULL, NULL);
    }
    return code < 0 ? code : json_finish(r);
}

int varlink_reply_read(union wire_reply *ret, struct failure *failure, enum wire_method method,
                       char *text, size_t n, struct store *store, struct allot_error *err) {
    char none[] = "{}";
    struct varlink_answer answer = { 0 };
    const struct wire_type *type;
    struct wire_fault fault;
    struct json_reader r;
    int code;

    *failure = (struct failure){ 0 };
    json_reader_init(&r, text, n);
    code = read_answer(&r, &answer);
    if (code < 0)
        return error_set(err, code == -EPROTOTYPE ? -EINVAL : code,
                         "the answer to %s is not a Varlink reply%s%s; is the socket allotd's?",
                         wire_methods[method].name, r.why ? ": " : "", r.why ? r.why : "");

    json_reader_init(&r, answer.parameters ? answer.parameters : none,
                     answer.parameters ? answer.parameters_n : sizeof(none) - 1);
    type = answer.error ? &failure_type : wire_methods[method].reply;
    code = wire_decode(answer.error ? (void *)failure : ret, type, WIRE_LENIENT, &r, store, &fault);
    if (code == -ENOMEM)
        return error_set(err, code, "out of memory for the answer to %s",
                         wire_methods[method].name);
    if (answer.error) {
        /* It is an error even if its parameters make no sense. */
        if (code < 0)
            *failure = (struct failure){ 0 };
        failure->code = failure_find(answer.error);
        failure->name = answer.error;
        failure_to_error(failure, err);
        return -EREMOTEIO;
    }
    if (code < 0)
        return error_set(
            err, code, "the answer to %s: %s %s; does the daemon have another version?",
            wire_methods[method].name, fault.member[0] ? fault.member : "it", fault.reason);
    return answer.continues ? 1 : 0;
}
