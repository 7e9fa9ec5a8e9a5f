/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/selftest/visible_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/visible.h"
#include "ctl/selftest/row.h"
#include "ctl/source/nvml_box.h"
#include "driver/cuda.h"

#define LIST_SIZE   4096
#define GPUS_MAX    32 /* whose UUIDs fit a list */
#define CLOSED      3  /* exit status of a case: the driver could not be opened */
#define UUID_LENGTH 36

struct seen_box {
    struct visible_gpu gpus[GPUS_MAX];
    struct visible_mig migs[GPUS_MAX * 8];
    struct visible_box box;
};

int visible_rows_list(enum driver_choice choice) {
    const struct driver_options options = driver_options_read(choice);
    cleanup(cuda_closep) struct cuda *cuda = NULL;
    struct allot_error err = { 0 };
    int r = cuda_open(&cuda, &options, &err);

    if (r == -ENODEV)
        return EXIT_SUCCESS;
    for (int i = 0; r == 0 && i < cuda->n_devices; i++) {
        const unsigned char *b;
        CUdevice device;
        CUuuid uuid;

        r = cuda_device_get(cuda, &err, &device, i);
        if (r == 0)
            r = cuda_can(cuda, CUDA_CALL_device_get_uuid_v2)
                    ? cuda_device_get_uuid_v2(cuda, &err, &uuid, device)
                    : cuda_device_get_uuid(cuda, &err, &uuid, device);
        if (r < 0)
            break;
        b = (const unsigned char *)uuid.bytes;
        printf("%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n", b[0], b[1],
               b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
               b[15]);
    }
    if (r < 0)
        fprintf(stderr, "%s\n", err.text);
    return r < 0 ? CLOSED : EXIT_SUCCESS;
}

/* Run a case; -errno, or the exit status with what it printed. */
static int run_case(const char *devices, const char *order, char list[static LIST_SIZE]) {
    char self[] = "/proc/self/exe", verb[] = "see", *argv[] = { self, verb, NULL };
    size_t n = 0;
    ssize_t got;
    int fds[2], status;
    pid_t pid;

    if (pipe(fds) < 0)
        return -errno;
    pid = fork();
    if (pid == 0) {
        if (devices)
            setenv("CUDA_VISIBLE_DEVICES", devices, true);
        else
            unsetenv("CUDA_VISIBLE_DEVICES");
        if (order)
            setenv("CUDA_DEVICE_ORDER", order, true);
        else
            unsetenv("CUDA_DEVICE_ORDER");
        dup2(fds[1], STDOUT_FILENO);
        execv(self, argv);
        _exit(CLOSED);
    }
    close(fds[1]);
    while (pid > 0 && n < LIST_SIZE - 1 && (got = read(fds[0], list + n, LIST_SIZE - 1 - n)) > 0)
        n += (size_t)got;
    close(fds[0]);
    list[n] = '\0';
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return -errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -ECHILD;
}

/* Without "GPU-" or "MIG-": which of them it is the driver does not say. */
static const char *bare_uuid(const char *uuid) {
    return uuid && strlen(uuid) == 4 + UUID_LENGTH ? uuid + 4 : "?";
}

static void expect(const struct seen_box *seen, const char *devices, const char *order,
                   char list[static LIST_SIZE]) {
    const struct visible_env env = visible_env(devices, order);
    struct visible_list decided;
    char *to = list;

    *list = '\0';
    if (visible_decide(&decided, &seen->box, &env) < 0)
        return;
    for (size_t i = 0; i < decided.n_devices; i++) {
        const struct visible_device *d = &decided.devices[i];

        to = stpcpy(to, bare_uuid(d->mig == VISIBLE_WHOLE ? seen->gpus[d->gpu].uuid
                                                          : seen->migs[d->mig].uuid));
        to = stpcpy(to, "\n");
    }
}

static size_t count_lines(const char *list) {
    size_t n = 0;

    for (; *list; list++)
        n += *list == '\n';
    return n;
}

static void try_case(const struct seen_box *seen, const char *what, const char *devices,
                     const char *order) {
    char got[LIST_SIZE], wanted[LIST_SIZE];
    const int r = run_case(devices, order, got);

    expect(seen, devices, order, wanted);
    if (r != EXIT_SUCCESS)
        row_print(ROW_FAILED, "visibility", "send the transcript: the driver could not be asked",
                  "%s: exit status %d", what, r);
    else if (strcmp(got, wanted) != 0)
        row_print(ROW_FAILED, "visibility",
                  "send the transcript: allotd decides by rules that this driver does not have",
                  "%s: the driver shows %zu devices, Allot's rules give %zu, or different ones",
                  what, count_lines(got), count_lines(wanted));
    else
        row_print(ROW_PASSED, "visibility", NULL, "%s: %zu, as the driver shows them", what,
                  count_lines(got));
}

static bool read_box(struct seen_box *seen, const struct wire_box *box) {
    for (size_t i = 0; i < box->n_devices; i++) {
        const struct wire_device *d = &box->devices[i];
        struct visible_gpu *gpu = &seen->gpus[seen->box.n_gpus];

        if (d->kind == WIRE_DEVICE_MIG && seen->box.n_migs < ELEMENTSOF(seen->migs)) {
            struct visible_mig *mig = &seen->migs[seen->box.n_migs];

            for (mig->gpu = 0; mig->gpu < seen->box.n_gpus; mig->gpu++)
                if (d->parent && !strcmp(seen->gpus[mig->gpu].uuid, d->parent))
                    break;
            mig->uuid = d->uuid;
            mig->gpu_instance = (uint32_t)d->gpu_instance.value;
            mig->compute_instance = (uint32_t)d->compute_instance.value;
            seen->box.n_migs += mig->gpu < seen->box.n_gpus;
        } else if (d->kind == WIRE_DEVICE_GPU) {
            if (seen->box.n_gpus == GPUS_MAX || pci_id_parse(&gpu->pci, d->bus_id) < 0)
                return false;
            gpu->uuid = d->uuid;
            gpu->mig_enabled = d->mig_enabled;
            seen->box.n_gpus++;
        }
    }
    seen->box.gpus = seen->gpus;
    seen->box.migs = seen->migs;
    return seen->box.n_gpus > 0;
}

void visible_rows_try(enum driver_choice choice) {
    static const char bus[] = "PCI_BUS_ID";
    static const struct {
        const char *what, *devices;
        size_t n_gpus; /* that it needs to mean something */
    } cases[] = {
        { "not set", NULL, 1 },        { "empty", "", 1 },
        { "\"0\"", "0", 1 },           { "\"-1\"", "-1", 1 },
        { "\"0,99,0\"", "0,99,0", 1 }, { "\"99\"", "99", 1 },
        { "\"0,0\"", "0,0", 1 },       { "\" 0x\"", " 0x", 1 },
        { "a word", "nonsense", 1 },   { "\"1\"", "1", 2 },
        { "\"1,0\"", "1,0", 2 },       { "\"1,-1,0\"", "1,-1,0", 2 },
    };
    cleanup(nvml_box_freep) struct nvml_box *reading = NULL;
    static struct seen_box seen;
    struct allot_error err = { 0 };
    char list[LIST_SIZE];
    const char *uuid;
    int r;

    if (nvml_box_read(&reading, choice, &err) < 0) {
        row_print(ROW_FAILED, "visibility", "nvidia-smi must work first", "%s", err.text);
        return;
    }
    if (!read_box(&seen, nvml_box_get(reading))) {
        row_print(ROW_SKIPPED, "visibility", NULL, "no device, or more than %d", GPUS_MAX);
        return;
    }
    r = run_case(NULL, bus, list);
    if (r != EXIT_SUCCESS || !*list) {
        row_print(ROW_SKIPPED, "visibility", NULL,
                  "the cards are closed to programs without a lease, or CUDA cannot start here");
        return;
    }
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        if (seen.box.n_gpus >= cases[i].n_gpus)
            try_case(&seen, cases[i].what, cases[i].devices, bus);
    uuid = seen.gpus[seen.box.n_gpus - 1].uuid;
    try_case(&seen, "the last GPU's UUID", uuid, bus);
    try_case(&seen, "the last GPU's UUID, then a word",
             strncat(strcpy(list, uuid), ",word", LIST_SIZE - strlen(uuid) - 1), bus);
    snprintf(list, sizeof(list), "%.12s", uuid);
    try_case(&seen, "the beginning of a UUID", list, bus);
    /* In the driver's own order the first is the fastest: which that is, is the driver's to say. */
    r = run_case(NULL, NULL, list);
    row_print(r == EXIT_SUCCESS && *list ? ROW_PASSED : ROW_FAILED, "visibility",
              r == EXIT_SUCCESS && *list ? NULL : "send the transcript",
              "CUDA_DEVICE_ORDER not set: %zu devices", count_lines(list));
}
