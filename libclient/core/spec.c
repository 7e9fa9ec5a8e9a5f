/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/core/spec.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* A word of letters, digits and _ that begins with a letter; the length, 0: none. */
static size_t word_length(const char *text) {
    size_t n = 0;

    if (!isalpha((unsigned char)*text))
        return 0;
    while (isalnum((unsigned char)text[n]) || text[n] == '_')
        n++;
    return n;
}

/* `name` at the beginning of `text`, in either case if `any_case`; how long it is, 0: not there. */
static size_t literal(const char *text, const char *name, bool any_case) {
    size_t n = strlen(name);

    return (any_case ? strncasecmp(text, name, n) : strncmp(text, name, n)) == 0 ? n : 0;
}

/* A number, or * for an open part. After it the text must end or continue with a slash. */
static int parse_number(const char **text, bool *ret_has, int *ret) {
    long value = 0;
    size_t n = 0;

    if (**text == '*') {
        *ret_has = false;
        (*text)++;
        return 0;
    }
    for (; isdigit((unsigned char)(*text)[n]); n++) {
        value = value * 10 + ((*text)[n] - '0');
        if (value > INT_MAX)
            return -EINVAL;
    }
    if (n == 0)
        return -EINVAL;
    *ret_has = true;
    *ret = (int)value;
    *text += n;
    return 0;
}

static int parse_word(const char **text, bool *ret_has, char ret[static SPEC_WORD_SIZE]) {
    size_t n = word_length(*text);

    if (**text == '*') {
        *ret_has = false;
        (*text)++;
        return 0;
    }
    if (n == 0 || n >= SPEC_WORD_SIZE)
        return -EINVAL;
    memcpy(ret, *text, n);
    ret[n] = 0;
    *ret_has = true;
    *text += n;
    return 0;
}

/* TYPE, TYPE:3, TYPE:*, from behind "device:" or in a short form. */
static int parse_device(struct spec *spec, const char **text) {
    int r = parse_word(text, &spec->has_type, spec->type);

    if (r < 0)
        return r;
    if (**text != ':')
        return 0;
    (*text)++;
    return parse_number(text, &spec->has_id, &spec->id);
}

static int parse_part(struct spec *spec, const char **text) {
    static const char *const shorts[] = { "cpu", "gpu" };
    size_t n;

    if ((n = literal(*text, "job:", false))) {
        *text += n;
        return parse_word(text, &spec->has_job, spec->job);
    }
    if ((n = literal(*text, "replica:", false))) {
        *text += n;
        return parse_number(text, &spec->has_replica, &spec->replica);
    }
    if ((n = literal(*text, "task:", false))) {
        *text += n;
        return parse_number(text, &spec->has_task, &spec->task);
    }
    if ((n = literal(*text, "device:", false))) {
        *text += n;
        return parse_device(spec, text);
    }
    for (size_t i = 0; i < sizeof(shorts) / sizeof(shorts[0]); i++)
        if ((n = literal(*text, shorts[i], true)) && ((*text)[n] == ':' || (*text)[n] == 0)) {
            int r = parse_device(spec, text);

            for (char *c = spec->type; *c; c++)
                *c = (char)toupper((unsigned char)*c);
            return r;
        }
    return -EINVAL;
}

int spec_parse(struct spec *ret, const char *text) {
    struct spec spec = { 0 };
    int r;

    if (*text && *text != '/') {
        /* GPU:0, as lists of devices print it: one part, without its slash. */
        r = parse_part(&spec, &text);
        if (r < 0 || *text)
            return -EINVAL;
        *ret = spec;
        return 0;
    }
    while (*text) {
        if (*text != '/')
            return -EINVAL;
        text++;
        r = parse_part(&spec, &text);
        if (r < 0)
            return r;
    }
    *ret = spec;
    return 0;
}

const char *spec_format(const struct spec *spec, char text[static SPEC_TEXT_SIZE]) {
    size_t n = 0;

    text[0] = 0;
#define ADD(...)                                                                                   \
    n += (size_t)snprintf(text + n, n < SPEC_TEXT_SIZE ? SPEC_TEXT_SIZE - n : 0, __VA_ARGS__)
    if (spec->has_job)
        ADD("/job:%s", spec->job);
    if (spec->has_replica)
        ADD("/replica:%d", spec->replica);
    if (spec->has_task)
        ADD("/task:%d", spec->task);
    if (spec->has_type || spec->has_id)
        ADD("/device:%s:", spec->has_type ? spec->type : "*");
    if (spec->has_id)
        ADD("%d", spec->id);
    else if (spec->has_type)
        ADD("*");
#undef ADD
    return text;
}

bool spec_is_full(const struct spec *spec) {
    return spec->has_job && spec->has_replica && spec->has_task && spec->has_type && spec->has_id;
}

bool spec_matches(const struct spec *wanted, const struct spec *full) {
    return (!wanted->has_job || (full->has_job && strcmp(wanted->job, full->job) == 0)) &&
           (!wanted->has_replica || (full->has_replica && wanted->replica == full->replica)) &&
           (!wanted->has_task || (full->has_task && wanted->task == full->task)) &&
           (!wanted->has_type || (full->has_type && strcmp(wanted->type, full->type) == 0)) &&
           (!wanted->has_id || (full->has_id && wanted->id == full->id));
}

/* What two specs disagree about; NULL: nothing. */
static const char *find_conflict(const struct spec *a, const struct spec *b) {
    if (a->has_job && b->has_job && strcmp(a->job, b->job) != 0)
        return "jobs";
    if (a->has_replica && b->has_replica && a->replica != b->replica)
        return "replicas";
    if (a->has_task && b->has_task && a->task != b->task)
        return "tasks";
    if (a->has_type && b->has_type && strcmp(a->type, b->type) != 0)
        return "types";
    if (a->has_id && b->has_id && a->id != b->id)
        return "ids";
    return NULL;
}

bool spec_compatible(const struct spec *a, const struct spec *b) {
    return !find_conflict(a, b);
}

void spec_override(struct spec *into, const struct spec *by) {
    if (by->has_job) {
        into->has_job = true;
        memcpy(into->job, by->job, sizeof(into->job));
    }
    if (by->has_replica) {
        into->has_replica = true;
        into->replica = by->replica;
    }
    if (by->has_task) {
        into->has_task = true;
        into->task = by->task;
    }
    if (by->has_type) {
        into->has_type = true;
        memcpy(into->type, by->type, sizeof(into->type));
    }
    if (by->has_id) {
        into->has_id = true;
        into->id = by->id;
    }
}

const char *spec_merge(struct spec *into, const struct spec *other, bool soft) {
    struct spec merged = *into;
    const char *conflict = find_conflict(into, other);
    bool types_differ, ids_differ;

    if (!conflict) {
        spec_override(into, other);
        return NULL;
    }
    if (!soft || (strcmp(conflict, "types") != 0 && strcmp(conflict, "ids") != 0))
        return conflict;
    types_differ = into->has_type && other->has_type && strcmp(into->type, other->type) != 0;
    ids_differ = into->has_id && other->has_id && into->id != other->id;
    spec_override(&merged, other);
    if (types_differ)
        merged.has_type = merged.has_id = false;
    else if (ids_differ)
        merged.has_id = false;
    *into = merged;
    return NULL;
}
