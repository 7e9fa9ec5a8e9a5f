/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registry: the one table op × device × types. The rows of an op form a chain that a map finds by
 * the op's name; a plan looks for a row once per node, so the lock around it costs next to nothing.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/map.h"
#include "libclient/graph/graph.h"
#include "libclient/kernels/family.h"
#include "libclient/kernels/kernel.h"

struct kernel_row {
    const struct kernel *kernel;
    struct kernel_row *next;
};

struct op_rows {
    struct kernel_row *first, **last;
    char name[];
};

static struct {
    pthread_rwlock_t lock;
    struct map ops;
} registry = { .lock = PTHREAD_RWLOCK_INITIALIZER };

static const char *by_attr(const struct kernel *kernel) {
    return kernel->by ? kernel->by : "T";
}

static bool overlap(const struct kernel *a, const struct kernel *b) {
    return a->device == b->device && (!a->dtypes || !b->dtypes || (a->dtypes & b->dtypes));
}

static int rows_of(struct op_rows **ret, const char *op) {
    struct op_rows *rows = map_find_text(&registry.ops, op);

    if (!rows) {
        rows = calloc(1, sizeof(*rows) + strlen(op) + 1);
        if (!rows)
            return -ENOMEM;
        strcpy(rows->name, op);
        rows->last = &rows->first;
        if (map_put_text(&registry.ops, rows->name, rows) < 0) {
            free(rows);
            return -ENOMEM;
        }
    }
    *ret = rows;
    return 0;
}

static int register_locked(const struct kernel *kernel, struct allot_error *err) {
    struct op_rows *rows;
    struct kernel_row *row;

    if (rows_of(&rows, kernel->op) < 0)
        return error_set(err, -ENOMEM, "no host memory for the kernel of %s", kernel->op);
    for (row = rows->first; row; row = row->next)
        if (row->kernel == kernel)
            return 0; /* registered already, by an attempt that ran out of memory later */
        else if (overlap(row->kernel, kernel))
            return error_set(err, -EEXIST, "%s has a kernel for these types on the %s already",
                             kernel->op, kernel_device_name(kernel->device));
    row = calloc(1, sizeof(*row));
    if (!row)
        return error_set(err, -ENOMEM, "no host memory for the kernel of %s", kernel->op);
    row->kernel = kernel;
    *rows->last = row;
    rows->last = &row->next;
    return 0;
}

int kernel_register(const struct kernel *kernel, struct allot_error *err) {
    int r;

    if (!kernel->op || !kernel->op[0] || !kernel->prepare || kernel->device >= N_KERNEL_DEVICES)
        return error_set(err, -EINVAL,
                         "a kernel needs the name of an op, a device and a way to be prepared");
    pthread_rwlock_wrlock(&registry.lock);
    r = register_locked(kernel, err);
    pthread_rwlock_unlock(&registry.lock);
    return r;
}

/* The type that a row of this node's op goes by; DTYPE_NONE: it has no such attribute. */
static enum dtype node_type(const struct node *node, const char *attr) {
    for (size_t i = 0; i < node->op->n_attrs; i++)
        if (node->op->attrs[i].kind == ATTR_DTYPE && strcmp(node->op->attrs[i].name, attr) == 0)
            return node->attrs[i].dtype;
    return DTYPE_NONE;
}

/* `node` NULL: a row that goes by "T", for `dtype`. */
static const struct kernel *find(const char *op, const struct node *node, enum dtype dtype,
                                 enum kernel_device device) {
    const struct kernel *found = NULL;
    const struct op_rows *rows;

    pthread_rwlock_rdlock(&registry.lock);
    rows = map_find_text(&registry.ops, op);
    for (const struct kernel_row *row = rows ? rows->first : NULL; row && !found; row = row->next) {
        const struct kernel *kernel = row->kernel;
        const enum dtype own = node && kernel->dtypes ? node_type(node, by_attr(kernel)) : dtype;

        if (kernel->device == device && (!kernel->dtypes || (kernel->dtypes >> own & 1)))
            found = kernel;
    }
    pthread_rwlock_unlock(&registry.lock);
    return found;
}

const struct kernel *kernel_find(const struct node *node, enum kernel_device device) {
    return find(node->op->name, node, DTYPE_NONE, device);
}

const struct kernel *kernel_find_op(const char *op, enum dtype dtype, enum kernel_device device) {
    return find(op, NULL, dtype, device);
}

const char *kernel_device_name(enum kernel_device device) {
    return device == KERNEL_CPU ? "CPU" : "GPU";
}

/* ---- Failures -------------------------------------------------------------------------------- */

static _Thread_local struct allot_error failure;

int kernel_fail(int code, const char *format, ...) {
    va_list args;

    failure.code = code;
    va_start(args, format);
    vsnprintf(failure.text, sizeof(failure.text), format, args);
    va_end(args);
    return code;
}

const struct allot_error *kernel_failure(void) {
    return &failure;
}

/* ---- What liballot brings -------------------------------------------------------------------- */

static const struct kernel_family *const families[] = {
#define X(name) &kernel_family_##name,
    KERNEL_FAMILIES(X)
#undef X
};

/* How far registration has got: if memory ran out, the next attempt goes on from there. */
static struct {
    pthread_mutex_t lock;
    size_t n_families, n_rows;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

int kernel_register_all(struct allot_error *err) {
    int r = 0;

    pthread_mutex_lock(&all.lock);
    while (r == 0 && all.n_families < ELEMENTSOF(families)) {
        const struct kernel_family *family = families[all.n_families];
        const size_t n = family->fill ? family->fill() : family->n;

        for (; r == 0 && all.n_rows < n; all.n_rows += r == 0)
            r = kernel_register(&family->rows[all.n_rows], err);
        if (r == 0) {
            all.n_families++;
            all.n_rows = 0;
        }
    }
    pthread_mutex_unlock(&all.lock);
    return r;
}
