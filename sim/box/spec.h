/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Spec: the description of a box, as the options of gpusim create or a test give it, and the box
 * made from it.
 *
 * Lists hold one item per GPU, separated by commas. If a list is shorter than the box, its last
 * item is repeated where that makes sense (models, memory); elsewhere the other GPUs get defaults.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct box_file;

struct box_spec {
    unsigned n_gpus;        /* 0: as many as the longest list, else 4 */
    const char *models;     /* "a100-40g,t4-16g"; NULL: a100-40g */
    const char *memories;   /* NVML totals, "16G,8G"; NULL: the models' own */
    const char *uuids;      /* NULL: random, or from the seed */
    const char *buses;      /* PCI bus ids; NULL: made up. GPUs are then put in bus order */
    const char *minors;     /* of the device nodes; NULL: the index */
    const char *numa_nodes; /* NULL: the first half of the GPUs on node 0, the others on 1 */
    const char *nvlink;     /* "none", "pairs", "all"; NULL: all, where the models have it */
    const char *uplink;     /* "own", "pairs", "one"; NULL: pairs on one NUMA node */
    const char *mig;        /* "0:3g.20gb+2x1c.3g.20gb,1:7g.40gb"; NULL: none */
    const char *driver;     /* driver version; NULL: the newest that is modelled */
    const char *dev_dir;    /* NULL: /dev */
    uint64_t release_delay_ns, nvml_lag_ns;
    uint64_t seed; /* for UUIDs and serial numbers; 0: random */
    bool
        no_p2p; /* no copies between GPUs but over NVLink: the driver takes them through the host */
    bool timing_only;
};

/* Fill `ret` with the box, for box_create(). -EINVAL: `err` says what is wrong. */
int spec_build(const struct box_spec *spec, struct box_file *ret, struct allot_error *err);
/* Make a box of `spec` at `path`. */
int spec_create(const struct box_spec *spec, const char *path, unsigned mode,
                struct allot_error *err);
/* The box that appears when the user named none: four A100 40 GB. */
int spec_create_default(const char *path, struct allot_error *err);
