/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Box: the simulated hardware, one file mapped by every process that uses it.
 *
 * The file is the only source of truth: devices, health, how many bytes each process holds. It
 * holds no derived state. Every change that matters is one aligned store, made last; so a process
 * that is killed anywhere, also while it holds the lock, leaves a box that is either as before or
 * as after. docs/box.md describes the layout and how it may grow.
 *
 * A process may open a box several times (libcuda.so.1 and libnvidia-ml.so.1 each do). `struct
 * box` is that process's view; any thread may use it. What is called `file` below is shared
 * memory: read and write it only between box_lock() and box_unlock(), except where a field says
 * otherwise. A field read from it that serves as an index is checked first (box_open() checked
 * what was there then; another process may have written since).
 */
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "sim/box/model.h"

#define BOX_MAGIC   "gpusim\r\n" /* 8 bytes; the CRLF shows a file mangled by text tools */
#define BOX_VERSION 2u
#define BOX_GRANULE (UINT64_C(2) << 20) /* the driver's unit of allocation */

enum {
    BOX_MAX_GPUS = 16,
    BOX_MAX_GI = 7, /* GPU instances of a GPU in MIG mode */
    BOX_MAX_CI = 7, /* compute instances of a GPU instance */
    BOX_PARTS = 8,  /* part 0: the GPU as a whole; part 1 + k: GPU instance slot k */
    BOX_MAX_PROCS = 1024,
    BOX_MAX_SEGMENTS = 4096,
    BOX_MAX_LIMITS = 256,
    BOX_MAX_EVENTS = 1024,
    BOX_MAX_FAULTS = 64,
    BOX_MAX_ACCOUNTS = 512,
    BOX_BUSY_TICKS = 32, /* history of busy time, see sim/box/utilization.h */
    BOX_CGROUP_MAX = 512,
};

/* A part of a GPU that has memory of its own: the whole GPU, or a GPU instance of it. */
struct box_part {
    unsigned gpu;  /* index in bus order */
    unsigned part; /* 0, or 1 + slot of the GPU instance */
};

struct box_ci {
    uint32_t in_use;
    uint32_t id; /* compute instance id within its GPU instance */
    uint32_t compute_slices;
    uint32_t multiprocessors;
    char uuid[48]; /* "MIG-…" of the MIG device (gi, ci) */
};

struct box_gi {
    uint32_t in_use;
    uint32_t id;                              /* GPU instance id, as NVML reports it */
    uint32_t profile_id;                      /* NVML_GPU_INSTANCE_PROFILE_… */
    uint32_t placement_start, placement_size; /* memory slices */
    uint32_t compute_slices, multiprocessors;
    uint32_t pad;
    uint64_t memory_bytes;
    struct box_ci ci[BOX_MAX_CI];
};

/* A settable reading: what `gpusim set` fixed, else what the box derives from work done. */
struct box_setting {
    uint32_t fixed;
    int32_t value;
};

/* One X per reading that `gpusim set` can fix: field, what people type, unit, largest value. */
#define BOX_SETTINGS(X)                                                                            \
    X(temperature, "temperature", "degrees Celsius", 200)                                          \
    X(power_mw, "power", "milliwatts", 10000000)                                                   \
    X(utilization, "utilization", "percent", 100)                                                  \
    X(memory_utilization, "memory-utilization", "percent", 100)                                    \
    X(fan, "fan", "percent", 100)                                                                  \
    X(sm_clock_mhz, "sm-clock", "MHz", 100000)                                                     \
    X(memory_clock_mhz, "memory-clock", "MHz", 100000)

struct box_ecc {
    uint64_t corrected_volatile, uncorrected_volatile;
    uint64_t corrected_aggregate, uncorrected_aggregate;
    uint32_t remapped_corrected, remapped_uncorrected; /* rows (Ampere and later), or pages */
    uint32_t remap_pending, remap_failed;
};

struct box_gpu {
    /* identity: fixed when the box is made */
    char model[32]; /* key of sim_models */
    char uuid[48];  /* "GPU-…" */
    char serial[24];
    uint32_t pci_domain, pci_bus, pci_device;
    uint32_t minor; /* of /dev/nvidiaN; never assume it is the index */
    int32_t numa_node;
    uint32_t pcie_switch;           /* 1 to BOX_MAX_GPUS: those with one number share its uplink */
    uint32_t nvlinks[BOX_MAX_GPUS]; /* direct or switched NVLinks to each other GPU */
    uint64_t total_bytes;           /* NVML's total */
    uint64_t reserved_bytes;

    /* MIG */
    uint32_t mig_enabled, mig_pending;
    struct box_gi gi[BOX_MAX_GI];

    /* modes an administrator sets through NVML */
    uint32_t persistence, compute_mode, accounting, ecc_enabled, ecc_pending;
    uint32_t power_limit_mw;
    uint32_t app_sm_mhz, app_memory_mhz;           /* applications clocks; 0: the default */
    uint32_t locked_sm_min_mhz, locked_sm_max_mhz; /* maximum 0: not locked */
    uint32_t locked_memory_min_mhz, locked_memory_max_mhz;

    /* health */
    uint32_t lost;     /* fallen off the bus: every call answers so */
    uint32_t last_xid; /* 0: none */
    struct box_ecc ecc;

#define X(field, name, unit, max) struct box_setting field;
    BOX_SETTINGS(X)
#undef X
    uint64_t seen_bytes[BOX_PARTS]; /* what NVML shows as used when readings lag */
    uint64_t seen_at_ns;
    uint64_t energy_mj; /* consumed until energy_at_ns */
    uint64_t energy_at_ns;
};

enum box_proc_state {
    PROC_FREE = 0,
    PROC_LIVE,
    PROC_RELEASING, /* ended; its bytes count until `release_at_ns` */
};

/* What kind of context a process has on a GPU: a bit set, for NVML's lists. */
enum {
    PROC_COMPUTE = 1,
    PROC_GRAPHICS = 2,
};

/* Busy time in one tick of wall time. `tick` shows whether the entry is current or left from the
 * previous round of the ring. */
struct box_busy_tick {
    uint32_t tick;
    uint32_t compute_us; /* kernels */
    uint32_t memory_us;  /* copies and memsets */
};

struct box_usage {
    uint64_t private_bytes[BOX_PARTS]; /* in whole granules, context included */
    uint64_t peak_bytes;               /* most of all parts together */
    uint64_t seen_bytes[BOX_PARTS];    /* what NVML shows when readings lag */
    uint64_t seen_at_ns;
    uint64_t busy_total_us;
    uint32_t contexts;     /* open CUDA contexts */
    uint32_t kinds;        /* PROC_COMPUTE … */
    uint32_t gi_id, ci_id; /* of the MIG device in use; UINT32_MAX: none */
    struct box_busy_tick busy[BOX_BUSY_TICKS];
};

struct box_proc {
    uint32_t state; /* enum box_proc_state; stored last */
    int32_t pid;    /* as the process itself sees it */
    uint32_t uid;
    uint32_t pad;
    uint64_t start_time;    /* clock ticks after boot, field 22 of /proc/PID/stat */
    uint64_t pid_namespace; /* inode of /proc/PID/ns/pid */
    uint64_t image;         /* differs after an exec: the process is then another program */
    uint64_t joined_at_us;  /* since the epoch */
    uint64_t release_at_ns;
    char name[64];               /* command, for `gpusim show` */
    char cgroup[BOX_CGROUP_MAX]; /* cgroup2 path when it last asked for memory under limits */
    struct box_usage usage[BOX_MAX_GPUS];
};

/*
 * Memory that more than one process may hold: exported. It is charged to its owner and not part
 * of that process's private_bytes. When the owner stops using it, the next user becomes the owner.
 */
struct box_segment {
    uint64_t id; /* 0: free; stored last */
    uint64_t bytes;
    uint32_t gpu, part;
    uint32_t owner; /* process slot; UINT32_MAX: being given up */
    uint32_t pad;
    uint64_t users[BOX_MAX_PROCS / 64]; /* bit per process slot, the owner's included */
};

/* A limit set through nvmlDeviceSetMemoryLimits_v1. */
struct box_limit {
    uint32_t in_use; /* stored last */
    uint32_t gpu;
    uint64_t soft_bytes, hard_bytes; /* hard UINT64_MAX: none */
    char cgroup[BOX_CGROUP_MAX];     /* cgroup2 path, "/user.slice/…" */
};

struct box_event {
    uint64_t seq; /* from 1; stored last */
    uint64_t at_us;
    uint64_t type; /* nvmlEventType… bit */
    uint64_t data; /* Xid, … */
    uint32_t gpu;
    uint32_t gi_id, ci_id; /* UINT32_MAX: none */
    uint32_t pad;
};

enum box_fault_kind {
    FAULT_NONE = 0,
    FAULT_CALL_SLOW,    /* `argument` ns longer */
    FAULT_CALL_HANG,    /* does not return until the fault is cleared */
    FAULT_CALL_FAIL,    /* answers `code` */
    FAULT_ALLOC_AFTER,  /* allocations fail once `argument` more bytes were given */
    FAULT_ALLOC_RANDOM, /* each allocation fails with `argument` in 2^32 */
};

struct box_fault {
    uint32_t kind; /* enum box_fault_kind; stored last */
    uint32_t id;   /* what `gpusim inject --clear` takes */
    int32_t gpu;   /* -1: any */
    int32_t code;
    char call[64]; /* NVML or CUDA name in all its versions; a trailing * matches any ending */
    uint64_t argument;
    uint64_t random;    /* state of the generator */
    uint32_t remaining; /* how many more times; 0: always */
    uint32_t spent;     /* a hang that takes no more calls, but keeps those that it has */
    uint64_t hits;
};

/* What a process left behind, for NVML's accounting. */
struct box_account {
    uint32_t in_use, pid;
    uint32_t gpu, gpu_utilization, memory_utilization, pad;
    uint64_t max_memory_bytes, time_ms, started_at_us;
};

struct box_file {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes; /* sizeof(struct box_file): another layout is another version */
    uint64_t made_at_us;
    uint64_t box_id;       /* random; IPC handles of another box are refused by it */
    uint64_t identity_sum; /* checksum of n_gpus and the identity of each GPU */
    uint32_t n_gpus;
    uint32_t timing_only;
    char driver_version[32], nvml_version[32];
    uint32_t cuda_driver_version;
    uint32_t limit_high; /* slots of `limit` ever used; grows only */
    uint32_t no_p2p;     /* GPUs reach each other over NVLink alone */
    uint32_t pad;
    char dev_dir[256]; /* where device nodes are looked for: "/dev" */
    uint64_t release_delay_ns, nvml_lag_ns;

    pthread_mutex_t lock; /* robust, shared between processes */

    uint64_t event_seq;   /* last event written */
    uint32_t event_futex; /* changes with event_seq and with faults: waiters sleep on it */
    uint32_t n_faults;    /* never 0 while there is a fault: read without the lock, as a hint */
    uint32_t next_fault_id;
    uint32_t proc_high;    /* slots ever used; grows only */
    uint32_t segment_high; /* likewise */
    uint32_t account_next;
    uint64_t next_segment_id;

    struct box_gpu gpu[BOX_MAX_GPUS];
    struct box_fault fault[BOX_MAX_FAULTS];
    struct box_limit limit[BOX_MAX_LIMITS];
    struct box_event event[BOX_MAX_EVENTS];
    struct box_account account[BOX_MAX_ACCOUNTS];
    struct box_segment segment[BOX_MAX_SEGMENTS];
    struct box_proc proc[BOX_MAX_PROCS];
};

struct box {
    struct box_file *file;
    int fd; /* stays open while the process lives: closing it would drop its presence lock */
    uint32_t n_gpus;
    char path[PATH_MAX];
};

/*
 * The file that this process should use: GPUSIM_BOX, else the user's default. `*ret_named` says
 * whether the user named it: a named box must exist, while the default box is created on demand.
 */
int box_path(char ret[PATH_MAX], bool *ret_named, struct allot_error *err);

/* Open what box_path() says, making the default box if the user named none. */
int box_open_default(struct box **ret, struct allot_error *err);
/* -EPROTO: not a box, damaged, or of another version; the text says which. */
int box_open(struct box **ret, const char *path, struct allot_error *err);
/* Write a new box: `init` has everything but locks, ids and checksums. -EEXIST if it is there. */
int box_create(const char *path, const struct box_file *init, unsigned mode,
               struct allot_error *err);
/* Unmaps; the descriptor stays open for the rest of the process, see above. Accepts NULL. */
struct box *box_free(struct box *box);

/*
 * Take the lock. If its owner died, this process takes over: work left half done needs no repair
 * (see above). -ETIMEDOUT if a living process keeps the lock for half a minute.
 */
int box_lock(struct box *box);
void box_unlock(struct box *box);

/* The model of GPU `gpu`; never NULL, box_open() refused unknown ones. */
const struct sim_model *box_model(const struct box *box, unsigned gpu);
/* Bytes that can be allocated on an empty part: total minus reserved. 0: no such part. */
uint64_t box_capacity(const struct box *box, struct box_part part);
/* What identity_sum must be: for tests that edit a box file on purpose. */
uint64_t box_identity_sum(const struct box_file *file);
/* Walk every invariant of a locked box; -EPROTO naming the first one broken. */
int box_check(const struct box *box, struct allot_error *err);

uint64_t box_now_ns(void); /* CLOCK_MONOTONIC */
uint64_t box_now_us(void); /* since the epoch, for what NVML shows */
