/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/core/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/json.h"
#include "base/map.h"

static const char *const words[N_DTYPES] = {
#define X(name, number, bytes, kind, word) [DTYPE_##name] = word,
    DTYPES(X)
#undef X
};

void safetensors_done(struct safetensors *file) {
    for (size_t i = 0; i < file->n; i++)
        free(file->entries[i].name);
    free(file->entries);
    *file = (struct safetensors){ 0 };
}

int safetensors_head_bytes(const uint8_t first[static 8], uint64_t file_bytes, uint64_t *ret,
                           struct allot_error *err) {
    uint64_t bytes = 0;

    for (int i = 0; i < 8; i++)
        bytes |= (uint64_t)first[i] << 8 * i;
    if (bytes > SAFETENSORS_HEAD_MAX || file_bytes < 8 || bytes > file_bytes - 8)
        return error_set(
            err, -EBADMSG,
            "its header of %llu bytes is longer than the file of %llu, or than 100 MiB",
            (unsigned long long)bytes, (unsigned long long)file_bytes);
    *ret = bytes;
    return 0;
}

static enum dtype dtype_of(const char *word) {
    for (int dtype = DTYPE_NONE + 1; dtype < N_DTYPES; dtype++)
        if (words[dtype] && strcmp(words[dtype], word) == 0)
            return (enum dtype)dtype;
    return DTYPE_NONE;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static int wrong(const struct json_reader *reader, const char *what, struct allot_error *err) {
    return error_set(err, -EBADMSG, "its header at byte %zu: %s",
                     (size_t)(reader->at - reader->start), what);
}

static int fault(const struct json_reader *reader, int r, const char *wanted,
                 struct allot_error *err) {
    return wrong(reader, r == -EBADMSG && reader->why ? reader->why : wanted, err);
}

/* Reads an array of non-negative integers; keeps at most `max`, and stores in `*ret_n` how many
 * there were. */
static int read_numbers(struct json_reader *reader, int64_t *ret, int max, int *ret_n,
                        const char *wanted, struct allot_error *err) {
    int n = 0, r = json_enter(reader, JSON_ARRAY);

    if (r < 0)
        return fault(reader, r, wanted, err);
    while ((r = json_next_element(reader)) > 0) {
        const char *text = reader->at;
        int64_t value;

        r = json_read_int(reader, &value);
        if (r < 0 || value < 0)
            return fault(reader, r, wanted, err);
        for (; text < reader->at; text++)
            if (*text == '.' || *text == 'e' || *text == 'E' || *text == '-')
                return wrong(reader, wanted, err);
        if (n < max)
            ret[n] = value;
        n++;
    }
    if (r < 0)
        return fault(reader, r, wanted, err);
    *ret_n = n;
    return 0;
}

enum { HAS_TYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

static int read_member(struct json_reader *reader, const char *name,
                       struct safetensors_entry *entry, unsigned *has, struct allot_error *err) {
    int64_t numbers[SHAPE_RANK_MAX];
    unsigned what = strcmp(name, "dtype") == 0          ? HAS_TYPE
                    : strcmp(name, "shape") == 0        ? HAS_SHAPE
                    : strcmp(name, "data_offsets") == 0 ? HAS_OFFSETS
                                                        : 0;
    char *word;
    int n = 0, r;

    if (!what || (*has & what))
        return wrong(reader, "a tensor must have dtype, shape and data_offsets, once each", err);
    *has |= what;
    if (what == HAS_TYPE) {
        r = json_read_string(reader, &word, NULL);
        if (r < 0 || !*word)
            return fault(reader, r, "dtype must be a string that names a type", err);
        entry->dtype = dtype_of(word);
        if (!entry->dtype)
            snprintf(entry->foreign, sizeof(entry->foreign), "%s", word);
        return 0;
    }
    if (what == HAS_SHAPE) {
        r = read_numbers(reader, numbers, SHAPE_RANK_MAX, &n,
                         "the lengths of a shape must be whole numbers, none negative", err);
        if (r == 0 && n > SHAPE_RANK_MAX)
            snprintf(entry->foreign, sizeof(entry->foreign), "of rank %d", n);
        else if (r == 0 && shape_make(&entry->shape, n, numbers) < 0)
            r = wrong(reader, "no shape", err);
        return r;
    }
    r = read_numbers(reader, numbers, 2, &n, "data_offsets must be two numbers", err);
    if (r < 0)
        return r;
    if (n != 2 || numbers[1] < numbers[0])
        return wrong(
            reader, "data_offsets must be two numbers, the second not smaller than the first", err);
    entry->begin = (uint64_t)numbers[0];
    entry->bytes = (uint64_t)(numbers[1] - numbers[0]);
    return 0;
}

static int read_entry(struct json_reader *reader, struct safetensors_entry *entry,
                      struct allot_error *err) {
    unsigned has = 0;
    int64_t count;
    char *name;
    int r = json_enter(reader, JSON_OBJECT);

    if (r < 0)
        return fault(reader, r, "a tensor must be an object", err);
    while ((r = json_next_member(reader, &name, NULL)) > 0) {
        r = read_member(reader, name, entry, &has, err);
        if (r < 0)
            return r;
    }
    if (r < 0)
        return fault(reader, r, "a tensor must be an object", err);
    if (has != HAS_ALL)
        return wrong(reader, "a tensor must have dtype, shape and data_offsets, once each", err);
    if (entry->foreign[0]) {
        entry->dtype = DTYPE_NONE;
        entry->shape = (struct shape){ 0 };
        return 0;
    }
    count = shape_count(&entry->shape);
    if (count < 0 || (uint64_t)count > UINT64_MAX / dtype_bytes(entry->dtype) ||
        (uint64_t)count * dtype_bytes(entry->dtype) != entry->bytes)
        return error_set(err, -EBADMSG,
                         "tensor '%.64s': %llu bytes do not match its type and shape", entry->name,
                         (unsigned long long)entry->bytes);
    return 0;
}

/* Texts by name, which are not used here. */
static int read_metadata(struct json_reader *reader, struct allot_error *err) {
    char *name, *value;
    int r = json_enter(reader, JSON_OBJECT);

    while (r >= 0 && (r = json_next_member(reader, &name, NULL)) > 0)
        r = json_read_string(reader, &value, NULL);
    return r < 0 ? fault(reader, r, "__metadata__ must be an object of strings", err) : 0;
}

static int add_entry(struct safetensors *file, size_t *size, struct map *names, const char *name,
                     struct allot_error *err) {
    struct safetensors_entry *entry;
    int r;

    if (file->n == *size) {
        size_t grown_size = *size ? *size * 2 : 16;
        struct safetensors_entry *grown = realloc(file->entries, grown_size * sizeof(*grown));

        if (!grown)
            return error_set(err, -ENOMEM, "no host memory for its header");
        file->entries = grown;
        *size = grown_size;
    }
    entry = &file->entries[file->n];
    *entry = (struct safetensors_entry){ .name = strdup(name) };
    if (!entry->name)
        return error_set(err, -ENOMEM, "no host memory for its header");
    file->n++;
    r = map_put_text(names, entry->name, entry->name);
    return r == -EEXIST ? error_set(err, -EBADMSG, "tensor '%.64s' appears twice", name)
           : r < 0      ? error_set(err, r, "no host memory for its header")
                        : 0;
}

static int read_entries(struct safetensors *file, struct json_reader *reader, struct map *names,
                        struct allot_error *err) {
    bool has_metadata = false;
    size_t size = 0;
    char *name;
    int r = json_enter(reader, JSON_OBJECT);

    if (r < 0)
        return fault(reader, r, "the header must be an object", err);
    while ((r = json_next_member(reader, &name, NULL)) > 0) {
        if (strcmp(name, "__metadata__") == 0) {
            r = has_metadata ? wrong(reader, "__metadata__ appears twice", err)
                             : read_metadata(reader, err);
            has_metadata = true;
        } else {
            r = add_entry(file, &size, names, name, err);
            if (r == 0)
                r = read_entry(reader, &file->entries[file->n - 1], err);
        }
        if (r < 0)
            return r;
    }
    if (r < 0)
        return fault(reader, r, "the header must be an object", err);
    r = json_finish(reader);
    return r < 0 ? fault(reader, r, "something follows the header's object", err) : 0;
}

static int by_begin(const void *a, const void *b) {
    const struct safetensors_entry *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

static int check_cover(const struct safetensors *file, uint64_t data_bytes,
                       struct allot_error *err) {
    uint64_t end = 0;

    for (size_t i = 0; i < file->n; i++) {
        const struct safetensors_entry *entry = &file->entries[i];

        if (entry->begin != end)
            return error_set(err, -EBADMSG, "tensor '%.64s' %s", entry->name,
                             entry->begin < end ? "overlaps another one"
                                                : "has bytes before it that belong to no tensor");
        /* Both are below 2^63. */
        end = entry->begin + entry->bytes;
        if (end > data_bytes)
            return error_set(err, -EBADMSG, "tensor '%.64s' ends beyond the end of the file",
                             entry->name);
    }
    if (end != data_bytes)
        return error_set(err, -EBADMSG, "%llu bytes at its end belong to no tensor",
                         (unsigned long long)(data_bytes - end));
    return 0;
}

int safetensors_parse(struct safetensors *ret, char *head, size_t head_bytes, uint64_t data_bytes,
                      struct allot_error *err) {
    struct safetensors file = { 0 };
    struct json_reader reader;
    struct map names = { 0 };
    int r;

    json_reader_init(&reader, head, head_bytes);
    r = read_entries(&file, &reader, &names, err);
    map_done(&names);
    if (r == 0) {
        if (file.n > 0)
            qsort(file.entries, file.n, sizeof(*file.entries), by_begin);
        r = check_cover(&file, data_bytes, err);
    }
    if (r < 0) {
        safetensors_done(&file);
        return r;
    }
    *ret = file;
    return 0;
}

const struct safetensors_entry *safetensors_find(const struct safetensors *file, const char *name) {
    for (size_t i = 0; i < file->n; i++)
        if (strcmp(file->entries[i].name, name) == 0)
            return &file->entries[i];
    return NULL;
}

/* ---- Writing --------------------------------------------------------------------------------- */

int safetensors_format(struct safetensors_entry *entries, size_t n, char **ret, size_t *ret_bytes,
                       struct allot_error *err) {
    struct json_writer writer = { 0 };
    uint64_t at = 0, length;

    json_put_raw(&writer, "\0\0\0\0\0\0\0", 8);
    json_begin(&writer, '{');
    for (size_t i = 0; i < n; i++) {
        struct safetensors_entry *entry = &entries[i];

        entry->begin = at;
        at += entry->bytes;
        json_name(&writer, entry->name);
        json_begin(&writer, '{');
        json_name(&writer, "dtype");
        json_put_string(&writer, words[entry->dtype]);
        json_name(&writer, "shape");
        json_begin(&writer, '[');
        for (int d = 0; d < entry->shape.rank; d++)
            json_put_int(&writer, entry->shape.dims[d]);
        json_end(&writer, ']');
        json_name(&writer, "data_offsets");
        json_begin(&writer, '[');
        json_put_uint(&writer, entry->begin);
        json_put_uint(&writer, at);
        json_end(&writer, ']');
        json_end(&writer, '}');
    }
    json_end(&writer, '}');
    while (!writer.failed && writer.len % 8)
        json_put_raw(&writer, " ", 1);
    if (writer.failed) {
        json_writer_done(&writer);
        return error_set(err, -ENOMEM, "no host memory for its header");
    }
    length = writer.len - 8;
    for (int i = 0; i < 8; i++)
        writer.data[i] = (char)(length >> 8 * i);
    *ret = writer.data;
    *ret_bytes = writer.len;
    return 0;
}
