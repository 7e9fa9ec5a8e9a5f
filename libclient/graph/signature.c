/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signature: the text of opdef.h, read into a struct opdef.
 *
 * Arguments refer to attributes that follow them, so the words of their types are kept while the
 * arguments are read, and looked up when the attributes are known. Texts may come from users (their
 * own ops): every fault is reported with its place.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/graph/opdef.h"

/* The most entries of a list that is a default. */
#define INTS_MAX 64

/* Words of an argument, until the attributes are known. */
struct words {
    char type[OPDEF_NAME_SIZE], length[OPDEF_NAME_SIZE]; /* length "": single */
    size_t type_at, length_at;
};

struct signature_reader {
    const char *op, *text;
    size_t at;
    struct allot_error *err;
    struct words inputs[OPDEF_ARGS_MAX], outputs[OPDEF_ARGS_MAX];
};

/* "signature of Op, character 8: <what>" */
static int fault(const struct signature_reader *reader, size_t at, const char *what,
                 const char *word) {
    return error_set(reader->err, -EINVAL, "signature of op %s, character %zu: %s%s%s%s",
                     reader->op, at + 1, what, word ? " '" : "", word ? word : "", word ? "'" : "");
}

static void skip_space(struct signature_reader *reader) {
    while (reader->text[reader->at] == ' ' || reader->text[reader->at] == '\n')
        reader->at++;
}

static bool accept(struct signature_reader *reader, const char *mark) {
    skip_space(reader);
    if (strncmp(reader->text + reader->at, mark, strlen(mark)) != 0)
        return false;
    reader->at += strlen(mark);
    return true;
}

static int expect(struct signature_reader *reader, const char *mark) {
    char what[48], found[2] = { 0 };

    if (accept(reader, mark))
        return 0;
    found[0] = reader->text[reader->at];
    snprintf(what, sizeof(what), "'%s' is missing before", mark);
    return found[0] ? fault(reader, reader->at, what, found)
                    : fault(reader, reader->at, what, "the end");
}

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static int read_word(struct signature_reader *reader, char word[static OPDEF_NAME_SIZE]) {
    const char *start;
    size_t n = 0;

    skip_space(reader);
    start = reader->text + reader->at;
    while (is_word(start[n]))
        n++;
    if (n == 0 || isdigit((unsigned char)start[0]))
        return fault(reader, reader->at, "a name is missing", NULL);
    if (n >= OPDEF_NAME_SIZE)
        return fault(reader, reader->at, "a name is longer than 47 characters", NULL);
    memcpy(word, start, n);
    word[n] = '\0';
    reader->at += n;
    return 0;
}

/* ---- Arguments ------------------------------------------------------------------------------- */

static int read_arg(struct signature_reader *reader, struct opdef_arg *arg, struct words *words) {
    char word[OPDEF_NAME_SIZE];
    int r = read_word(reader, arg->name);

    if (r == 0)
        r = expect(reader, ":");
    skip_space(reader);
    words->type_at = words->length_at = reader->at;
    if (r == 0)
        r = read_word(reader, word);
    if (r == 0 && accept(reader, "*")) {
        strcpy(words->length, word);
        skip_space(reader);
        words->type_at = reader->at;
        r = read_word(reader, word);
    }
    if (r == 0 && strcmp(word, "var") == 0) {
        arg->is_variable = true;
        skip_space(reader);
        words->type_at = reader->at;
        r = read_word(reader, word);
    }
    if (r == 0)
        strcpy(words->type, word);
    return r;
}

static int read_args(struct signature_reader *reader, struct opdef_arg *args, struct words *words,
                     size_t *ret_n) {
    size_t n = 0, at;
    int r = expect(reader, "(");

    if (r < 0)
        return r;
    if (accept(reader, ")")) {
        *ret_n = 0;
        return 0;
    }
    do {
        skip_space(reader);
        at = reader->at;
        if (n == OPDEF_ARGS_MAX)
            return fault(reader, at, "more than 16 arguments", NULL);
        r = read_arg(reader, &args[n], &words[n]);
        if (r < 0)
            return r;
        for (size_t i = 0; i < n; i++)
            if (strcmp(args[i].name, args[n].name) == 0)
                return fault(reader, at, "a second argument is called", args[n].name);
        n++;
    } while (accept(reader, ","));
    *ret_n = n;
    return expect(reader, ")");
}

static int resolve(struct signature_reader *reader, const struct opdef *op, struct opdef_arg *args,
                   const struct words *words, size_t n) {
    for (size_t i = 0; i < n; i++) {
        args[i].type_attr = opdef_attr_index(op, words[i].type);
        args[i].length_attr = -1;
        if (args[i].type_attr < 0) {
            args[i].dtype = dtype_by_name(words[i].type);
            if (args[i].dtype == DTYPE_NONE || isupper((unsigned char)words[i].type[0]))
                return fault(reader, words[i].type_at, "neither a type nor an attribute is called",
                             words[i].type);
        } else if (op->attrs[args[i].type_attr].kind != ATTR_DTYPE)
            return fault(reader, words[i].type_at, "no type, but another attribute, is",
                         words[i].type);
        if (!words[i].length[0])
            continue;
        args[i].length_attr = opdef_attr_index(op, words[i].length);
        if (args[i].length_attr < 0 || op->attrs[args[i].length_attr].kind != ATTR_INT)
            return fault(reader, words[i].length_at, "a list is as long as an attribute int, not",
                         words[i].length);
    }
    return 0;
}

/* ---- Attributes ------------------------------------------------------------------------------ */

static int read_set(struct signature_reader *reader, uint32_t *ret) {
    char word[OPDEF_NAME_SIZE];
    uint32_t dtypes = 0;
    int r;

    do {
        size_t at;

        skip_space(reader);
        at = reader->at;
        r = read_word(reader, word);
        if (r < 0)
            return r;
        if (dtype_by_name(word) == DTYPE_NONE || isupper((unsigned char)word[0]))
            return fault(reader, at, "there is no type", word);
        dtypes |= 1u << dtype_by_name(word);
    } while (accept(reader, ","));
    *ret = dtypes;
    return expect(reader, "}");
}

static int read_kind(struct signature_reader *reader, struct opdef_attr *attr) {
    char word[OPDEF_NAME_SIZE];
    size_t at;
    int r;

    if (accept(reader, "{")) {
        attr->kind = ATTR_DTYPE;
        return read_set(reader, &attr->dtypes);
    }
    skip_space(reader);
    at = reader->at;
    r = read_word(reader, word);
    if (r < 0)
        return r;
    for (enum attr_kind kind = ATTR_INT; kind <= ATTR_INTS; kind++)
        if (strcmp(attr_kind_name(kind), word) == 0)
            attr->kind = kind;
    if (attr->kind == ATTR_NONE)
        return fault(reader, at, "unknown kind of attribute", word);
    if (attr->kind == ATTR_DTYPE)
        attr->dtypes = ((1u << N_DTYPES) - 1) & ~(1u << DTYPE_NONE);
    return 0;
}

static int read_int(struct signature_reader *reader, int64_t *ret) {
    char *end;

    skip_space(reader);
    errno = 0;
    *ret = strtoll(reader->text + reader->at, &end, 10);
    if (end == reader->text + reader->at || errno || is_word(*end) || *end == '.')
        return fault(reader, reader->at, "a whole number is missing", NULL);
    reader->at = (size_t)(end - reader->text);
    return 0;
}

/* Digits with a point, up to 15 of them: exact, and without strtod(), which follows the locale of
 * the program. */
static int read_float(struct signature_reader *reader, double *ret) {
    double value = 0, scale = 1;
    size_t at, n_digits = 0;
    bool minus, point = false;

    minus = accept(reader, "-");
    skip_space(reader);
    for (at = reader->at; isdigit((unsigned char)reader->text[at]) ||
                          (reader->text[at] == '.' && n_digits && !point);
         at++) {
        if (reader->text[at] == '.') {
            point = true;
            continue;
        }
        value = value * 10 + (reader->text[at] - '0');
        scale *= point ? 10 : 1;
        n_digits++;
    }
    if (n_digits == 0 || n_digits > 15 || is_word(reader->text[at]))
        return fault(reader, reader->at, "a number of up to 15 digits is missing", NULL);
    reader->at = at;
    *ret = (minus ? -value : value) / scale;
    return 0;
}

/* [1, -1, ?] with -1 for ?, which only shapes have. */
static int read_list(struct signature_reader *reader, bool is_shape, int64_t *values,
                     size_t *ret_n) {
    size_t n = 0;
    int r = expect(reader, "[");

    if (r < 0)
        return r;
    if (!accept(reader, "]")) {
        do {
            if (n == INTS_MAX)
                return fault(reader, reader->at, "more than 64 numbers", NULL);
            if (is_shape && accept(reader, "?"))
                values[n] = SHAPE_UNKNOWN;
            else
                r = read_int(reader, &values[n]);
            if (r < 0)
                return r;
            n++;
        } while (accept(reader, ","));
        r = expect(reader, "]");
        if (r < 0)
            return r;
    }
    *ret_n = n;
    return 0;
}

static int read_string(struct signature_reader *reader, char **ret) {
    const char *start, *end;
    int r = expect(reader, "\"");

    if (r < 0)
        return r;
    start = reader->text + reader->at;
    end = strchr(start, '"');
    if (!end)
        return fault(reader, reader->at, "the text does not end", NULL);
    *ret = strndup(start, (size_t)(end - start));
    if (!*ret)
        return error_set(reader->err, -ENOMEM, "no host memory for op %s", reader->op);
    reader->at += (size_t)(end - start) + 1;
    return 0;
}

static int read_shape(struct signature_reader *reader, struct shape *ret) {
    int64_t values[INTS_MAX];
    size_t n, at = reader->at;
    int r;

    if (accept(reader, "?")) {
        *ret = shape_unknown();
        return 0;
    }
    r = read_list(reader, true, values, &n);
    if (r == 0 && (n > SHAPE_RANK_MAX || shape_make(ret, (int)n, values) < 0))
        return fault(reader, at, "a shape has up to 8 dimensions of 0 or more, or ?", NULL);
    return r;
}

static int read_default(struct signature_reader *reader, struct opdef_attr *attr) {
    struct attr value = { .kind = attr->kind };
    char word[OPDEF_NAME_SIZE];
    int64_t values[INTS_MAX];
    struct attr borrowed;
    size_t at, n;
    int r;

    skip_space(reader);
    at = reader->at;
    switch (attr->kind) {
    case ATTR_INT:
        r = read_int(reader, &value.i);
        break;
    case ATTR_FLOAT:
        r = read_float(reader, &value.f);
        break;
    case ATTR_BOOL:
        value.b = accept(reader, "true");
        r = value.b || accept(reader, "false")
                ? 0
                : fault(reader, at, "true or false is missing", NULL);
        break;
    case ATTR_DTYPE:
        r = read_word(reader, word);
        if (r == 0) {
            value.dtype = dtype_by_name(word);
            if (value.dtype == DTYPE_NONE || !(attr->dtypes & 1u << value.dtype))
                r = fault(reader, at, "the default is not one of the types:", word);
        }
        break;
    case ATTR_SHAPE:
        r = read_shape(reader, &value.shape);
        break;
    case ATTR_STRING:
        r = read_string(reader, &value.string);
        break;
    case ATTR_INTS:
        r = read_list(reader, false, values, &n);
        borrowed = attr_ints(values, r == 0 ? n : 0);
        if (r == 0 && attr_copy(&value, &borrowed) < 0)
            r = error_set(reader->err, -ENOMEM, "no host memory for op %s", reader->op);
        break;
    case ATTR_NONE:
    case ATTR_TENSOR:
    default:
        r = fault(reader, at, "a tensor has no default", NULL);
        break;
    }
    if (r < 0)
        return r;
    attr->has_default = true;
    attr->value = value;
    return 0;
}

static int read_attrs(struct signature_reader *reader, struct opdef *op) {
    int r;

    while (accept(reader, ";")) {
        struct opdef_attr attr = { 0 };
        size_t at;

        skip_space(reader);
        at = reader->at;
        if (op->n_attrs == OPDEF_ATTRS_MAX)
            return fault(reader, at, "more than 16 attributes", NULL);
        r = read_word(reader, attr.name);
        if (r < 0)
            return r;
        if (opdef_attr_index(op, attr.name) >= 0)
            return fault(reader, at, "a second attribute is called", attr.name);
        r = expect(reader, ":");
        if (r == 0)
            r = read_kind(reader, &attr);
        if (r == 0 && accept(reader, "="))
            r = read_default(reader, &attr);
        if (r < 0)
            return r;
        op->attrs[op->n_attrs++] = attr;
    }
    return 0;
}

int signature_parse(struct opdef *ret, const char *name, const char *signature,
                    struct allot_error *err) {
    struct signature_reader reader = { .op = name, .text = signature, .err = err };
    struct opdef op = { 0 };
    int r;

    if (!name[0] || strlen(name) >= OPDEF_NAME_SIZE || !isalpha((unsigned char)name[0]))
        return error_set(err, -EINVAL,
                         "'%.64s' cannot be the name of an op: 1 to 47 letters, digits, '_' and "
                         "'.', a letter first",
                         name);
    for (const char *c = name; *c; c++)
        if (!is_word(*c) && *c != '.')
            return error_set(err, -EINVAL,
                             "'%.64s' cannot be the name of an op: 1 to 47 letters, digits, '_' "
                             "and '.', a letter first",
                             name);
    strcpy(op.name, name);
    r = read_args(&reader, op.inputs, reader.inputs, &op.n_inputs);
    if (r == 0)
        r = expect(&reader, "->");
    if (r == 0)
        r = read_args(&reader, op.outputs, reader.outputs, &op.n_outputs);
    if (r == 0)
        r = read_attrs(&reader, &op);
    if (r == 0) {
        skip_space(&reader);
        if (reader.text[reader.at])
            r = fault(&reader, reader.at, "this should be the end, or a ';'", NULL);
    }
    if (r == 0)
        r = resolve(&reader, &op, op.inputs, reader.inputs, op.n_inputs);
    if (r == 0)
        r = resolve(&reader, &op, op.outputs, reader.outputs, op.n_outputs);
    if (r < 0) {
        for (size_t i = 0; i < op.n_attrs; i++)
            attr_done(&op.attrs[i].value);
        return r;
    }
    *ret = op;
    return 0;
}
