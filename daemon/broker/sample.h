/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Sample: what the helpers read from the box at one moment.
 *
 * Plain values without pointers inside devices and processes: they travel from the helpers to
 * allotd as they are. Both ends are from the same build. What the driver does not give is absent (a
 * bit in `has`), never 0. Texts end in NUL and have printable UTF-8 only, whatever a process calls
 * itself.
 *
 * A sample is owned by the code that took it (daemon/hand/hand.h lends it to a callback); one
 * thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/gpuid.h"
#include "base/cgroup_owner.h"
#include "base/readings.h"

#define SAMPLE_DEVICES_MAX   256  /* GPUs and instances of a box; more are ignored with a message */
#define SAMPLE_PROCESSES_MAX 8192 /* rows: a process on two devices is two */
#define SAMPLE_LINKS_MAX     64

/* How two GPUs are connected, nearest first. */
enum sample_path {
    SAMPLE_PATH_NVLINK,   /* `lanes` links, directly or through a switch */
    SAMPLE_PATH_BOARD,    /* the rest as NVML has it: what they have in common */
    SAMPLE_PATH_SWITCH,   /* one PCIe switch */
    SAMPLE_PATH_SWITCHES, /* several */
    SAMPLE_PATH_BRIDGE,   /* a host bridge */
    SAMPLE_PATH_NODE,     /* a NUMA node */
    SAMPLE_PATH_SYSTEM,   /* the link between NUMA nodes */
};

/* "nvlink", "board", "switch", "switches", "bridge", "node", "system". */
const char *sample_path_name(enum sample_path path);

struct sample_link {
    struct gpuid remote; /* a GPU of this box */
    enum sample_path path;
    uint32_t lanes; /* 0: not known, or no NVLink */
};

/* Why a device could not be read. */
enum sample_health {
    SAMPLE_OK,
    SAMPLE_LOST,   /* fallen off the bus, or it needs a reset */
    SAMPLE_CLOSED, /* handles are closed on request: nothing of it was read */
    SAMPLE_FAILED, /* this time only, or for a reason that concerns us alone (rights) */
};

/* A GPU or a MIG instance. Of a device that is not SAMPLE_OK only the identity can be relied on. */
struct sample_device {
    struct gpuid id;
    struct gpuid parent;                     /* of an instance: its GPU; else the same as id */
    bool is_mig;                             /* an instance */
    bool mig_enabled;                        /* a GPU that is divided: nothing runs on the whole */
    bool runs_mps;                           /* an MPS server is among its processes */
    uint32_t gpu_instance, compute_instance; /* of an instance */
    uint32_t index; /* bus order; of an instance: its GPU's, `place` tells them apart */
    uint32_t place; /* of an instance within its GPU, from 0 */
    struct pci_id pci;
    char name[96];
    uint64_t total_bytes;    /* as last read, like the next: `readings` has those of this moment */
    uint64_t reserved_bytes; /* by driver and firmware; 0 where the driver does not say */
    enum sample_health health;
    char trouble[160]; /* a sentence, where health is not SAMPLE_OK */
    struct readings readings;
    uint32_t n_links; /* of a GPU */
    struct sample_link links[SAMPLE_LINKS_MAX];
};

enum sample_kind {
    SAMPLE_COMPUTE = 1 << 0,
    SAMPLE_GRAPHICS = 1 << 1,
    SAMPLE_MPS_CLIENT = 1 << 2,
    SAMPLE_MPS_SERVER = 1 << 3, /* by what it is called: NVML lists it as compute */
    SAMPLE_DISPLAY = 1 << 4,    /* X, a compositor, a display manager: by what it is called */
};

/* What is never signalled, whatever it uses. */
#define SAMPLE_UNTOUCHABLE (SAMPLE_MPS_SERVER | SAMPLE_DISPLAY)

/* One process on one device. */
struct sample_process {
    pid_t pid;           /* in allotd's pid namespace */
    uint64_t start;      /* field 22 of /proc/PID/stat; 0: it is gone, NVML still lists it */
    pid_t namespace_pid; /* in its own pid namespace; 0: not known, or the same */
    struct gpuid device; /* the instance, where NVML says which */
    uint32_t kinds;      /* sample_kind bits */
    bool has_uid, has_used, has_busy;
    uint32_t uid;            /* real uid */
    uint64_t used_bytes;     /* on this device */
    uint32_t busy;           /* percent of the device's time since the sample before */
    enum cgroup_owner owner; /* of its cgroup */
    char command[128];       /* its arguments, spaces between; its name where it has none */
    char name[32];           /* what it is called, without arguments */
    char container[80];      /* id or name of its container, for people; "": in none */
    char cgroup[256]; /* cgroup2 path, "/user.slice/…"; "": not known; cut: not usable, "" too */
};

struct sample {
    uint64_t taken_usec; /* CLOCK_BOOTTIME, when the reading began */
    bool is_simulated;
    char driver_version[80];
    unsigned cuda_version; /* 12020 for CUDA 12.2; 0: not known */
    size_t n_devices;
    struct sample_device *devices; /* bus order, the instances of a GPU after it */
    size_t n_processes;
    struct sample_process *processes;
    bool cut; /* there was more than the maxima above */
};

struct sample *sample_free(struct sample *sample); /* accepts NULL, returns NULL */
DEFINE_FREEP(struct sample, sample_freep, sample_free)

const struct sample_device *sample_find_device(const struct sample *sample, const struct gpuid *id);

/* What the driver woke the reader for. */
enum sample_event_kind {
    SAMPLE_EVENT_XID, /* `data` is the number */
    SAMPLE_EVENT_ECC_CORRECTED,
    SAMPLE_EVENT_ECC_UNCORRECTED,
    SAMPLE_EVENT_MIG_CHANGED,
    SAMPLE_EVENT_UNAVAILABLE, /* the GPU cannot be used, or asks to be recovered */
    SAMPLE_EVENT_OTHER,       /* memory retired, poisoned data */
};

struct sample_event {
    enum sample_event_kind kind;
    struct gpuid device; /* the GPU, or the instance where the driver says which */
    uint64_t data;
    uint64_t at_usec; /* CLOCK_BOOTTIME */
};

/*
 * Add a row that came from a helper and was checked. `room` is that of the array, 0 at the
 * beginning. A row that cannot be kept cuts the sample short (`cut`). Accept a sample of NULL.
 */
void sample_add_device(struct sample *sample, size_t *room, const struct sample_device *device);
void sample_add_process(struct sample *sample, size_t *room, const struct sample_process *process);
