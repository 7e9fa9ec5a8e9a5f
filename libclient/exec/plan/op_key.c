/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/plan/op_key.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/exec/plan/compile.h"
#include "libclient/exec/plan/op_work.h"

/* ---- Ops ------------------------------------------------------------------------------------- */

static void mix(uint64_t *hash, const void *bytes, size_t n) {
    const unsigned char *at = bytes;

    for (size_t i = 0; i < n; i++)
        *hash = (*hash ^ at[i]) * UINT64_C(0x100000001b3);
    *hash ^= *hash >> 29;
}

static void mix_number(uint64_t *hash, int64_t number) {
    mix(hash, &number, sizeof(number));
}

static void mix_shape(uint64_t *hash, const struct shape *shape) {
    mix_number(hash, shape->rank);
    for (int i = 0; i < shape->rank; i++)
        mix_number(hash, shape->dims[i]);
}

static void mix_port(uint64_t *hash, const struct port *port) {
    mix_number(hash, port->dtype);
    mix_shape(hash, &port->shape);
}

/* Numbers that only scale or begin something change no time. */
static void mix_attr(uint64_t *hash, const char *name, const struct attr *attr) {
    if (strcmp(name, "seed") == 0 || attr->kind == ATTR_FLOAT || attr->kind == ATTR_TENSOR)
        return;
    mix(hash, name, strlen(name));
    switch (attr->kind) {
    case ATTR_INT:
        mix_number(hash, attr->i);
        break;
    case ATTR_BOOL:
        mix_number(hash, attr->b);
        break;
    case ATTR_DTYPE:
        mix_number(hash, attr->dtype);
        break;
    case ATTR_SHAPE:
        mix_shape(hash, &attr->shape);
        break;
    case ATTR_STRING:
        mix(hash, attr->string ? attr->string : "", attr->string ? strlen(attr->string) : 0);
        break;
    case ATTR_INTS:
        mix(hash, attr->ints.values, attr->ints.n * sizeof(*attr->ints.values));
        break;
    default:
        break;
    }
}

static bool is_foreign(const struct node *node) {
    const struct kernel *cpu = kernel_find(node, KERNEL_CPU), *gpu = kernel_find(node, KERNEL_GPU);

    return (cpu && cpu->flags & KERNEL_FOREIGN) || (gpu && gpu->flags & KERNEL_FOREIGN);
}

uint64_t op_key_of(const struct compile *compile, uint32_t local) {
    const struct node *node = graph_node(compile->request->graph, compile->nodes[local]);
    const struct port *outputs = &compile->ports[compile->first_port[local]];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    if (op_work_of(compile, local).is_nothing || is_foreign(node))
        return 0;
    mix(&hash, node->op->name, strlen(node->op->name));
    mix_number(&hash, compile->request->deterministic);
    mix_number(&hash, node->n_inputs);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct port *port = compile_port(compile, node->inputs[i]);

        if (port->is_open)
            return 0;
        mix_port(&hash, port);
    }
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        if (outputs[i].is_open)
            return 0;
        mix_port(&hash, &outputs[i]);
    }
    for (size_t i = 0; i < node->op->n_attrs; i++)
        mix_attr(&hash, node->op->attrs[i].name, &node->attrs[i]);
    return hash ? hash : 1;
}

/* ---- Items ----------------------------------------------------------------------------------- */

static bool is_timed(const struct program_item *item) {
    return item->node && item->kernel && (item->kind == ITEM_KERNEL || item->kind == ITEM_WRITE);
}

int op_key_items(struct compile *compile) {
    struct program *program = compile->program;
    cleanup(freep) uint32_t *n_items = calloc((size_t)compile->n_nodes + 1, sizeof(*n_items));

    program->cost_keys = calloc((size_t)program->n_items + 1, sizeof(*program->cost_keys));
    if (!n_items || !program->cost_keys)
        return -ENOMEM;
    for (uint32_t i = 0; i < program->n_items; i++) {
        const struct program_item *item = &program->items[i];

        if (is_timed(item))
            n_items[compile->local[item->node->id]]++;
        if (item->joined) /* which does more than its own work */
            n_items[compile->local[item->joined->id]] += 2;
    }
    for (uint32_t i = 0; i < program->n_items; i++) {
        const struct program_item *item = &program->items[i];

        if (is_timed(item) && n_items[compile->local[item->node->id]] == 1)
            program->cost_keys[i] = op_key_of(compile, compile->local[item->node->id]);
    }
    return 0;
}

/* ---- Kinds and versions ---------------------------------------------------------------------- */

uint64_t op_key_of_kind(const char *kind) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    mix(&hash, kind, strlen(kind));
    return hash ? hash : 1;
}

/* The object that this code is in: the library, or a program that has it inside. */
struct own_object {
    uintptr_t here;
    char *ret;
};

static void take_note(const char *at, size_t bytes, char *ret) {
    while (bytes >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        size_t name, value;

        memcpy(&note, at, sizeof(note));
        name = (note.n_namesz + 3u) & ~(size_t)3;
        value = (note.n_descsz + 3u) & ~(size_t)3;
        if (name > bytes - sizeof(note) || value > bytes - sizeof(note) - name)
            return;
        at += sizeof(note);
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(at, "GNU", 4) == 0 &&
            note.n_descsz >= 8) {
            for (size_t i = 0; i < note.n_descsz && i < 20; i++)
                snprintf(ret + 2 * i, 3, "%02x", (unsigned char)at[name + i]);
            return;
        }
        at += name + value;
        bytes -= sizeof(note) + name + value;
    }
}

static int look_at(struct dl_phdr_info *info, size_t size, void *data) {
    struct own_object *search = data;
    bool is_here = false;

    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];

        is_here |= part->p_type == PT_LOAD &&
                   search->here - (info->dlpi_addr + part->p_vaddr) < part->p_memsz;
    }
    for (int i = 0; is_here && i < info->dlpi_phnum && !*search->ret; i++)
        if (info->dlpi_phdr[i].p_type == PT_NOTE)
            take_note((const char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr),
                      info->dlpi_phdr[i].p_memsz, search->ret);
    return is_here;
}

/* The linker's digest of all code and data, with the texts of the GPU's kernels. A library that was
 * linked without one has the version that it was built as. */
void op_key_version(char ret[static OP_KEY_VERSION_SIZE]) {
    struct own_object search = { (uintptr_t)look_at, ret };

    *ret = '\0';
    dl_iterate_phdr(look_at, &search);
    if (!*ret)
        snprintf(ret, OP_KEY_VERSION_SIZE, "unmarked-" ALLOT_BUILD_VERSION);
}
