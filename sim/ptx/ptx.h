/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * PTX: run the code that nvcc, NVRTC and numba emit, 32 lanes per decoded instruction.
 *
 *     text ──add──▶ module ──link──▶ symbols with addresses ──launch──▶ result, or first fault
 *
 * A module is parsed and checked as a whole when it is added; a function is translated to code on
 * its first launch. After ptx_module_link() a module is immutable but for that translation, which
 * is internally locked: any number of threads may launch from it.
 *
 * Depends on base/ alone. Device memory belongs to the caller, whom kernels ask through a
 * ptx_memory.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct allot_error;
struct ptx_module;
struct ptx_function;

/* Generic addresses of what is not in a ptx_memory. Above all that mmap() can return on x86-64, so
 * that they never meet an allocation. */
#define PTX_SHARED_BASE UINT64_C(0x0001000000000000)
#define PTX_LOCAL_BASE  UINT64_C(0x0001000100000000)
#define PTX_PARAM_BASE  UINT64_C(0x0001000200000000)
#define PTX_CODE_BASE   UINT64_C(0x0001000300000000)
#define PTX_GRID_BASE   UINT64_C(0x0001000400000000) /* what grid-wide barriers count in */
#define PTX_WINDOW      UINT64_C(0x0000000100000000) /* bytes of each */

/* ---- memory: which device addresses exist, and where their bytes are ------------------------ */

/*
 * The address space of a launch. Its owner knows the live allocations; running kernels ask for
 * them.
 *
 * A running kernel keeps what it was told and asks again only after a poll (every few thousand
 * branches, between blocks, at barriers) that shows a new generation.
 */
struct ptx_memory;

enum {
    PTX_EXTENT_READ_ONLY = 1, /* a store is a fault */
};

struct ptx_extent {
    uint64_t base;       /* device address, generic; below PTX_SHARED_BASE, as is its end */
    uint64_t bytes;      /* exact: an access past it is a fault, whatever the granule was */
    unsigned char *host; /* where the bytes are; NULL: loads give 0, stores are dropped */
    uint32_t flags;
};

/* Fill in the extent that holds `address`, or return -ENOENT. Running kernels call it from many
 * threads at once. */
typedef int (*ptx_find_fn)(void *user, uint64_t address, struct ptx_extent *ret);
/* The owner increases `generation` whenever an extent has changed or is gone; running kernels ask
 * again from their next poll on. */
int ptx_memory_new(struct ptx_memory **ret, ptx_find_fn find, void *user,
                   const _Atomic uint64_t *generation);
struct ptx_memory *ptx_memory_free(struct ptx_memory *memory); /* no launch may be running */
/*
 * Return when every running kernel has seen the present generation: none touches the extents that
 * are gone from it any more, and the owner may unmap their bytes. Must not be called while holding
 * a lock that a launch's callbacks take.
 */
void ptx_memory_settle(struct ptx_memory *memory);
/* The extent that holds `address`, as `find` answers. */
int ptx_memory_find(struct ptx_memory *memory, uint64_t address, struct ptx_extent *ret);

/* ---- modules -------------------------------------------------------------------------------- */

int ptx_module_new(struct ptx_module **ret);
struct ptx_module *ptx_module_free(struct ptx_module *module);

/*
 * Parse one more input. `text` is copied; a NUL ends it before `n`. On failure `err` holds
 * "<name>, line 12: unknown instruction 'foo'" and the module can only be freed.
 * -EINVAL bad PTX, -EOPNOTSUPP an instruction that is not implemented, -ENOMEM.
 */
int ptx_module_add(struct ptx_module *module, const char *name, const char *text, size_t n,
                   struct allot_error *err);

/* Resolve what is extern and lay out shared memory. -ENOENT names the unresolved symbol. */
int ptx_module_link(struct ptx_module *module, struct allot_error *err);

enum ptx_space { PTX_GLOBAL, PTX_CONST };

/* A variable that lives in device memory: the caller gives it room, then its first bytes. */
struct ptx_variable {
    const char *name;
    uint64_t bytes, align;
    enum ptx_space space;
    bool visible; /* to other modules and to the host */
    bool managed; /* .attribute(.managed) */
};

size_t ptx_module_n_variables(const struct ptx_module *module);
void ptx_module_variable(const struct ptx_module *module, size_t i, struct ptx_variable *ret);
/* Where variable `i` was put. All must be placed before images are asked for or kernels run. */
void ptx_module_place(struct ptx_module *module, size_t i, uint64_t address);
/* The initial bytes of variable `i`, addresses of other symbols filled in. */
int ptx_module_image(const struct ptx_module *module, size_t i, void *bytes, size_t n,
                     struct allot_error *err);

/* A kernel parameter. */
struct ptx_param {
    uint32_t offset, bytes, align;
};

/* What cuFuncGetAttribute and the occupancy calculator ask for. */
struct ptx_attributes {
    uint32_t n_regs;            /* 32-bit registers a thread holds at once, estimated */
    uint32_t shared_bytes;      /* static */
    uint32_t local_bytes;       /* per thread, of the kernel itself; calls add theirs */
    uint32_t const_bytes;       /* of the module */
    uint32_t param_bytes;       /* of all parameters */
    uint32_t max_threads;       /* .maxntid / .reqntid, else 1024 */
    uint32_t required_block[3]; /* .reqntid; 0: none */
    uint32_t min_blocks_per_sm; /* .minnctapersm; 0: none */
    bool uses_clusters;         /* the module asks for clusters, which have one block here */
    uint32_t ptx_version;       /* 10 × major + minor */
    uint32_t target;            /* 75 for sm_75 */
};

size_t ptx_module_n_kernels(const struct ptx_module *module);
struct ptx_function *ptx_module_kernel(const struct ptx_module *module, size_t i);
const char *ptx_function_name(const struct ptx_function *function);
size_t ptx_function_n_params(const struct ptx_function *function);
void ptx_function_param(const struct ptx_function *function, size_t i, struct ptx_param *ret);
/* Translates the function when it was not yet: n_regs comes from that. */
int ptx_function_attributes(struct ptx_function *function, struct ptx_attributes *ret,
                            struct allot_error *err);

/* ---- launches ------------------------------------------------------------------------------- */

enum ptx_fault_kind {
    PTX_FAULT_NONE,
    PTX_FAULT_ADDRESS,     /* out of bounds, freed, or a store to what is read only: 700 */
    PTX_FAULT_MISALIGNED,  /* 716 */
    PTX_FAULT_TRAP,        /* trap; brkpt: 719 */
    PTX_FAULT_ASSERT,      /* a device assert(): 710 */
    PTX_FAULT_INSTRUCTION, /* illegal: a call through a bad pointer, a built-in we lack: 715 */
    PTX_FAULT_STACK,       /* local memory or calls too deep: 719 */
    PTX_FAULT_DEADLOCK,    /* every thread of a block waits for what cannot come: 702 */
    PTX_FAULT_CANCELLED,   /* ended by the cancel flag: 702 */
};

struct ptx_fault {
    enum ptx_fault_kind kind;
    const char *kernel; /* borrowed from the module */
    uint32_t block[3], thread[3];
    uint64_t address; /* generic; for memory faults */
    uint32_t bytes;   /* of the access */
    bool store;
    uint32_t line;  /* of the PTX text; 0: unknown */
    char text[192]; /* for a person */
};

/* What the modelled time is made of: sums over all blocks; estimated where only some ran. */
struct ptx_stats {
    uint64_t n_blocks; /* that ran; 0: none had to, see n_sample_blocks */
    uint64_t n_warp_instructions;
    uint64_t n_thread_instructions; /* active lanes only */
    uint64_t global_read_bytes, global_write_bytes;
    uint64_t shared_read_bytes, shared_write_bytes;
    uint64_t local_read_bytes, local_write_bytes;
    uint64_t const_read_bytes;
    uint64_t n_atomics; /* lanes */
    uint64_t n_barriers;
};

struct ptx_launch {
    struct ptx_function *kernel;
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared_bytes;
    const void *params; /* laid out as ptx_function_param() says */
    size_t param_bytes;
    struct ptx_memory *memory;

    unsigned n_threads;         /* host threads, the caller's included; 0: up to one per core */
    const _Atomic bool *cancel; /* may be NULL; polled, so that a runaway kernel can be ended */
    _Atomic bool *waiting;      /* may be NULL; true while all blocks that are left only poll */
    bool cooperative;           /* blocks wait for one another: all are kept resident */
    unsigned
        n_sample_blocks; /* 0: run all blocks; else only find the cost: without computing or, if the
                            cost depends on data, from at most this many sample blocks (and 4), or
                            more if these differ, unless the launch is cooperative */
    bool by_samples;     /* run the samples even if the cost can be found without */
    uint64_t sample_limit; /* warp instructions after which a sampled block is stopped; also about
                              the total for further samples; 0: 2^24 */
    uint64_t follow_limit; /* steps of warps to find the exact cost of a launch; beyond that,
                              estimate it from some blocks; 0: 2^27 */
    uint32_t stack_bytes;  /* per thread beyond the kernel's own; 0: 64 KiB */
    uint32_t n_sms;        /* %nsmid; blocks are dealt out in turn for %smid; 0: 1 */
    uint64_t clock_base;   /* what %globaltimer starts from, ns */

    /* Optional. May be called from several threads at once, in no order. */
    void *user;
    void (*print)(void *user, const char *text, size_t n); /* printf; NULL: dropped */
    uint64_t (*heap_alloc)(void *user, uint64_t bytes);    /* malloc; NULL: gives 0 */
    void (*heap_free)(void *user, uint64_t address);       /* free */
};

struct ptx_result {
    struct ptx_stats stats;
    struct ptx_fault fault; /* the first one met; kind NONE: the kernel ran to its end */
};

/*
 * Run a kernel to its end. 0 also when it faulted: `ret->fault` says so. -EINVAL for impossible
 * dimensions or parameters, -EBADMSG if the kernel cannot be translated, -ENOMEM.
 */
int ptx_launch(const struct ptx_launch *launch, struct ptx_result *ret, struct allot_error *err);
