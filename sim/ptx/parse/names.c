/* SPDX-License-Identifier: Apache-2.0 */
/* The parser's containers: an arena, growing arrays, and names in nested scopes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/ptx/ir.h"

struct ptx_ir_arena_block {
    struct ptx_ir_arena_block *next;
    _Alignas(16) char bytes[];
};

void *ptx_ir_arena_get(struct ptx_ir_arena *arena, size_t bytes) {
    void *p;

    bytes = (bytes + 16) & ~(size_t)15; /* never nothing: a NULL would mean no memory */
    if (bytes > arena->left) {
        size_t room = MAX(bytes, (size_t)64 << 10);
        struct ptx_ir_arena_block *block = calloc(1, sizeof(*block) + room);

        if (!block)
            return NULL;
        block->next = arena->blocks;
        arena->blocks = block;
        arena->at = block->bytes;
        arena->left = room;
    }
    p = arena->at;
    arena->at += bytes;
    arena->left -= bytes;
    return p;
}

void ptx_ir_arena_done(struct ptx_ir_arena *arena) {
    while (arena->blocks) {
        struct ptx_ir_arena_block *block = arena->blocks;

        arena->blocks = block->next;
        free(block);
    }
    *arena = (struct ptx_ir_arena){ 0 };
}

int ptx_ir_grow(void *array, uint32_t *cap, uint32_t n, size_t element_bytes) {
    void **p = array;
    uint32_t more;
    void *grown;

    if (n < *cap)
        return 0;
    if (n >= UINT32_C(1) << 26)
        return -E2BIG;
    more = MAX(n + n / 2, 16U);
    grown = realloc(*p, more * element_bytes);
    if (!grown)
        return -ENOMEM;
    memset((char *)grown + *cap * element_bytes, 0, (more - *cap) * element_bytes);
    *p = grown;
    *cap = more;
    return 0;
}

uint32_t ptx_ir_hash(const char *text, size_t n) {
    uint32_t h = 2166136261U;

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)text[i]) * 16777619U;
    return h ^ h >> 15;
}

struct ptx_name *ptx_names_find(const struct ptx_names *names, const char *text, size_t n) {
    uint32_t hash = ptx_ir_hash(text, n);

    if (!names->n_buckets)
        return NULL;
    for (struct ptx_name *name = names->buckets[hash & (names->n_buckets - 1)]; name;
         name = name->next)
        if (name->hash == hash && name->bytes == n && !memcmp(name->text, text, n))
            return name;
    return NULL;
}

static int rehash(struct ptx_names *names) {
    size_t n = names->n_buckets ? names->n_buckets * 4 : 64;
    struct ptx_name **buckets = calloc(n, sizeof(*buckets));

    if (!buckets)
        return -ENOMEM;
    for (size_t i = 0; i < names->n_buckets; i++) {
        struct ptx_name *name = names->buckets[i], *reversed = NULL;

        while (name) { /* turned round twice, so that inner names stay before outer ones */
            struct ptx_name *next = name->next;

            name->next = reversed;
            reversed = name;
            name = next;
        }
        while (reversed) {
            struct ptx_name *next = reversed->next;
            struct ptx_name **bucket = &buckets[reversed->hash & (n - 1)];

            reversed->next = *bucket;
            *bucket = reversed;
            reversed = next;
        }
    }
    free(names->buckets);
    names->buckets = buckets;
    names->n_buckets = n;
    return 0;
}

struct ptx_name *ptx_names_add(struct ptx_names *names, struct ptx_ir_arena *arena,
                               const char *text, size_t n) {
    struct ptx_name *name, **bucket;

    if (names->n >= names->n_buckets && rehash(names) < 0)
        return NULL;
    name = ptx_ir_arena_get(arena, sizeof(*name));
    if (!name)
        return NULL;
    *name = (struct ptx_name){ .text = text, .bytes = (uint32_t)n, .hash = ptx_ir_hash(text, n) };
    bucket = &names->buckets[name->hash & (names->n_buckets - 1)];
    name->next = *bucket;
    *bucket = name;
    name->prev = names->latest;
    names->latest = name;
    names->n++;
    return name;
}

void ptx_names_drop(struct ptx_names *names, int depth) {
    while (names->latest && names->latest->depth > depth) {
        struct ptx_name *name = names->latest;

        names->buckets[name->hash & (names->n_buckets - 1)] = name->next; /* it is the first */
        names->latest = name->prev;
        names->n--;
    }
}

void ptx_names_done(struct ptx_names *names) {
    free(names->buckets);
    *names = (struct ptx_names){ 0 };
}

static const struct {
    const char *name;
    uint8_t bytes;
    char class;
} types[] = { { "none", 0, 0 },
#define X(name, bytes, class) { #name, bytes, class },
              PTX_TYPES(X)
#undef X
};

uint32_t ptx_ir_type_bytes(enum ptx_type type) {
    return types[type].bytes;
}

char ptx_ir_type_class(enum ptx_type type) {
    return types[type].class;
}

const char *ptx_ir_type_name(enum ptx_type type) {
    return types[type].name;
}

enum ptx_type ptx_ir_type_find(const char *text, size_t n) {
    for (size_t i = 1; i < ELEMENTSOF(types); i++)
        if (!strncmp(types[i].name, text, n) && !types[i].name[n])
            return (enum ptx_type)i;
    return PTX_TYPE_NONE;
}

static const char *const builtins[] = {
    [PTX_VPRINTF] = "vprintf",
    [PTX_MALLOC] = "malloc",
    [PTX_FREE] = "free",
    [PTX_ASSERTFAIL] = "__assertfail",
};

enum ptx_builtin ptx_ir_builtin_find(const char *name) {
    for (size_t i = 1; i < ELEMENTSOF(builtins); i++)
        if (!strcmp(builtins[i], name))
            return (enum ptx_builtin)i;
    return PTX_NOT_BUILTIN;
}
