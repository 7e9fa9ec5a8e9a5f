/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * JSON: a writer that appends to a growing text, and a reader that walks a text without building a
 * tree.
 *
 * Both are embedded in their owner; no locking. The reader works in the caller's text and changes
 * it: it unescapes strings in place and ends them with NUL, so they live as long as the text. It is
 * strict (RFC 8259): UTF-8 is checked, control characters and U+0000 in strings are refused, and so
 * is anything after the value. It never reads beyond `end` and its cost is one pass.
 *
 * Why not json-c: it builds a tree of allocations for each message, silently keeps the last of two
 * members with the same name, and clamps large numbers. Besides, a library that is preloaded into
 * any program must not export json-c's symbols.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Writing -------------------------------------------------------------------------------- */

/*
 * The writer adds the commas. A failed allocation sets `failed` and makes every later call do
 * nothing, so checking once at the end is enough. Zeroed memory is an empty writer.
 */
struct json_writer {
    char *data; /* owned; not NUL-terminated; NULL before the first byte */
    size_t len;
    size_t size;
    bool comma; /* the next value or name needs a comma before it */
    bool failed;
};

void json_writer_done(struct json_writer *w); /* frees the memory and leaves the writer empty */

void json_begin(struct json_writer *w, char bracket); /* '{' or '[' */
void json_end(struct json_writer *w, char bracket);   /* '}' or ']' */
void json_name(struct json_writer *w, const char *name);

void json_put_string(struct json_writer *w, const char *text); /* NULL: null */
void json_put_string_n(struct json_writer *w, const char *text, size_t n);
void json_put_int(struct json_writer *w, int64_t value);
void json_put_uint(struct json_writer *w, uint64_t value); /* above INT64_MAX: INT64_MAX */
void json_put_bool(struct json_writer *w, bool value);
void json_put_null(struct json_writer *w);

/* Append bytes unchanged, without a comma: a member that was written before, a NUL, a newline. */
void json_put_raw(struct json_writer *w, const char *bytes, size_t n);

/* ---- Reading -------------------------------------------------------------------------------- */

#define JSON_DEPTH_MAX 16

enum json_kind {
    JSON_NOTHING, /* the end of the text, or something that does not begin a value */
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
};

struct json_reader {
    char *start;
    char *at;
    char *end;       /* one past the last byte; need not be NUL */
    const char *why; /* after -EBADMSG: what is wrong at `at`, a static text */
    unsigned depth;
    bool fresh; /* nothing was read yet from the object or array that was entered */
};

void json_reader_init(struct json_reader *r, char *text, size_t n);

/* The kind of the next value. */
enum json_kind json_peek(struct json_reader *r);

/*
 * Each takes the next value. -EBADMSG with `why`: the text is not JSON there, or it nests deeper
 * than JSON_DEPTH_MAX; -EPROTOTYPE: the value is of another kind and was not taken. -ERANGE of a
 * number: it is no integer, or does not fit into 64 bits; it was taken. `1.0` and `1e3` are
 * integers.
 */
int json_read_null(struct json_reader *r);
int json_read_bool(struct json_reader *r, bool *ret);
int json_read_int(struct json_reader *r, int64_t *ret);
int json_read_string(struct json_reader *r, char **ret, size_t *ret_n); /* ret_n may be NULL */

/*
 *     r = json_enter(reader, JSON_OBJECT);
 *     while (r >= 0 && (r = json_next_member(reader, &name, &n)) > 0)
 *         r = …take one value…;
 *
 * 1: a name was taken, or in an array: an element follows; 0: the object or array has ended.
 */
int json_enter(struct json_reader *r, enum json_kind kind);
int json_next_member(struct json_reader *r, char **ret_name, size_t *ret_n);
int json_next_element(struct json_reader *r);

/*
 * Skip any value, checking it but changing nothing, so that it can be read later from `*ret_text`
 * (may be NULL).
 */
int json_skip(struct json_reader *r, char **ret_text, size_t *ret_n);

/* 0 if only blanks are left, otherwise -EBADMSG. */
int json_finish(struct json_reader *r);
