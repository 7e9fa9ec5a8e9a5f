/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Visible: which devices a CUDA program sees, and in which order, by CUDA_VISIBLE_DEVICES and
 * CUDA_DEVICE_ORDER, exactly as the driver reads them.
 *
 * Pure: plain structs in, plain structs out; no environment, no allocation, any thread. The texts
 * are not trusted: they need no NUL, may be of any length, and cost one pass.
 *
 *     list   = item { "," item }
 *     item   = index | "GPU-" uuid prefix | "MIG-" uuid prefix | "MIG-GPU-" uuid "/" gi "/" ci
 *
 * The first item decides the kind of all items. The first item that names no device ends the list;
 * the items before it stay. A device that is named twice empties the list. An index is read as
 * strtoul() does: blanks before it and any text after it are ignored. It counts devices in the
 * order that CUDA_DEVICE_ORDER selects. A UUID may be cut short as long as only one device matches.
 *
 * A GPU in MIG mode is no CUDA device, its instances are: named as a GPU it stands for its first
 * instance, and without instances it names nothing. CUDA shows a process at most one instance, and
 * no whole GPU beside it, so the first instance in a list is then all of the list.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/gpuid.h"

/* More than any box holds; a box that has more is refused with -E2BIG. */
#define VISIBLE_GPUS_MAX 256
#define VISIBLE_MIGS_MAX 2048

struct visible_gpu {
    const char *uuid; /* "GPU-…", borrowed, NUL-terminated; NULL: cannot be named by UUID */
    struct pci_id pci;
    uint32_t speed_rank; /* 0 is the fastest; ties are broken by the bus */
    bool mig_enabled;    /* the GPU is in MIG mode, with or without instances */
};

struct visible_mig {
    const char *uuid; /* "MIG-…", borrowed, NUL-terminated; NULL: only its path can name it */
    size_t gpu;       /* its GPU, as an index of `gpus` */
    uint32_t gpu_instance;
    uint32_t compute_instance;
};

/* The devices of a box, in any order. Both arrays are borrowed. */
struct visible_box {
    const struct visible_gpu *gpus;
    size_t n_gpus;
    const struct visible_mig *migs; /* those of GPUs that are not `mig_enabled` are not there */
    size_t n_migs;
};

/* The two variables; NULL: not set, which differs from empty. */
struct visible_env {
    const char *devices; /* CUDA_VISIBLE_DEVICES */
    size_t devices_len;
    const char *order; /* CUDA_DEVICE_ORDER */
    size_t order_len;
};

#define VISIBLE_WHOLE SIZE_MAX

struct visible_device {
    size_t gpu; /* an index of the box's `gpus` */
    size_t mig; /* an index of its `migs`; VISIBLE_WHOLE: the GPU itself */
};

struct visible_list {
    struct visible_device devices[VISIBLE_GPUS_MAX]; /* [i] is CUDA device i */
    size_t n_devices;
    size_t cut_at;     /* offset in the text of the item that ended or emptied the list, otherwise
                          the length */
    char reason[224];  /* why named or existing devices are not in the list; "" if there is no
                          reason */
    char warning[128]; /* about CUDA_DEVICE_ORDER; "" if none. Both are printable ASCII */
};

/* The values as getenv() gives them: NUL-terminated, or NULL. */
struct visible_env visible_env(const char *devices, const char *order);

/* 0; -E2BIG; -EINVAL if an instance of the box names no GPU of it. Every text is valid. */
int visible_decide(struct visible_list *ret, const struct visible_box *box,
                   const struct visible_env *env);
