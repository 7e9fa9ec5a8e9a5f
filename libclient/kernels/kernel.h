/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Kernel: how an op is computed on one kind of device for some types.
 *
 * Everything that does not depend on the numbers is settled once, when a plan is made: the kernel's
 * `prepare` sees whole shapes, chooses the loop or the launch, and keeps what it needs in its
 * state. Then each step calls `run` with nothing but addresses, so a tiny op costs one call.
 *
 * One table, process-wide; rows are added at any time, by any thread, and never removed.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/core/dtype.h"
#include "libclient/core/shape.h"

struct allot_error;
struct allot_tensor;
struct node;
struct thread_pool;
struct kernel_run;
struct gpu;

enum kernel_device { KERNEL_CPU, KERNEL_GPU, N_KERNEL_DEVICES };

/* 0, or what kernel_fail() returned. On a GPU it only queues work on the step's stream. Called by
 * any thread; for the same node by several at once. */
typedef int (*kernel_run_fn)(const struct kernel_run *run);

struct kernel_value {
    enum dtype dtype;
    struct shape shape;               /* whole; open: an output of KERNEL_DYNAMIC */
    const struct allot_tensor *known; /* on the host, if it is known when the plan is made; NULL */
};

/* What `prepare` gets, and what it fills in. */
struct kernel_plan {
    const struct node *node;     /* attributes and types; not its inputs */
    const struct kernel *kernel; /* the row */
    const struct kernel_value *inputs, *outputs;
    uint32_t n_inputs, n_outputs;
    struct gpu *gpu;      /* the device the node is on; NULL on the CPU (device/gpu.h) */
    uint64_t random_seed; /* of this node, from graph and session */

    kernel_run_fn run; /* must be set */
    /* Optional. The executor may call it instead of `run` to subtract, from a variable, a rate
     * times what `run` would write. The inputs are then the variable, the rate, and the op's own;
     * there is no output. The bits are the same as those of `run` followed by ApplyGradientDescent.
     * It cannot fail. */
    kernel_run_fn descend;
    void *state; /* calloc()ed by prepare, or NULL; freed by free() or `state_free`, even if prepare
                    fails */
    void (*state_free)(void *state);
    size_t scratch_bytes; /* memory on its device during the run */
    uint64_t cost;        /* nanoseconds on one core, roughly; 0: not worth a thread of its own */
    bool pooled;          /* that much is divided among the threads of run->pool */
};

/*
 * One run of one node. Addresses are of the node's device, or of the host where the row says so;
 * blocks are aligned to 64 bytes. An output with 0 elements has some address.
 *
 * The handle of a variable comes in as the address of its value, which a kernel of `writes` changes
 * in place: the executor has locked it and made sure that no run reads the old value any more. An
 * output of such a kernel is the variable's new value: the executor provides it, the kernel does
 * not write it.
 */
struct kernel_run {
    const void *state;
    void *const *inputs;
    void *const *outputs;
    void *scratch;
    struct thread_pool *pool; /* for loops within the op; may have no threads */
    struct kernel_step *step;
};

/* What the nodes of one step share. */
struct kernel_step {
    uint64_t number;              /* of this session; random ops count from it */
    const atomic_bool *cancelled; /* long loops look at it; NULL: never */
    void *stream;                 /* CUstream of the node's device */
    bool deterministic;           /* the same bits whatever the thread count */
    /* Allocate output `i` of a KERNEL_DYNAMIC node, now that its shape is known: once for each
     * output, in the run; the executor keeps address and shape. -errno, with an error text. */
    int (*output_new)(const struct kernel_run *run, uint32_t i, const struct shape *shape,
                      void **ret);
};

/* Keep the text of an error, without the node's name, for the caller of `run` on this thread, and
 * return `code`. A loop on another thread must first bring its error back to this one. */
int kernel_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The text of the last failure on this thread. */
const struct allot_error *kernel_failure(void);

enum kernel_flag {
    KERNEL_IN_PLACE = 1 << 0, /* output 0 may overwrite input 0, if no other item needs that and no
                                 other input is the same value; for kernels that read each element
                                 of input 0 before they write it */
    KERNEL_IN_PLACE_ANY =
        1 << 1, /* … or any other input of the same size, even if several are the same value; for
                   kernels that read each element of all inputs before they write it */
    KERNEL_ALIAS = 1 << 2, /* output 0 is input 0 under another shape: nothing is computed */
    KERNEL_LINK = 1 << 3,  /* communication-heavy: one at a time per link */
    KERNEL_BLOCKING =
        1 << 4, /* may wait, or calls code of the program: not on a thread that other items need */
    KERNEL_INITIALISES = 1 << 5, /* the variable it writes need not have had a value before */
    KERNEL_DYNAMIC =
        1 << 6, /* computing the outputs determines their size: their shapes are open in the plan,
                   run->outputs is absent, and `run` calls step->output_new for each */
    KERNEL_FOREIGN = 1 << 7, /* the program's own: under the same name it may be another next time,
                                so what it took says nothing */
};

struct kernel {
    const char *op;
    enum kernel_device device;
    uint32_t dtypes; /* bits 1 << dtype, of the attribute "T" (or of `by`); 0: any */
    const char *by;  /* the type attribute that `dtypes` is about; NULL: "T" */
    uint32_t
        host_inputs; /* bit per argument (a list is one): lies in host memory on every device */
    uint32_t host_outputs; /* likewise */
    uint32_t shape_inputs; /* bit per argument: the kernel reads only its shape, so its bytes need
                              not exist */
    uint32_t writes;       /* bit per argument: a variable whose value it changes */
    uint32_t flags;
    int32_t priority; /* for the placer */
    uint32_t which;   /* for `prepare`: which of its family this is */
    int (*prepare)(struct kernel_plan *plan, struct allot_error *err);
};

/* The row is kept by address. -EEXIST: op, device and one of the types have a row already. */
int kernel_register(const struct kernel *kernel, struct allot_error *err);
/* The row for the node's type; NULL: none. */
const struct kernel *kernel_find(const struct node *node, enum kernel_device device);
/* The row of an op, for its type attribute "T"; NULL: none. */
const struct kernel *kernel_find_op(const char *op, enum dtype dtype, enum kernel_device device);
/* "CPU", "GPU" */
const char *kernel_device_name(enum kernel_device device);

/* Register liballot's own rows; done once per process, by the first caller. */
int kernel_register_all(struct allot_error *err);
