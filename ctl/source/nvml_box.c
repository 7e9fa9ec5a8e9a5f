/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML box: NVML → struct wire_box.
 *
 * Strings live in one chain of blocks, freed together. A reading that a device does not support is
 * left out; only the loss of the whole driver ends the attempt.
 */
#include "ctl/source/nvml_box.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "ctl/source/proc_owner.h"
#include "driver/nvml.h"
#include "driver/nvml_process.h"
#include "driver/nvml_readings.h"
#include "driver/nvml_topology.h"
#include "wire/readings.h"

struct string {
    struct string *next;
    char text[];
};

struct nvml_box {
    struct wire_box box;
    struct nvml *nvml;
    struct wire_device *devices;
    struct wire_process *processes;
    size_t room_devices, room_processes;
    struct string *strings;
    bool failed; /* out of memory */
};

struct nvml_box *nvml_box_free(struct nvml_box *nvml_box) {
    if (!nvml_box)
        return NULL;
    nvml_close(nvml_box->nvml);
    while (nvml_box->strings) {
        struct string *next = nvml_box->strings->next;

        free(nvml_box->strings);
        nvml_box->strings = next;
    }
    free(nvml_box->devices);
    free(nvml_box->processes);
    free(nvml_box);
    return NULL;
}

const struct wire_box *nvml_box_get(const struct nvml_box *nvml_box) {
    return &nvml_box->box;
}

static const char *keep(struct nvml_box *nvml_box, const char *text) {
    struct string *string = malloc(sizeof(*string) + strlen(text) + 1);

    if (!string) {
        nvml_box->failed = true;
        return "";
    }
    strcpy(string->text, text);
    string->next = nvml_box->strings;
    nvml_box->strings = string;
    return string->text;
}

/* Make room for one more at the end of an array; NULL: out of memory. */
static void *more(struct nvml_box *nvml_box, void *array, size_t n, size_t *room, size_t size) {
    void *grown;

    if (n < *room)
        return array;
    grown = reallocarray(array, *room ? *room * 2 : 8, size);
    if (!grown) {
        nvml_box->failed = true;
        return NULL;
    }
    *room = *room ? *room * 2 : 8;
    return grown;
}

static struct wire_device *add_device(struct nvml_box *nvml_box) {
    struct wire_device *grown = more(nvml_box, nvml_box->devices, nvml_box->box.n_devices,
                                     &nvml_box->room_devices, sizeof(*nvml_box->devices));

    if (!grown)
        return NULL;
    nvml_box->devices = grown;
    grown += nvml_box->box.n_devices++;
    *grown =
        (struct wire_device){ .index = nvml_box->box.n_devices - 1, .state = WIRE_DEVICE_READY };
    return grown;
}

static int read_device(struct nvml_box *nvml_box, const struct nvml_device *device,
                       const char *parent, const char **ret_uuid, bool *ret_mig,
                       struct allot_error *err) {
    struct nvml_identity identity;
    struct readings readings = {};
    struct wire_device *d;
    char bus[PCI_ID_TEXT_SIZE];
    int r;

    r = nvml_identity_read(nvml_box->nvml, device, &identity, err);
    if (r < 0)
        return r;
    d = add_device(nvml_box);
    if (!d)
        return error_set(err, -ENOMEM, "out of memory");
    d->uuid = keep(nvml_box, identity.uuid);
    d->kind = parent ? WIRE_DEVICE_MIG : WIRE_DEVICE_GPU;
    d->parent = parent;
    d->bus_id = keep(nvml_box, pci_id_format(&identity.pci, PCI_ID_NVML, bus));
    d->name = keep(nvml_box, identity.name);
    r = nvml_readings_take(nvml_box->nvml, device, READINGS_ALL, &readings, err);
    if (r < 0) {
        d->state = WIRE_DEVICE_LOST;
        d->reason = err ? keep(nvml_box, err->text) : NULL;
    }
    nvml_readings_identify(&readings, &identity);
    wire_readings_fill(d, &readings);
    d->total_bytes = readings.total_bytes;
    d->reserved_bytes = readings.reserved_bytes;
    d->usable_bytes = d->total_bytes - MIN(d->reserved_bytes, d->total_bytes);
    d->unmanaged_bytes = MIN(readings.used_bytes, d->usable_bytes);
    d->free_bytes = d->usable_bytes - d->unmanaged_bytes;
    d->mig_enabled = readings.mig_enabled;
    *ret_uuid = d->uuid;
    *ret_mig = d->mig_enabled;
    return 0;
}

static void add_process(struct nvml_box *nvml_box, const char *uuid,
                        const struct nvml_process *seen) {
    struct wire_process *p = more(nvml_box, nvml_box->processes, nvml_box->box.n_processes,
                                  &nvml_box->room_processes, sizeof(*nvml_box->processes));
    struct proc_owner owner;

    if (!p)
        return;
    nvml_box->processes = p;
    p += nvml_box->box.n_processes++;
    proc_owner_read(&owner, seen->pid);
    *p = (struct wire_process){
        .pid = seen->pid,
        .command = keep(nvml_box, owner.command),
        .device = uuid,
        .kind = seen->kinds & NVML_GRAPHICS
                    ? (seen->kinds & (NVML_COMPUTE | NVML_MPS) ? WIRE_PROCESS_BOTH
                                                               : WIRE_PROCESS_GRAPHICS)
                    : WIRE_PROCESS_COMPUTE,
    };
    if (seen->has_used)
        p->used_bytes = wire_some(seen->used_bytes);
    if (owner.has_uid) {
        p->uid = wire_some(owner.uid);
        p->user = keep(nvml_box, owner.user);
    }
    if (owner.has_namespace_pid)
        p->namespace_pid = wire_some(owner.namespace_pid);
    if (*owner.container)
        p->container = keep(nvml_box, owner.container);
}

static void read_processes(struct nvml_box *nvml_box, const struct nvml_device *device,
                           const char *uuid, const struct nvml_mig *migs, size_t n_migs,
                           const char *const *mig_uuids) {
    cleanup(freep) struct nvml_process *processes = NULL;
    size_t n = 0;

    /* If the driver cannot list processes the list stays empty: the device's own numbers are still
     * valid. */
    if (nvml_process_list(nvml_box->nvml, device, &processes, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n && !nvml_box->failed; i++) {
        const char *where = uuid;

        for (size_t mig = 0; mig < n_migs; mig++)
            if (processes[i].gpu_instance == migs[mig].gpu_instance &&
                (processes[i].compute_instance == migs[mig].compute_instance ||
                 processes[i].compute_instance == NVML_NO_INSTANCE))
                where = mig_uuids[mig];
        add_process(nvml_box, where, &processes[i]);
    }
}

static int read_gpu(struct nvml_box *nvml_box, unsigned index, struct allot_error *err) {
    cleanup(freep) struct nvml_mig *migs = NULL;
    cleanup(freep) const char **mig_uuids = NULL;
    struct nvml_device device;
    const char *uuid, *mig_uuid;
    size_t n_migs = 0;
    bool in_mig_mode, unused;
    int r;

    r = nvml_device_at(nvml_box->nvml, &device, index, err);
    if (r < 0)
        return r;
    r = read_device(nvml_box, &device, NULL, &uuid, &in_mig_mode, err);
    if (r < 0)
        return r;
    if (in_mig_mode &&
        nvml_topology_list_migs(nvml_box->nvml, &device, &migs, &n_migs, NULL) == 0 && n_migs) {
        mig_uuids = calloc(n_migs, sizeof(*mig_uuids));
        if (!mig_uuids)
            return error_set(err, -ENOMEM, "out of memory");
        for (size_t i = 0; i < n_migs; i++) {
            r = read_device(nvml_box, &migs[i].device, uuid, &mig_uuid, &unused, err);
            if (r < 0)
                return r;
            mig_uuids[i] = mig_uuid;
        }
    }
    read_processes(nvml_box, &device, uuid, migs, n_migs, mig_uuids);
    return 0;
}

int nvml_box_read(struct nvml_box **ret, enum driver_choice choice, struct allot_error *err) {
    const struct driver_options options = driver_options_read(choice);
    cleanup(nvml_box_freep) struct nvml_box *nvml_box = calloc(1, sizeof(*nvml_box));
    char host[256] = "localhost";
    struct nvml_system system;
    unsigned n;
    int r;

    if (!nvml_box)
        return error_set(err, -ENOMEM, "out of memory");
    r = nvml_open(&nvml_box->nvml, &options, err);
    if (r < 0)
        return r;
    gethostname(host, sizeof(host) - 1);
    nvml_box->box.host = keep(nvml_box, host);
    nvml_box->box.driver = nvml_is_simulated(nvml_box->nvml) ? "sim" : "nvidia";
    nvml_box->box.version = "";
    nvml_box->box.mode = WIRE_BOX_OPEN;
    if (nvml_system_read(nvml_box->nvml, &system, NULL) == 0)
        nvml_box->box.driver_version = keep(nvml_box, system.driver);
    r = nvml_device_count(nvml_box->nvml, &n, err);
    if (r < 0)
        return r;
    for (unsigned i = 0; i < n; i++) {
        struct allot_error why = {};

        r = read_gpu(nvml_box, i, &why);
        if (r == -ENOMEM || nvml_box->failed)
            return error_set(err, -ENOMEM, "out of memory");
        if (r < 0) {
            /* NVML counts it but cannot open it: show it as lost. */
            struct wire_device *d = add_device(nvml_box);

            if (!d)
                return error_set(err, -ENOMEM, "out of memory");
            d->kind = WIRE_DEVICE_GPU;
            d->uuid = d->bus_id = "";
            d->name = "N/A";
            d->state = WIRE_DEVICE_LOST;
            d->reason = keep(nvml_box, why.text);
        }
    }
    nvml_box->box.devices = nvml_box->devices;
    nvml_box->box.processes = nvml_box->processes;
    *ret = TAKE(nvml_box);
    return 0;
}
