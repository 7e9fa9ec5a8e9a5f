/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/gpuid.h"
#include "base/safe_text.h"
#include "base/units.h"
#include "sim/box/utilization.h"
#include "sim/box/charge.h"
#include "sim/gpusim/gpusim.h"
#include "sim/gpusim/show_json.h"
#include "sim/box/mig.h"
#include "sim/box/proc.h"

#define BAR_WIDTH 20

static const struct option options[] = {
    { "help", no_argument, NULL, 'h' },
    { "box", required_argument, NULL, 'b' },
    { "json", no_argument, NULL, 'j' },
    { 0 },
};

/* "[#####.....] 12.3 GiB of 39.5 GiB": used, and = for what ended processes still keep. */
static void print_memory(const struct charge_sums *sums) {
    char used[UNITS_TEXT_SIZE], capacity[UNITS_TEXT_SIZE], bar[BAR_WIDTH + 1];
    const uint64_t whole = MAX(sums->capacity_bytes, (uint64_t)1);
    const unsigned full = (sums->used_bytes * BAR_WIDTH + whole - 1) / whole;
    const unsigned held =
        ((sums->used_bytes - sums->releasing_bytes) * BAR_WIDTH + whole - 1) / whole;

    for (unsigned i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < held ? '#' : i < full ? '=' : '.';
    bar[BAR_WIDTH] = 0;
    printf("[%s] %s of %s", bar, units_format_bytes(sums->used_bytes, used),
           units_format_bytes(sums->capacity_bytes, capacity));
}

static void print_health(const struct box_gpu *gpu) {
    if (gpu->lost)
        printf("  LOST");
    if (gpu->last_xid)
        printf("  Xid %u", gpu->last_xid);
    if (gpu->ecc.corrected_aggregate || gpu->ecc.uncorrected_aggregate)
        printf("  ECC %" PRIu64 " corrected, %" PRIu64 " not", gpu->ecc.corrected_aggregate,
               gpu->ecc.uncorrected_aggregate);
    if (!gpu->lost && !gpu->last_xid && !gpu->ecc.uncorrected_aggregate)
        printf("  healthy");
}

static void print_links(const struct box *box, unsigned gpu) {
    bool any = false;

    for (unsigned i = 0; i < box->n_gpus; i++) {
        if (!box->file->gpu[gpu].nvlinks[i])
            continue;
        printf("%s GPU %u x%u", any ? "," : "     NVLink to", i, box->file->gpu[gpu].nvlinks[i]);
        any = true;
    }
    if (any)
        printf("\n");
}

static void print_instances(const struct box *box, unsigned g) {
    const struct box_gpu *gpu = &box->file->gpu[g];

    for (unsigned i = 0; i < BOX_MAX_GI; i++) {
        const struct box_gi *gi = &gpu->gi[i];
        struct charge_sums sums;

        if (!gi->in_use)
            continue;
        charge_sums(box, (struct box_part){ g, i + 1 }, &sums);
        printf("     instance %u  ", gi->id);
        print_memory(&sums);
        printf("\n");
        for (unsigned c = 0; c < BOX_MAX_CI; c++) {
            char name[64];

            if (!gi->ci[c].in_use)
                continue;
            mig_device_name(box_model(box, g), gi, &gi->ci[c], name, sizeof(name));
            printf("       MIG %-12s compute instance %u  %s\n", name, gi->ci[c].id,
                   gi->ci[c].uuid);
        }
    }
}

static void print_gpu(struct box *box, unsigned g) {
    const struct box_gpu *gpu = &box->file->gpu[g];
    const struct pci_id pci = { gpu->pci_domain, gpu->pci_bus, gpu->pci_device, 0 };
    char bus[PCI_ID_TEXT_SIZE];
    struct utilization_readings readings;
    struct charge_sums sums;

    utilization_read(box, g, &readings);
    charge_sums(box, (struct box_part){ g, 0 }, &sums);
    printf("\n%3u  %-12s %s  minor %u  NUMA %d%s", g, gpu->model,
           pci_id_format(&pci, PCI_ID_NVML, bus), gpu->minor, gpu->numa_node,
           gpu->mig_enabled ? "  MIG" : "");
    print_health(gpu);
    printf("\n     %s\n", gpu->uuid);
    if (!gpu->mig_enabled) {
        printf("     ");
        print_memory(&sums);
        printf("\n");
    }
    printf("     %u%% busy  %u C  %u.%u W  %u MHz\n", readings.utilization, readings.temperature_c,
           readings.power_mw / 1000, readings.power_mw % 1000 / 100, readings.sm_clock_mhz);
    print_links(box, g);
    print_instances(box, g);
}

static void print_processes(struct box *box) {
    bool any = false;

    for (uint32_t i = 0; i < box->file->proc_high && i < BOX_MAX_PROCS; i++) {
        const struct box_proc *proc = &box->file->proc[i];
        const struct passwd *user = getpwuid(proc->uid);
        char uid[16], text[UNITS_TEXT_SIZE], name[sizeof(proc->name)];

        if (proc->state == PROC_FREE)
            continue;
        if (!any)
            printf("\n  pid      user        GPU  memory      program\n");
        any = true;
        snprintf(uid, sizeof(uid), "%u", proc->uid);
        safe_text_clean(name, sizeof(name), proc->name, strlen(proc->name));
        for (unsigned g = 0; g < box->n_gpus; g++)
            for (unsigned p = 0; p < BOX_PARTS; p++) {
                const uint64_t bytes = charge_held(box, i, (struct box_part){ g, p });
                char instance[8] = "";

                if (!bytes)
                    continue;
                if (p)
                    snprintf(instance, sizeof(instance), ":%u", box->file->gpu[g].gi[p - 1].id);
                printf("  %-8d %-10s %3u%-2s %-11s %s%s\n", (int)proc_visible_pid(box, i),
                       user ? user->pw_name : uid, g, instance, units_format_bytes(bytes, text),
                       name, proc->state == PROC_RELEASING ? " (ended, releasing)" : "");
            }
    }
}

static void print_troubles(const struct box *box) {
    static const char *const kinds[] = { "none", "slow",        "hang",
                                         "fail", "alloc-after", "alloc-random" };

    for (unsigned i = 0; i < BOX_MAX_FAULTS; i++) {
        const struct box_fault *fault = &box->file->fault[i];

        if (fault->kind == FAULT_NONE || fault->kind >= ELEMENTSOF(kinds))
            continue;
        printf("\n  fault %u: %s %s", fault->id, kinds[fault->kind], fault->call);
        if (fault->kind == FAULT_CALL_FAIL)
            printf(" with %d", fault->code);
        if (fault->gpu >= 0)
            printf(" on GPU %d", fault->gpu);
        printf(", struck %" PRIu64 " times", fault->hits);
    }
    for (unsigned i = 0; i < BOX_MAX_LIMITS; i++) {
        const struct box_limit *limit = &box->file->limit[i];
        char text[UNITS_TEXT_SIZE], cgroup[sizeof(limit->cgroup)];

        if (!limit->in_use)
            continue;
        safe_text_clean(cgroup, sizeof(cgroup), limit->cgroup, strlen(limit->cgroup));
        printf("\n  limit on GPU %u: %s for cgroup %s", limit->gpu,
               units_format_bytes(limit->hard_bytes, text), cgroup);
    }
}

static void print_text(struct box *box) {
    const struct box_file *file = box->file;
    char delay[UNITS_TEXT_SIZE];

    printf("box %s: %u %s, driver %s, CUDA %u.%u%s\n", box->path, box->n_gpus,
           box->n_gpus == 1 ? "GPU" : "GPUs", file->driver_version,
           file->cuda_driver_version / 1000, file->cuda_driver_version % 1000 / 10,
           file->timing_only ? ", timing only" : "");
    if (file->release_delay_ns)
        printf("memory of ended processes stays taken for %s\n",
               units_format_usec(file->release_delay_ns / 1000, delay));
    if (file->nvml_lag_ns)
        printf("NVML's readings of memory lag by %s\n",
               units_format_usec(file->nvml_lag_ns / 1000, delay));
    for (unsigned g = 0; g < box->n_gpus; g++)
        print_gpu(box, g);
    print_processes(box);
    print_troubles(box);
    printf("\n");
}

static int run(int argc, char **argv) {
    struct allot_error err = { 0 };
    const char *given = NULL;
    bool json = false;
    struct box *box;
    int c, r;

    opterr = 0; /* one message is enough: ours */
    while ((c = getopt_long(argc, argv, "hb:j", options, NULL)) >= 0) {
        if (c == 'h')
            return gpusim_print_help(&verb_show);
        if (c == '?')
            return gpusim_complain_usage(
                &verb_show, "no such option, or its argument is missing: %s", argv[optind - 1]);
        if (c == 'j')
            json = true;
        else
            given = optarg;
    }
    if (optind < argc)
        return gpusim_complain_usage(&verb_show, "unexpected argument \"%s\"", argv[optind]);
    if (gpusim_open_locked(&box, given, &err) < 0)
        return gpusim_complain(&err);
    r = box_check(box, &err);
    if (r == 0 && json)
        show_json(box);
    else if (r == 0)
        print_text(box);
    box_unlock(box);
    box_free(box);
    return r < 0 ? gpusim_complain(&err) : EXIT_SUCCESS;
}

const struct gpusim_verb verb_show = {
    .name = "show",
    .summary = "show the box: GPUs, processes and their memory, faults",
    .help = "usage: gpusim show [--box FILE] [--json]\n"
            "\n"
            "In the bars # is memory held, = memory of ended processes that the driver still\n"
            "has to release. --json prints the same as data; docs/simulator.md explains it.\n",
    .run = run,
};
