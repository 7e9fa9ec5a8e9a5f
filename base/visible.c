/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vendor documents the list in one paragraph; the corner cases come from reports of what the
 * driver does. tests/cases/visible.tsv has both, row by row. Four corner cases are decided here,
 * because no published answer exists:
 *
 *   "1,4,1" with four GPUs    the 4 ends the list before the second 1 is read: one device, as the
 *                             vendor's sentence on invalid indices has it (row 19)
 *   "+", "0,+,1"              a sign without a digit is an item that names nothing (rows 43, 44)
 *   "GPU-a, GPU-b"            blanks are skipped before indices only, not before UUIDs (62, 63)
 *   CUDA_DEVICE_ORDER=x       as if it were not set, and a warning (row 78)
 *
 * An item is looked at only up to the longest name of a device, and each item but the last adds a
 * device that was not in the list, so a text of n bytes costs O(n) for its commas and at most
 * (devices)² comparisons of short strings.
 */
#include "base/visible.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

enum entry_kind { KIND_INDEX, KIND_GPU, KIND_MIG };

struct parse {
    const struct visible_box *box;
    struct visible_list *list;
    size_t order[VISIBLE_GPUS_MAX]; /* place in CUDA's enumeration → index of box->gpus */
    uint64_t seen[(VISIBLE_GPUS_MAX + VISIBLE_MIGS_MAX + 63) / 64]; /* GPUs, then instances */
};

struct visible_env visible_env(const char *devices, const char *order) {
    return (struct visible_env){
        .devices = devices,
        .devices_len = devices ? strlen(devices) : 0,
        .order = order,
        .order_len = order ? strlen(order) : 0,
    };
}

static bool text_is(const char *text, size_t n, const char *word) {
    return n == strlen(word) && memcmp(text, word, n) == 0;
}

static bool starts_with(const char *text, size_t n, const char *word) {
    size_t length = strlen(word);

    return n >= length && memcmp(text, word, length) == 0;
}

/* A printable copy of foreign bytes: at most 40 of them, others as \xNN. */
static const char *printable(const char *text, size_t n, char copy[static 176]) {
    size_t at = 0;

    for (size_t i = 0; i < MIN(n, (size_t)40); i++) {
        unsigned char c = (unsigned char)text[i];

        if (c >= 0x20 && c < 0x7f && c != '\\' && c != '"')
            copy[at++] = (char)c;
        else
            at += (size_t)sprintf(copy + at, "\\x%02x", c);
    }
    strcpy(copy + at, n > 40 ? "..." : "");
    return copy;
}

static bool faster(const struct visible_gpu *a, const struct visible_gpu *b, bool bus_order) {
    if (!bus_order && a->speed_rank != b->speed_rank)
        return a->speed_rank < b->speed_rank;
    return pci_id_compare(&a->pci, &b->pci) < 0;
}

static void fill_order(struct parse *p, bool bus_order) {
    const struct visible_gpu *gpus = p->box->gpus;

    for (size_t i = 0; i < p->box->n_gpus; i++) {
        size_t at = i;

        for (; at > 0 && faster(&gpus[i], &gpus[p->order[at - 1]], bus_order); at--)
            p->order[at] = p->order[at - 1];
        p->order[at] = i;
    }
}

/* The instance that CUDA uses for a GPU in MIG mode: the lowest by its two ids. */
static size_t first_mig(const struct visible_box *box, size_t gpu) {
    size_t first = VISIBLE_WHOLE;

    for (size_t i = 0; i < box->n_migs; i++) {
        const struct visible_mig *a = &box->migs[i], *b;

        if (a->gpu != gpu)
            continue;
        if (first == VISIBLE_WHOLE) {
            first = i;
            continue;
        }
        b = &box->migs[first];
        if (a->gpu_instance < b->gpu_instance ||
            (a->gpu_instance == b->gpu_instance && a->compute_instance < b->compute_instance))
            first = i;
    }
    return first;
}

/* The device that GPU `gpu` stands for; false if it is in MIG mode and has no instance. */
static bool resolve_gpu(const struct visible_box *box, size_t gpu, struct visible_device *ret) {
    struct visible_device device = { gpu, VISIBLE_WHOLE };

    if (box->gpus[gpu].mig_enabled) {
        device.mig = first_mig(box, gpu);
        if (device.mig == VISIBLE_WHOLE)
            return false;
    }
    *ret = device;
    return true;
}

/* NULL if the item names a device, otherwise the reason why not. */
static const char *find_index(const struct parse *p, const char *item, size_t n,
                              struct visible_device *ret) {
    bool negative = false;
    uint64_t value = 0;
    size_t i = 0, digits;

    while (i < n && (item[i] == ' ' || (item[i] >= '\t' && item[i] <= '\r')))
        i++;
    if (i == n)
        return "is empty";
    if (item[i] == '+' || item[i] == '-')
        negative = item[i++] == '-';
    for (digits = i; i < n && item[i] >= '0' && item[i] <= '9'; i++)
        if (value <= VISIBLE_GPUS_MAX) /* larger is out of range already: no overflow */
            value = value * 10 + (uint64_t)(item[i] - '0');
    if (i == digits)
        return "is not an index (UUIDs cannot be mixed with indices)";
    if (negative && value != 0)
        return "is negative";
    if (value >= p->box->n_gpus)
        return "is out of range";
    if (!resolve_gpu(p->box, p->order[value], ret))
        return "is a GPU in MIG mode without instances";
    return NULL;
}

static const char *find_gpu(const struct parse *p, const char *item, size_t n,
                            struct visible_device *ret) {
    size_t found = SIZE_MAX;

    if (!starts_with(item, n, "GPU-"))
        return "is not a GPU UUID like the items before it";
    for (size_t i = 0; i < p->box->n_gpus; i++) {
        const char *uuid = p->box->gpus[i].uuid;

        if (!uuid || n > strlen(uuid) || memcmp(uuid, item, n) != 0)
            continue;
        if (found != SIZE_MAX)
            return "matches the UUIDs of several GPUs";
        found = i;
    }
    if (found == SIZE_MAX)
        return "is not a GPU of this box";
    if (!resolve_gpu(p->box, found, ret))
        return "is a GPU in MIG mode without instances";
    return NULL;
}

static bool is_mig_path(const struct parse *p, const struct visible_mig *mig, const char *item,
                        size_t n) {
    const char *gpu = p->box->gpus[mig->gpu].uuid;
    char path[GPUID_TEXT_SIZE];
    int length;

    if (!gpu)
        return false;
    length =
        snprintf(path, sizeof(path), "MIG-%s/%u/%u", gpu, mig->gpu_instance, mig->compute_instance);
    return length > 0 && (size_t)length < sizeof(path) && text_is(item, n, path);
}

static const char *find_mig(const struct parse *p, const char *item, size_t n,
                            struct visible_device *ret) {
    bool is_path = starts_with(item, n, "MIG-GPU-");
    size_t found = SIZE_MAX;

    if (!starts_with(item, n, "MIG-"))
        return "is not a MIG device like the items before it";
    for (size_t i = 0; i < p->box->n_migs; i++) {
        const struct visible_mig *mig = &p->box->migs[i];

        if (!p->box->gpus[mig->gpu].mig_enabled)
            continue;
        if (is_path ? !is_mig_path(p, mig, item, n)
                    : !mig->uuid || n > strlen(mig->uuid) || memcmp(mig->uuid, item, n) != 0)
            continue;
        if (found != SIZE_MAX)
            return "matches the UUIDs of several MIG devices";
        found = i;
    }
    if (found == SIZE_MAX)
        return "is not a MIG device of this box";
    *ret = (struct visible_device){ p->box->migs[found].gpu, found };
    return NULL;
}

/* Add the device to the list; false if it is there already. */
static bool add(struct parse *p, const struct visible_device *device) {
    size_t bit = device->mig == VISIBLE_WHOLE ? device->gpu : VISIBLE_GPUS_MAX + device->mig;

    if (p->seen[bit / 64] >> bit % 64 & 1)
        return false;
    p->seen[bit / 64] |= UINT64_C(1) << bit % 64;
    /* Only instances can be more than the array holds, and only the first of them will be kept. */
    if (p->list->n_devices < ELEMENTSOF(p->list->devices))
        p->list->devices[p->list->n_devices++] = *device;
    return true;
}

static void parse_list(struct parse *p, const char *text, size_t length) {
    enum entry_kind kind = starts_with(text, length, "GPU-")   ? KIND_GPU
                           : starts_with(text, length, "MIG-") ? KIND_MIG
                                                               : KIND_INDEX;
    struct visible_list *list = p->list;
    const char *why = NULL;
    size_t at = 0, n = 0, number = 0;
    char copy[176];

    for (;; at += n + 1) {
        const char *item = text + at;
        const char *comma = memchr(item, ',', length - at);
        struct visible_device device;

        number++;
        n = comma ? (size_t)(comma - item) : length - at;
        why = kind == KIND_GPU   ? find_gpu(p, item, n, &device)
              : kind == KIND_MIG ? find_mig(p, item, n, &device)
                                 : find_index(p, item, n, &device);
        if (why)
            break;
        if (!add(p, &device)) {
            list->n_devices = 0;
            why = "names a device for the second time, which empties the list";
            break;
        }
        if (!comma || at + n + 1 == length) /* a comma at the very end is harmless */
            return;
    }
    list->cut_at = at;
    if (length == 0)
        snprintf(list->reason, sizeof(list->reason), "CUDA_VISIBLE_DEVICES is empty: no device");
    else
        snprintf(list->reason, sizeof(list->reason), "CUDA_VISIBLE_DEVICES: item %zu (\"%s\") %s",
                 number, printable(text + at, n, copy), why);
}

/* Without the variable every device is visible. */
static void list_all(struct parse *p) {
    for (size_t i = 0; i < p->box->n_gpus; i++) {
        struct visible_device device;

        if (resolve_gpu(p->box, p->order[i], &device))
            add(p, &device);
    }
}

static void keep_one_mig(struct visible_list *list) {
    for (size_t i = 0; i < list->n_devices; i++) {
        if (list->devices[i].mig == VISIBLE_WHOLE)
            continue;
        if (list->n_devices > 1 && !list->reason[0])
            snprintf(list->reason, sizeof(list->reason),
                     "CUDA shows a process only one MIG device, and no whole GPU beside it: the "
                     "first of the %zu MIG devices is used",
                     list->n_devices);
        list->devices[0] = list->devices[i];
        list->n_devices = 1;
        return;
    }
}

int visible_decide(struct visible_list *ret, const struct visible_box *box,
                   const struct visible_env *env) {
    struct parse p = { .box = box, .list = ret };
    bool bus_order = env->order && text_is(env->order, env->order_len, "PCI_BUS_ID");
    char copy[176];

    if (box->n_gpus > VISIBLE_GPUS_MAX || box->n_migs > VISIBLE_MIGS_MAX)
        return -E2BIG;
    for (size_t i = 0; i < box->n_migs; i++)
        if (box->migs[i].gpu >= box->n_gpus)
            return -EINVAL;

    ret->n_devices = 0;
    ret->cut_at = env->devices_len;
    ret->reason[0] = ret->warning[0] = 0;
    if (env->order && !bus_order && !text_is(env->order, env->order_len, "FASTEST_FIRST"))
        snprintf(ret->warning, sizeof(ret->warning),
                 "CUDA_DEVICE_ORDER \"%.48s\" is unknown: FASTEST_FIRST is used",
                 printable(env->order, env->order_len, copy));

    fill_order(&p, bus_order);
    if (env->devices)
        parse_list(&p, env->devices, env->devices_len);
    else
        list_all(&p);
    keep_one_mig(ret);
    return 0;
}
