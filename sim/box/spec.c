/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/box/spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/gpuid.h"
#include "base/random.h"
#include "base/units.h"
#include "sim/box/box.h"
#include "sim/box/mig.h"

/* The driver that the box pretends to have, and the CUDA version that comes with it. The first is
 * the newest: it knows nvmlDeviceSetMemoryLimits_v1. */
static const struct {
    const char *driver;
    uint32_t cuda;
} drivers[] = {
    { "615.71", 13040 },    { "580.65.06", 13000 },  { "570.124.06", 12080 },
    { "550.54.15", 12040 }, { "535.309.01", 12020 },
};

/* Item `i` of a list, copied to `ret`. False: the list is shorter; with `repeat`, never. */
static bool item(const char *list, unsigned i, bool repeat, char *ret, size_t size) {
    const char *p = list;

    if (!list || !*list)
        return false;
    for (; i; i--) {
        const char *comma = strchr(p, ',');

        if (!comma && !repeat)
            return false;
        if (!comma)
            break;
        p = comma + 1;
    }
    snprintf(ret, size, "%.*s", (int)strcspn(p, ","), p);
    return true;
}

static unsigned n_items(const char *list) {
    unsigned n = list && *list;

    for (; n && *list; list++)
        n += *list == ',';
    return n;
}

static int parse_number(const char *text, unsigned max, unsigned *ret) {
    char *end;
    unsigned long n;

    errno = 0;
    n = strtoul(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || n > max)
        return -EINVAL;
    *ret = n;
    return 0;
}

static int build_identity(const struct box_spec *spec, struct box_gpu *gpu, unsigned i,
                          unsigned n_gpus, uint64_t *random, struct allot_error *err) {
    struct gpuid id = { .kind = GPUID_GPU };
    /* Buses as on a common eight-GPU board: 07 0f 47 4e 87 90 b7 bd, and on from there. */
    static const uint8_t usual_bus[BOX_MAX_GPUS] = {
        0x07, 0x0f, 0x47, 0x4e, 0x87, 0x90, 0xb7, 0xbd,
        0xc1, 0xc4, 0xc7, 0xca, 0xd1, 0xd4, 0xd7, 0xda
    };
    struct pci_id pci = { .bus = usual_bus[i] };
    char text[128], canonical[GPUID_TEXT_SIZE];
    uint64_t half[2] = { random_next(random), random_next(random) };
    unsigned number;

    memcpy(id.uuid, half, sizeof(id.uuid));
    id.uuid[6] = (id.uuid[6] & 0x0f) | 0x40;
    id.uuid[8] = (id.uuid[8] & 0x3f) | 0x80;
    if (item(spec->uuids, i, false, text, sizeof(text)) &&
        (gpuid_parse(&id, text) < 0 || id.kind != GPUID_GPU))
        return error_set(err, -EINVAL, "\"%s\" is not a GPU's UUID (GPU-xxxxxxxx-…)", text);
    snprintf(gpu->uuid, sizeof(gpu->uuid), "%s", gpuid_format(&id, canonical));
    snprintf(gpu->serial, sizeof(gpu->serial), "%013llu",
             (unsigned long long)(random_next(random) % UINT64_C(10000000000000)));

    if (item(spec->buses, i, false, text, sizeof(text)) &&
        (pci_id_parse(&pci, text) < 0 || pci.function))
        return error_set(err, -EINVAL, "\"%s\" is not a PCI bus id (0000:3b:00.0)", text);
    gpu->pci_domain = pci.domain;
    gpu->pci_bus = pci.bus;
    gpu->pci_device = pci.device;

    gpu->minor = i;
    if (item(spec->minors, i, false, text, sizeof(text))) {
        if (parse_number(text, 255, &number) < 0)
            return error_set(err, -EINVAL, "\"%s\" is not a minor number", text);
        gpu->minor = number;
    }
    /* Two GPUs behind a switch, half of the switches on each of two nodes. */
    gpu->numa_node = n_gpus > 2 && i / 2 >= (n_gpus + 1) / 2 / 2;
    if (item(spec->numa_nodes, i, true, text, sizeof(text))) {
        if (parse_number(text, 63, &number) < 0)
            return error_set(err, -EINVAL, "\"%s\" is not a NUMA node", text);
        gpu->numa_node = number;
    }
    return 0;
}

static int build_gpu(const struct box_spec *spec, struct box_gpu *gpu, unsigned i, unsigned n_gpus,
                     uint64_t *random, struct allot_error *err) {
    char text[128] = "a100-40g";
    const struct sim_model *model;

    item(spec->models, i, true, text, sizeof(text));
    model = model_find(text);
    if (!model)
        return error_set(err, -EINVAL,
                         "there is no model \"%s\"; \"gpusim create --help\" lists them", text);
    snprintf(gpu->model, sizeof(gpu->model), "%s", model->key);
    gpu->reserved_bytes = model->reserved_bytes;
    gpu->total_bytes = model->total_bytes;
    if (item(spec->memories, i, true, text, sizeof(text))) {
        if (units_parse_bytes(&gpu->total_bytes, text) < 0 ||
            gpu->total_bytes <= gpu->reserved_bytes || gpu->total_bytes > UINT64_C(1) << 40)
            return error_set(err, -EINVAL,
                             "\"%s\" is not a memory size for %s (more than the %llu MiB that "
                             "its driver reserves, at most 1T)",
                             text, model->key, (unsigned long long)(model->reserved_bytes >> 20));
        /* Whole granules are left for programs; the odd rest is the driver's. */
        gpu->reserved_bytes += (gpu->total_bytes - gpu->reserved_bytes) % BOX_GRANULE;
    }
    gpu->ecc_enabled = gpu->ecc_pending = model->ecc;
    gpu->persistence = 1;
    return build_identity(spec, gpu, i, n_gpus, random, err);
}

static int compare_bus(const void *a, const void *b) {
    const struct box_gpu *x = a, *y = b;
    const struct pci_id p = { x->pci_domain, x->pci_bus, x->pci_device, 0 };
    const struct pci_id q = { y->pci_domain, y->pci_bus, y->pci_device, 0 };

    return pci_id_compare(&p, &q);
}

static int refuse_twins(const struct box_file *file, struct allot_error *err) {
    for (unsigned i = 0; i < file->n_gpus; i++)
        for (unsigned j = 0; j < i; j++) {
            if (!compare_bus(&file->gpu[i], &file->gpu[j]))
                return error_set(err, -EINVAL, "two GPUs on PCI bus %02x", file->gpu[i].pci_bus);
            if (!strcmp(file->gpu[i].uuid, file->gpu[j].uuid))
                return error_set(err, -EINVAL, "two GPUs with UUID %s", file->gpu[i].uuid);
            if (file->gpu[i].minor == file->gpu[j].minor)
                return error_set(err, -EINVAL, "two GPUs with minor number %u", file->gpu[i].minor);
        }
    return 0;
}

/* Neighbours share a switch, and its uplink, where they are on one NUMA node; or as was asked. */
static int build_switches(const struct box_spec *spec, struct box_file *file,
                          struct allot_error *err) {
    const char *kind = spec->uplink ? spec->uplink : "pairs";
    const bool pairs = !strcmp(kind, "pairs"), one = !strcmp(kind, "one");

    if (!pairs && !one && strcmp(kind, "own"))
        return error_set(err, -EINVAL,
                         "\"%s\": an uplink is each GPU's \"own\", of \"pairs\" or \"one\"", kind);
    for (unsigned i = 0; i < file->n_gpus; i++) {
        struct box_gpu *gpu = &file->gpu[i];
        const bool joins =
            i > 0 && (one || (pairs && i % 2 && gpu->numa_node == file->gpu[i - 1].numa_node));

        gpu->pcie_switch = joins ? file->gpu[i - 1].pcie_switch : i + 1;
    }
    return 0;
}

static int build_links(const struct box_spec *spec, struct box_file *file,
                       struct allot_error *err) {
    const char *kind = spec->nvlink ? spec->nvlink : "all";
    const bool pairs = !strcmp(kind, "pairs");

    if (!pairs && strcmp(kind, "all") && strcmp(kind, "none"))
        return error_set(err, -EINVAL, "\"%s\": NVLink connects \"none\", \"pairs\" or \"all\"",
                         kind);
    for (unsigned i = 0; i < file->n_gpus && strcmp(kind, "none"); i++)
        for (unsigned j = 0; j < file->n_gpus; j++)
            if (i != j && (!pairs || i / 2 == j / 2))
                file->gpu[i].nvlinks[j] = MIN(model_find(file->gpu[i].model)->nvlink_links,
                                              model_find(file->gpu[j].model)->nvlink_links);
    return 0;
}

/* One instance: "3g.20gb", or "1c.3g.20gb" for a compute instance of one slice in it; "2x" before
 * it: two such compute instances. */
static int build_instance(struct box_gpu *gpu, const char *text, struct allot_error *err) {
    const struct sim_model *model = model_find(gpu->model);
    const struct sim_mig_profile *profile;
    unsigned times = 1, slices = 0, slot, ci;
    const char *name = text;
    int n = 0;

    if (sscanf(name, "%1ux%n", &times, &n) == 1 && n)
        name += n;
    else
        times = 1;
    n = 0;
    if (sscanf(name, "%1uc.%n", &slices, &n) == 1 && n)
        name += n;
    else
        slices = 0;
    profile = model_find_profile(model, name, 0);
    if (!profile)
        return error_set(err, -EINVAL, "%s has no MIG profile \"%s\"", model->key, name);
    if (mig_gi_new(gpu, profile, -1, &slot) < 0)
        return error_set(err, -EINVAL, "\"%s\" does not fit beside the other instances", text);
    for (unsigned i = 0; i < times; i++)
        if (mig_ci_new(gpu, slot, slices ? slices : profile->compute_slices, &ci) < 0)
            return error_set(err, -EINVAL, "\"%s\" asks for more compute slices than %s has", text,
                             profile->name);
    return 0;
}

static int build_mig(const struct box_spec *spec, struct box_file *file, struct allot_error *err) {
    char text[512], *save = NULL;
    unsigned i;
    int r, n;

    for (unsigned k = 0; item(spec->mig, k, false, text, sizeof(text)); k++) {
        n = 0;
        if (sscanf(text, "%2u:%n", &i, &n) != 1 || !n || i >= file->n_gpus)
            return error_set(err, -EINVAL, "\"%s\": MIG is ordered as GPU:PROFILE+PROFILE…", text);
        if (!model_find(file->gpu[i].model)->mig_profiles)
            return error_set(err, -EINVAL, "GPU %u is a %s, which has no MIG", i,
                             file->gpu[i].model);
        file->gpu[i].mig_enabled = file->gpu[i].mig_pending = 1;
        for (char *p = strtok_r(text + n, "+", &save); p; p = strtok_r(NULL, "+", &save)) {
            r = build_instance(&file->gpu[i], p, err);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

static int build_driver(const struct box_spec *spec, struct box_file *file,
                        struct allot_error *err) {
    const char *version = spec->driver ? spec->driver : drivers[0].driver;
    size_t i = 0;

    /* "535" is enough to say which. */
    while (i < ELEMENTSOF(drivers) && strncmp(drivers[i].driver, version, strlen(version)))
        i++;
    if (i == ELEMENTSOF(drivers) || !*version)
        return error_set(err, -EINVAL,
                         "driver %s is not modelled; there are 615, 580, 570, 550 and 535",
                         version);
    snprintf(file->driver_version, sizeof(file->driver_version), "%s", drivers[i].driver);
    snprintf(file->nvml_version, sizeof(file->nvml_version), "%u.%s", drivers[i].cuda / 1000,
             drivers[i].driver);
    file->cuda_driver_version = drivers[i].cuda;
    return 0;
}

static unsigned longest_list(const struct box_spec *spec) {
    const char *const lists[] = { spec->models, spec->memories, spec->uuids,
                                  spec->buses,  spec->minors,   spec->numa_nodes };
    unsigned n = 1;

    for (size_t i = 0; i < ELEMENTSOF(lists); i++)
        n = MAX(n, n_items(lists[i]));
    return n;
}

int spec_build(const struct box_spec *spec, struct box_file *ret, struct allot_error *err) {
    unsigned n_gpus = spec->n_gpus;
    uint64_t random = spec->seed;
    int r;

    if (!random && getrandom(&random, sizeof(random), 0) < 0)
        random = box_now_ns();
    /* A box with one model is named after it. */
    if (!n_gpus)
        n_gpus = longest_list(spec) > 1 ? longest_list(spec) : 4;
    if (longest_list(spec) > n_gpus)
        return error_set(err, -EINVAL, "a list of %u for %u GPUs", longest_list(spec), n_gpus);
    if (n_gpus > BOX_MAX_GPUS)
        return error_set(err, -EINVAL, "a box holds at most %d GPUs", BOX_MAX_GPUS);

    memset(ret, 0, sizeof(*ret));
    ret->n_gpus = n_gpus;
    ret->timing_only = spec->timing_only;
    ret->no_p2p = spec->no_p2p;
    ret->release_delay_ns = spec->release_delay_ns;
    ret->nvml_lag_ns = spec->nvml_lag_ns;
    if (snprintf(ret->dev_dir, sizeof(ret->dev_dir), "%s",
                 spec->dev_dir ? spec->dev_dir : "/dev") >= (int)sizeof(ret->dev_dir))
        return error_set(err, -EINVAL, "the folder of device nodes has too long a name");
    for (unsigned i = 0; i < n_gpus; i++) {
        r = build_gpu(spec, &ret->gpu[i], i, n_gpus, &random, err);
        if (r < 0)
            return r;
    }
    qsort(ret->gpu, n_gpus, sizeof(ret->gpu[0]), compare_bus);
    r = build_switches(spec, ret, err);
    if (r == 0)
        r = refuse_twins(ret, err);
    if (r == 0)
        r = build_links(spec, ret, err);
    if (r == 0)
        r = build_mig(spec, ret, err);
    if (r == 0)
        r = build_driver(spec, ret, err);
    return r;
}

int spec_create(const struct box_spec *spec, const char *path, unsigned mode,
                struct allot_error *err) {
    cleanup(freep) struct box_file *file = malloc(sizeof(*file));
    int r;

    if (!file)
        return error_set(err, -ENOMEM, "no host memory to make a box");
    r = spec_build(spec, file, err);
    if (r < 0)
        return r;
    return box_create(path, file, mode, err);
}

int spec_create_default(const char *path, struct allot_error *err) {
    return spec_create(&(struct box_spec){ .n_gpus = 4 }, path, 0600, err);
}
