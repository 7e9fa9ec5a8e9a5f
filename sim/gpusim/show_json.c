/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/gpusim/show_json.h"

#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/gpuid.h"
#include "base/safe_text.h"
#include "sim/box/box.h"
#include "sim/box/utilization.h"
#include "sim/box/charge.h"
#include "sim/box/mig.h"
#include "sim/box/proc.h"

/* Programs chose some of these texts, and json-c escapes only characters below U+0020. */
static void put_text(json_object *to, const char *key, const char *text) {
    char safe[PATH_MAX];

    safe_text_clean(safe, sizeof(safe), text, strlen(text));
    json_object_object_add(to, key, json_object_new_string(safe));
}

static void put_number(json_object *to, const char *key, uint64_t n) {
    json_object_object_add(to, key, json_object_new_uint64(n));
}

static void put_flag(json_object *to, const char *key, bool on) {
    json_object_object_add(to, key, json_object_new_boolean(on));
}

static json_object *put_list(json_object *to, const char *key) {
    json_object *list = json_object_new_array();

    json_object_object_add(to, key, list);
    return list;
}

static void put_memory(json_object *to, const struct box *box, struct box_part part) {
    struct charge_sums sums;

    charge_sums(box, part, &sums);
    put_number(to, "capacity_bytes", sums.capacity_bytes);
    put_number(to, "used_bytes", sums.used_bytes);
    put_number(to, "releasing_bytes", sums.releasing_bytes);
    put_number(to, "free_bytes", sums.free_bytes);
}

static void put_instances(json_object *to, const struct box *box, unsigned g) {
    json_object *list = put_list(to, "instances");

    for (unsigned i = 0; i < BOX_MAX_GI; i++) {
        const struct box_gi *gi = &box->file->gpu[g].gi[i];
        json_object *item, *devices;

        if (!gi->in_use)
            continue;
        item = json_object_new_object();
        json_object_array_add(list, item);
        put_number(item, "id", gi->id);
        put_memory(item, box, (struct box_part){ g, i + 1 });
        devices = put_list(item, "devices");
        for (unsigned c = 0; c < BOX_MAX_CI; c++) {
            json_object *device;
            char name[64];

            if (!gi->ci[c].in_use)
                continue;
            device = json_object_new_object();
            json_object_array_add(devices, device);
            mig_device_name(box_model(box, g), gi, &gi->ci[c], name, sizeof(name));
            put_number(device, "id", gi->ci[c].id);
            put_text(device, "uuid", gi->ci[c].uuid);
            put_text(device, "profile", name);
        }
    }
}

static json_object *gpu_object(struct box *box, unsigned g) {
    const struct box_gpu *gpu = &box->file->gpu[g];
    const struct pci_id pci = { gpu->pci_domain, gpu->pci_bus, gpu->pci_device, 0 };
    json_object *object = json_object_new_object(), *links;
    char bus[PCI_ID_TEXT_SIZE];
    struct utilization_readings readings;

    utilization_read(box, g, &readings);
    put_number(object, "index", g);
    put_text(object, "model", gpu->model);
    put_text(object, "name", box_model(box, g)->name);
    put_text(object, "uuid", gpu->uuid);
    put_text(object, "serial", gpu->serial);
    put_text(object, "bus_id", pci_id_format(&pci, PCI_ID_NVML, bus));
    put_number(object, "minor", gpu->minor);
    json_object_object_add(object, "numa_node", json_object_new_int(gpu->numa_node));
    put_number(object, "total_bytes", gpu->total_bytes);
    put_number(object, "reserved_bytes", gpu->reserved_bytes);
    put_number(object, "context_bytes", box_model(box, g)->context_bytes);
    put_memory(object, box, (struct box_part){ g, 0 });
    put_number(object, "utilization", readings.utilization);
    put_number(object, "temperature_c", readings.temperature_c);
    put_number(object, "power_mw", readings.power_mw);
    put_flag(object, "lost", gpu->lost);
    put_number(object, "last_xid", gpu->last_xid);
    put_number(object, "ecc_corrected", gpu->ecc.corrected_aggregate);
    put_number(object, "ecc_uncorrected", gpu->ecc.uncorrected_aggregate);
    put_flag(object, "mig", gpu->mig_enabled);
    put_instances(object, box, g);
    links = put_list(object, "nvlinks");
    for (unsigned i = 0; i < box->n_gpus; i++)
        json_object_array_add(links, json_object_new_int(gpu->nvlinks[i]));
    return object;
}

static void put_processes(json_object *to, struct box *box) {
    json_object *list = put_list(to, "processes");

    for (uint32_t i = 0; i < box->file->proc_high && i < BOX_MAX_PROCS; i++) {
        const struct box_proc *proc = &box->file->proc[i];
        json_object *item, *held;

        if (proc->state == PROC_FREE)
            continue;
        item = json_object_new_object();
        json_object_array_add(list, item);
        put_number(item, "pid", proc_visible_pid(box, i));
        put_number(item, "uid", proc->uid);
        put_text(item, "name", proc->name);
        put_flag(item, "releasing", proc->state == PROC_RELEASING);
        held = put_list(item, "held");
        for (unsigned g = 0; g < box->n_gpus; g++)
            for (unsigned p = 0; p < BOX_PARTS; p++) {
                const uint64_t bytes = charge_held(box, i, (struct box_part){ g, p });
                json_object *part;

                if (!bytes)
                    continue;
                part = json_object_new_object();
                json_object_array_add(held, part);
                put_number(part, "gpu", g);
                if (p)
                    put_number(part, "instance", box->file->gpu[g].gi[p - 1].id);
                put_number(part, "bytes", bytes);
            }
    }
}

static void put_faults(json_object *to, const struct box *box) {
    json_object *list = put_list(to, "faults");

    for (unsigned i = 0; i < BOX_MAX_FAULTS; i++) {
        const struct box_fault *fault = &box->file->fault[i];
        json_object *item;

        if (fault->kind == FAULT_NONE)
            continue;
        item = json_object_new_object();
        json_object_array_add(list, item);
        put_number(item, "id", fault->id);
        put_number(item, "hits", fault->hits);
        put_text(item, "call", fault->call);
    }
}

void show_json(struct box *box) {
    json_object *root = json_object_new_object(), *gpus;

    put_text(root, "path", box->path);
    put_text(root, "driver_version", box->file->driver_version);
    put_number(root, "cuda_driver_version", box->file->cuda_driver_version);
    put_flag(root, "timing_only", box->file->timing_only);
    gpus = put_list(root, "gpus");
    for (unsigned g = 0; g < box->n_gpus; g++)
        json_object_array_add(gpus, gpu_object(box, g));
    put_processes(root, box);
    put_faults(root, box);
    puts(json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
                                                  JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(root);
}
