/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opdef: the registry. Ops never move once they are registered, so that nodes can point to them for
 * ever and a lookup holds the lock only briefly.
 */
#include "libclient/graph/opdef.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/map.h"
#include "base/suggest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct map registry;  /* name → struct opdef; under `lock` */
static struct opdef **order; /* by registering */
static size_t n_order, order_size;

static int append(struct opdef *op) {
    if (n_order == order_size) {
        size_t size = order_size ? order_size * 2 : 256;
        struct opdef **grown = realloc(order, size * sizeof(grown[0]));

        if (!grown)
            return -ENOMEM;
        order = grown;
        order_size = size;
    }
    order[n_order++] = op;
    return 0;
}

int opdef_register(const struct opdef_row *row, struct allot_error *err) {
    cleanup(freep) struct opdef *op = NULL;
    int r;

    if (opdef_find(row->name))
        return error_set(err, -EEXIST, "there is an op %s already", row->name);
    op = malloc(sizeof(*op));
    if (!op)
        return error_set(err, -ENOMEM, "no host memory for op %s", row->name);
    r = signature_parse(op, row->name, row->signature, err);
    if (r < 0)
        return r;
    op->shape = row->shape;
    op->gradient = row->gradient;
    op->flags = row->flags;
    op->shaped_by = row->shaped_by;
    op->is_flat = row->is_flat;

    pthread_mutex_lock(&lock);
    r = map_put_text(&registry, op->name, op);
    if (r == 0 && append(op) < 0) {
        map_take_text(&registry, op->name);
        r = -ENOMEM;
    }
    pthread_mutex_unlock(&lock);
    if (r == 0) {
        TAKE(op);
        return 0;
    }
    for (size_t i = 0; i < op->n_attrs; i++)
        attr_done(&op->attrs[i].value);
    return error_set(
        err, r, r == -EEXIST ? "there is an op %s already" : "no host memory for op %s", row->name);
}

int opdef_register_table(const struct opdef_row *rows, size_t n, struct allot_error *err) {
    for (size_t i = 0; i < n; i++) {
        int r = opdef_register(&rows[i], err);

        if (r < 0 && r != -EEXIST)
            return r;
    }
    return 0;
}

const struct opdef *opdef_find(const char *name) {
    const struct opdef *op;

    pthread_mutex_lock(&lock);
    op = map_find_text(&registry, name);
    pthread_mutex_unlock(&lock);
    return op;
}

int opdef_missing(const char *name, struct allot_error *err) {
    struct suggest suggest = suggest_begin(name);
    const struct opdef *op;

    for (size_t i = 0; (op = opdef_at(i)); i++)
        suggest_try(&suggest, op->name);
    if (suggest.word)
        return error_set(err, -ENOENT, "there is no op '%.64s': did you mean '%s'?", name,
                         suggest.word);
    return error_set(err, -ENOENT, "there is no op '%.64s': allot_ops() lists them", name);
}

const struct opdef *opdef_at(size_t i) {
    const struct opdef *op;

    pthread_mutex_lock(&lock);
    op = i < n_order ? order[i] : NULL;
    pthread_mutex_unlock(&lock);
    return op;
}

int opdef_attr_index(const struct opdef *op, const char *name) {
    for (size_t i = 0; i < op->n_attrs; i++)
        if (strcmp(op->attrs[i].name, name) == 0)
            return (int)i;
    return -1;
}

const char *opdef_dtypes_format(uint32_t dtypes, char text[static OPDEF_DTYPES_SIZE]) {
    size_t n = 0;

    for (int i = DTYPE_NONE + 1; i < N_DTYPES && n < OPDEF_DTYPES_SIZE; i++)
        if (dtypes & 1u << i)
            n += (size_t)snprintf(text + n, OPDEF_DTYPES_SIZE - n, "%s%s", n ? ", " : "{",
                                  dtype_name((enum dtype)i));
    snprintf(text + n, OPDEF_DTYPES_SIZE - n, n ? "}" : "{}");
    return text;
}
