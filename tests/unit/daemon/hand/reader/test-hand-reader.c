/* SPDX-License-Identifier: Apache-2.0 */
/* The reader over a simulated NVML: its rows, and what becomes of devices that fail, close and come
 * back. */
#include "daemon/hand/reader/nvml_reader.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/box/fault.h"
#include "tests/support/sim/nvml/nvml_library.h"
#include "tests/support/suite.h"

#define MIB (UINT64_C(1) << 20)

struct bench {
    struct sim_box s;
    struct nvml_reader *reader;
    struct hand_sampled sampled;
    struct allot_error err;
    unsigned n_devices, n_processes;
    struct sample_device devices[16];
    struct sample_process processes[16];
    int refuse_device, refuse_process; /* what the sink answers */
    pthread_mutex_t lock;
    pthread_cond_t told;
    unsigned n_events;
    struct sample_event events[16];
};

static int got_device(void *userdata, const struct sample_device *device) {
    struct bench *bench = userdata;

    ck_assert_uint_lt(bench->n_devices, ELEMENTSOF(bench->devices));
    bench->devices[bench->n_devices++] = *device;
    return bench->refuse_device;
}

static int got_process(void *userdata, const struct sample_process *process) {
    struct bench *bench = userdata;

    ck_assert_uint_lt(bench->n_processes, ELEMENTSOF(bench->processes));
    bench->processes[bench->n_processes++] = *process;
    return bench->refuse_process;
}

static void got_event(void *userdata, const struct sample_event *event) {
    struct bench *bench = userdata;

    pthread_mutex_lock(&bench->lock);
    bench->events[bench->n_events++ % ELEMENTSOF(bench->events)] = *event;
    pthread_cond_signal(&bench->told);
    pthread_mutex_unlock(&bench->lock);
}

static void wait_events(struct bench *bench, unsigned n) {
    pthread_mutex_lock(&bench->lock);
    while (bench->n_events < n)
        pthread_cond_wait(&bench->told, &bench->lock);
    pthread_mutex_unlock(&bench->lock);
}

static void start(struct bench *bench, const struct box_spec *spec) {
    const struct nvml_reader_sink sink = { bench, got_device, got_process, got_event };

    memset(bench, 0, sizeof(*bench));
    pthread_mutex_init(&bench->lock, NULL);
    pthread_cond_init(&bench->told, NULL);
    sim_box_init(&bench->s, spec);
    setenv("ALLOT_SIM_DIR", SIM_LIB_DIR, 1);
    ck_assert_int_eq(nvml_reader_new(&bench->reader, DRIVER_SIM, &sink), 0);
}

static void finish(struct bench *bench) {
    ck_assert_ptr_null(nvml_reader_free(bench->reader));
    ck_assert_ptr_null(nvml_reader_free(NULL));
    sim_box_done(&bench->s);
}

static int sample(struct bench *bench) {
    bench->n_devices = bench->n_processes = 0;
    memset(&bench->sampled, 0, sizeof(bench->sampled));
    return nvml_reader_sample(bench->reader, &bench->sampled, &bench->err);
}

#define SAMPLE(bench) ck_assert_msg(sample(bench) == 0, "%s", (bench)->err.text)

static uint32_t fail_call(struct bench *bench, const char *call, int gpu, int code) {
    struct box_fault fault = { .kind = FAULT_CALL_FAIL, .gpu = gpu, .code = code };
    uint32_t id;

    snprintf(fault.call, sizeof(fault.call), "%s", call);
    ck_assert_int_ge(box_lock(bench->s.box), 0);
    ck_assert_int_eq(fault_add(bench->s.box, &fault, &id), 0);
    box_unlock(bench->s.box);
    return id;
}

static void mend(struct bench *bench, uint32_t id) {
    ck_assert_int_ge(box_lock(bench->s.box), 0);
    ck_assert_int_eq(fault_clear(bench->s.box, id), 0);
    box_unlock(bench->s.box);
}

static void inject(struct bench *bench, void (*what)(struct box *box, unsigned gpu), unsigned gpu) {
    ck_assert_int_ge(box_lock(bench->s.box), 0);
    what(bench->s.box, gpu);
    box_unlock(bench->s.box);
}

START_TEST(rows_say_what_nvml_says) {
    struct box_spec spec = { .models = "h100-80g,t4-16g",
                             .buses = "81:00.0,3b:00.0",
                             .minors = "2,7",
                             .numa_nodes = "1,0",
                             .nvlink = "none" };
    struct nvml_library_hold hold = { .part = { .gpu = 1 }, .bytes = 64 * MIB, .busy_percent = 70 };
    struct bench bench;
    uint64_t used = 0;
    pid_t pid;

    start(&bench, &spec);
    SAMPLE(&bench);
    ck_assert_uint_eq(bench.n_devices, 2);
    ck_assert_uint_eq(bench.n_processes, 0);
    ck_assert_uint_eq(bench.sampled.n_listed, 2);
    ck_assert_uint_eq(bench.sampled.is_simulated, 1);
    ck_assert_uint_eq(bench.sampled.cut, 0);
    ck_assert_uint_gt(bench.sampled.cuda_version, 11000);
    ck_assert_uint_gt(bench.sampled.taken_usec, 0);
    ck_assert_str_eq(bench.sampled.list_trouble, "");
    for (unsigned i = 0; i < 2; i++) {
        const struct sample_device *device = &bench.devices[i];

        ck_assert_uint_eq(device->index, i); /* bus order */
        ck_assert_uint_eq(device->pci.bus, i ? 0x81 : 0x3b);
        ck_assert_uint_eq(device->readings.minor, i ? 2 : 7);
        ck_assert_uint_eq(device->readings.numa, i);
        ck_assert(gpuid_equal(&device->id, &device->parent));
        ck_assert_uint_eq(device->total_bytes, device->readings.total_bytes);
        ck_assert_uint_eq(device->reserved_bytes, device->readings.reserved_bytes);
        ck_assert_uint_gt(device->reserved_bytes, 0);
        ck_assert_uint_eq(device->n_links, 1);
        ck_assert(gpuid_equal(&device->links[0].remote, &bench.devices[1 - i].id));
        ck_assert_int_ne(device->links[0].path, SAMPLE_PATH_NVLINK);
        ck_assert_uint_eq(device->links[0].lanes, 0);
        ck_assert_int_eq(device->health, SAMPLE_OK);
        ck_assert(!device->mig_enabled && !device->is_mig);
    }
    pid = nvml_library_hold(&bench.s, &hold);
    SAMPLE(&bench);
    ck_assert_uint_eq(bench.n_processes, 1);
    ck_assert_int_eq(bench.processes[0].pid, pid);
    ck_assert_uint_eq(bench.processes[0].kinds, SAMPLE_COMPUTE);
    ck_assert(bench.processes[0].has_used && bench.processes[0].has_busy);
    ck_assert_uint_eq(bench.processes[0].used_bytes, 64 * MIB);
    ck_assert_uint_gt(bench.processes[0].busy, 0);
    ck_assert(gpuid_equal(&bench.processes[0].device, &bench.devices[1].id));

    ck_assert_int_eq(nvml_reader_used(bench.reader, &bench.devices[1].id, pid, &used, &bench.err),
                     0);
    ck_assert_uint_eq(used, 64 * MIB);
    ck_assert_int_eq(nvml_reader_used(bench.reader, &bench.devices[0].id, pid, &used, &bench.err),
                     -ENOENT);
    ck_assert_int_eq(
        nvml_reader_used(bench.reader, &bench.devices[1].id, getpid(), &used, &bench.err), -ENOENT);
    ck_assert_int_eq(
        nvml_reader_used(bench.reader, &(struct gpuid){ .uuid = { 9 } }, pid, &used, &bench.err),
        -ENODEV);

    bench.refuse_process = -EPIPE; /* nobody listens any more */
    ck_assert_int_eq(sample(&bench), -EPIPE);
    ck_assert_uint_eq(bench.n_devices, 1);
    bench.refuse_process = 0;
    bench.refuse_device = -EPIPE;
    ck_assert_int_eq(sample(&bench), -EPIPE);
    ck_assert_uint_eq(bench.n_devices, 1);
    bench.refuse_device = 0;
    SAMPLE(&bench);
    ck_assert_uint_eq(bench.n_devices, 2);
    sim_box_kill(pid);
    finish(&bench);
}
END_TEST

START_TEST(links_are_lanes_and_paths) {
    struct box_spec spec = { .n_gpus = 4, .models = "a100-40g", .nvlink = "pairs" };
    struct bench bench;

    start(&bench, &spec);
    for (int round = 0; round < 2; round++) {
        SAMPLE(&bench);
        for (unsigned i = 0; i < 4; i++) {
            ck_assert_uint_eq(bench.devices[i].n_links, 3);
            for (unsigned j = 0; j < 3; j++) {
                const struct sample_link *link = &bench.devices[i].links[j];
                bool is_pair = gpuid_equal(&link->remote, &bench.devices[i ^ 1].id);

                ck_assert_int_eq(link->path == SAMPLE_PATH_NVLINK, is_pair);
                ck_assert_int_eq(link->lanes > 0, is_pair);
                ck_assert(!gpuid_equal(&link->remote, &bench.devices[i].id));
            }
        }
        /* The links of one that is closed stay as they were. */
        ck_assert_int_eq(nvml_reader_close(bench.reader, &bench.devices[3].id, true, &bench.err),
                         0);
    }
    finish(&bench);
}
END_TEST

START_TEST(through_switches_all_links_lead_to_each_gpu) {
    struct box_spec spec = { .n_gpus = 3, .models = "h100-80g", .nvlink = "all" };
    uint32_t faults[3];
    struct bench bench;

    start(&bench, &spec);
    SAMPLE(&bench);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_uint_eq(bench.devices[i].n_links, 2);
        for (unsigned j = 0; j < 2; j++) {
            ck_assert_int_eq(bench.devices[i].links[j].path, SAMPLE_PATH_NVLINK);
            ck_assert_uint_eq(bench.devices[i].links[j].lanes, 18);
        }
    }
    finish(&bench);

    /* Where no link can be had, or who is behind the switch is not said, there is the bus. */
    for (unsigned round = 0; round < 2; round++) {
        start(&bench, &spec);
        for (int i = 0; i < 3; i++)
            faults[i] = fail_call(
                &bench, round ? "nvmlDeviceGetP2PStatus" : "nvmlDeviceGetNvLinkState", i, 999);
        SAMPLE(&bench);
        for (unsigned i = 0; i < 3; i++) {
            ck_assert_uint_eq(bench.devices[i].n_links, 2);
            for (unsigned j = 0; j < 2; j++) {
                ck_assert_int_ne(bench.devices[i].links[j].path, SAMPLE_PATH_NVLINK);
                ck_assert_uint_eq(bench.devices[i].links[j].lanes, 0);
            }
        }
        for (unsigned i = 0; i < 3; i++)
            mend(&bench, faults[i]);
        finish(&bench);
    }
}
END_TEST

START_TEST(instances_follow_their_gpu) {
    struct box_spec spec = {
        .n_gpus = 2, .models = "a100-40g", .minors = "4,5", .mig = "0:3g.20gb+3g.20gb"
    };
    struct nvml_library_hold hold = { .part = { .gpu = 0, .part = 1 }, .bytes = 64 * MIB };
    struct bench bench;
    uint64_t used = 0;
    pid_t pid;

    start(&bench, &spec);
    pid = nvml_library_hold(&bench.s, &hold);
    for (int round = 0; round < 2; round++) {
        SAMPLE(&bench);
        ck_assert_uint_eq(bench.n_devices, 4);
        ck_assert_uint_eq(bench.sampled.n_listed, 3); /* not the divided one itself */
        ck_assert(bench.devices[0].mig_enabled && !bench.devices[0].is_mig);
        ck_assert(!bench.devices[3].mig_enabled && !bench.devices[3].is_mig);
        for (unsigned i = 1; i <= 2; i++) {
            ck_assert(bench.devices[i].is_mig && !bench.devices[i].mig_enabled);
            ck_assert_uint_eq(bench.devices[i].place, i - 1);
            ck_assert_uint_eq(bench.devices[i].index, 0);
            ck_assert(READINGS_HAVE(&bench.devices[i].readings, minor));
            ck_assert_uint_eq(bench.devices[i].readings.minor, 4);
            ck_assert_uint_eq(READINGS_HAVE(&bench.devices[i].readings, numa),
                              READINGS_HAVE(&bench.devices[0].readings, numa));
            ck_assert_uint_eq(bench.devices[i].n_links, 0);
            ck_assert(gpuid_equal(&bench.devices[i].parent, &bench.devices[0].id));
            ck_assert_int_eq(
                memcmp(&bench.devices[i].pci, &bench.devices[0].pci, sizeof(struct pci_id)), 0);
        }
        ck_assert_uint_ne(bench.devices[1].gpu_instance, bench.devices[2].gpu_instance);
        ck_assert_uint_eq(bench.n_processes, 1);
        ck_assert(gpuid_equal(&bench.processes[0].device, &bench.devices[1].id));
    }
    ck_assert_int_eq(nvml_reader_used(bench.reader, &bench.devices[1].id, pid, &used, &bench.err),
                     0);
    ck_assert_uint_eq(used, 64 * MIB);
    ck_assert_int_eq(nvml_reader_close(bench.reader, &bench.devices[1].id, true, &bench.err),
                     -ENOENT); /* GPUs alone are closed */
    ck_assert_int_eq(nvml_reader_close(bench.reader, &bench.devices[0].id, true, &bench.err), 0);
    SAMPLE(&bench);
    ck_assert_uint_eq(bench.n_devices, 4);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(bench.devices[i].health, SAMPLE_CLOSED);
    ck_assert_int_eq(bench.devices[3].health, SAMPLE_OK);
    ck_assert_uint_eq(bench.n_processes, 0);
    sim_box_kill(pid);
    finish(&bench);
}
END_TEST

START_TEST(a_closed_gpu_is_named_and_not_read) {
    struct bench bench;
    struct gpuid gpu;
    uint64_t used;

    start(&bench, NULL);
    ck_assert_int_eq(nvml_reader_close(bench.reader, &(struct gpuid){ 0 }, true, &bench.err),
                     -ENOENT);
    ck_assert_ptr_nonnull(strstr(bench.err.text, "there is no GPU GPU-0000"));
    SAMPLE(&bench);
    gpu = bench.devices[0].id;
    for (int round = 0; round < 2; round++) { /* the second time changes nothing */
        ck_assert_int_eq(nvml_reader_close(bench.reader, &gpu, true, &bench.err), 0);
        SAMPLE(&bench);
        ck_assert_uint_eq(bench.n_devices, 2);
        ck_assert_int_eq(bench.devices[0].health, SAMPLE_CLOSED);
        ck_assert_str_ne(bench.devices[0].trouble, "");
        ck_assert_uint_eq(bench.devices[0].readings.has, READINGS_BIT(minor) | READINGS_BIT(numa));
        ck_assert(gpuid_equal(&bench.devices[0].id, &gpu));
        ck_assert_uint_eq(bench.devices[0].n_links, 1);
        ck_assert_int_eq(bench.devices[1].health, SAMPLE_OK);
        ck_assert_uint_eq(bench.devices[1].index, 1);
        ck_assert_uint_eq(bench.devices[1].n_links, 1);
        ck_assert_uint_eq(bench.sampled.n_listed, 1);
        ck_assert_int_eq(nvml_reader_used(bench.reader, &gpu, 1, &used, &bench.err), -ENODEV);
    }
    ck_assert_int_eq(nvml_reader_close(bench.reader, &gpu, false, &bench.err), 0);
    SAMPLE(&bench);
    ck_assert_int_eq(bench.devices[0].health, SAMPLE_OK);
    ck_assert_uint_eq(bench.sampled.n_listed, 2);
    finish(&bench);
}
END_TEST

START_TEST(a_successor_knows_what_it_was_told) {
    struct bench bench, next;
    struct sample_device gone;

    start(&bench, NULL);
    SAMPLE(&bench);
    next = bench;
    ck_assert_int_eq(
        nvml_reader_new(&next.reader, DRIVER_SIM,
                        &(struct nvml_reader_sink){ &next, got_device, got_process, got_event }),
        0);
    for (unsigned i = 0; i < 2; i++)
        nvml_reader_know(next.reader, &bench.devices[i]);
    ck_assert_int_eq(nvml_reader_close(next.reader, &bench.devices[1].id, true, &next.err), 0);
    SAMPLE(&next);
    ck_assert_uint_eq(next.n_devices, 2);
    ck_assert_int_eq(next.devices[0].health, SAMPLE_OK);
    ck_assert_int_eq(next.devices[1].health, SAMPLE_CLOSED);
    ck_assert_str_eq(next.devices[1].name, bench.devices[1].name);
    /* One that has another's place on the bus now is lost. */
    gone = bench.devices[0];
    gone.id.uuid[0]++;
    nvml_reader_know(next.reader, &gone);
    ck_assert_int_eq(nvml_reader_close(next.reader, &bench.devices[1].id, false, &next.err), 0);
    ck_assert_int_eq(nvml_reader_close(next.reader, &bench.devices[1].id, true, &next.err), 0);
    SAMPLE(&next);
    ck_assert_uint_eq(next.n_devices, 3);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(next.devices[i].health,
                         gpuid_equal(&next.devices[i].id, &gone.id)               ? SAMPLE_LOST
                         : gpuid_equal(&next.devices[i].id, &bench.devices[1].id) ? SAMPLE_CLOSED
                                                                                  : SAMPLE_OK);
    nvml_reader_free(next.reader);
    finish(&bench);
}
END_TEST

START_TEST(a_gpu_that_fails_is_told_from_one_that_is_lost) {
    struct bench bench;
    struct gpuid gpu;
    uint32_t id;
    unsigned n;

    start(&bench, NULL);
    SAMPLE(&bench);
    gpu = bench.devices[0].id;
    nvml_reader_close(bench.reader, &gpu, true, NULL); /* all is identified anew */
    nvml_reader_close(bench.reader, &gpu, false, NULL);
    id = fail_call(&bench, "nvmlDeviceGetUUID", 0, NVML_ERROR_NO_PERMISSION);
    SAMPLE(&bench);
    ck_assert_uint_eq(bench.n_devices, 2);
    ck_assert_int_eq(bench.devices[0].health, SAMPLE_FAILED);
    ck_assert_uint_eq(bench.devices[0].readings.has, 0);
    ck_assert_str_ne(bench.devices[0].trouble, "");
    ck_assert_int_eq(bench.devices[1].health, SAMPLE_OK);
    ck_assert_uint_eq(bench.sampled.n_listed, 1);
    mend(&bench, id);
    SAMPLE(&bench);
    ck_assert_int_eq(bench.devices[0].health, SAMPLE_OK);

    inject(&bench, fault_lost, 0);
    SAMPLE(&bench);
    ck_assert_int_eq(bench.devices[0].health, SAMPLE_LOST);
    ck_assert(gpuid_equal(&bench.devices[0].id, &gpu));
    inject(&bench, fault_recover, 0);
    for (n = 0; bench.devices[0].health == SAMPLE_LOST; n++) /* found when NVML starts anew */
        SAMPLE(&bench);
    ck_assert_uint_le(n, 11);
    ck_assert_uint_eq(bench.n_devices, 2);
    ck_assert(gpuid_equal(&bench.devices[0].id, &gpu));

    /* One that was lost before this reader began has no name yet, and is found later. */
    inject(&bench, fault_lost, 1);
    nvml_reader_free(bench.reader);
    ck_assert_int_eq(
        nvml_reader_new(&bench.reader, DRIVER_SIM,
                        &(struct nvml_reader_sink){ &bench, got_device, got_process, got_event }),
        0);
    SAMPLE(&bench);
    ck_assert_uint_eq(bench.n_devices, 1);
    inject(&bench, fault_recover, 1);
    for (n = 0; bench.n_devices == 1; n++)
        SAMPLE(&bench);
    ck_assert_uint_le(n, 11);
    finish(&bench);
}
END_TEST

START_TEST(lists_that_cannot_be_had_are_said) {
    struct nvml_library_hold hold = { .part = { .gpu = 0 }, .bytes = 64 * MIB };
    struct bench bench;
    uint64_t used;
    uint32_t id;
    pid_t pid;

    start(&bench, NULL);
    pid = nvml_library_hold(&bench.s, &hold);
    id = fail_call(&bench, "nvmlDeviceGetComputeRunningProcesses*", 1, NVML_ERROR_NO_PERMISSION);
    SAMPLE(&bench);
    ck_assert_uint_eq(bench.sampled.n_listed, 1);
    ck_assert_str_ne(bench.sampled.list_trouble, "");
    ck_assert_uint_eq(bench.n_processes, 1);
    mend(&bench, id);
    id = fail_call(&bench, "nvmlDeviceGetProcessUtilization", 0, NVML_ERROR_NOT_SUPPORTED);
    SAMPLE(&bench);
    ck_assert_uint_eq(bench.sampled.n_listed, 2);
    ck_assert_str_eq(bench.sampled.list_trouble, "");
    ck_assert_uint_eq(bench.n_processes, 1);
    ck_assert(!bench.processes[0].has_busy);
    mend(&bench, id);
    id = fail_call(&bench, "nvmlDeviceGetComputeRunningProcesses*", 0, NVML_ERROR_NO_PERMISSION);
    ck_assert_int_lt(nvml_reader_used(bench.reader, &bench.devices[0].id, pid, &used, &bench.err),
                     0);
    mend(&bench, id);
    sim_box_kill(pid);
    finish(&bench);
}
END_TEST

START_TEST(a_driver_that_is_not_there_is_tried_again) {
    struct bench bench;
    char away[PATH_MAX + 8];
    uint32_t id;

    start(&bench, NULL);
    snprintf(away, sizeof(away), "%s.away", bench.s.path);
    ck_assert_int_eq(rename(bench.s.path, away), 0);
    ck_assert_int_lt(sample(&bench), 0);
    ck_assert_str_ne(bench.err.text, "");
    ck_assert_int_eq(rename(away, bench.s.path), 0);
    SAMPLE(&bench);
    ck_assert_uint_eq(bench.n_devices, 2);
    nvml_reader_close(bench.reader, &bench.devices[0].id, true, NULL); /* it starts anew */
    nvml_reader_close(bench.reader, &bench.devices[0].id, false, NULL);
    id = fail_call(&bench, "nvmlDeviceGetCount*", -1, NVML_ERROR_UNKNOWN);
    ck_assert_int_lt(sample(&bench), 0);
    mend(&bench, id);
    id = fail_call(&bench, "nvmlSystemGetDriverVersion", -1, NVML_ERROR_UNKNOWN);
    ck_assert_int_lt(sample(&bench), 0);
    mend(&bench, id);
    SAMPLE(&bench);
    ck_assert_uint_eq(bench.n_devices, 2);
    ck_assert_int_eq(bench.devices[0].health, SAMPLE_OK);
    finish(&bench);
}
END_TEST

static void xid_31(struct box *box, unsigned gpu) {
    fault_xid(box, gpu, 31);
}

static void corrected(struct box *box, unsigned gpu) {
    fault_ecc(box, gpu, false, 3);
}

static void uncorrected(struct box *box, unsigned gpu) {
    fault_ecc(box, gpu, true, 1);
}

START_TEST(events_say_what_and_where) {
    static const struct {
        void (*what)(struct box *box, unsigned gpu);
        enum sample_event_kind kind;
    } cases[] = { { xid_31, SAMPLE_EVENT_XID },
                  { corrected, SAMPLE_EVENT_ECC_CORRECTED },
                  { uncorrected, SAMPLE_EVENT_ECC_UNCORRECTED } };
    struct box_spec spec = { .n_gpus = 2, .models = "a100-40g" };
    struct bench bench;

    start(&bench, &spec);
    SAMPLE(&bench);
    ck_assert_uint_eq(bench.devices[1].readings.ecc_corrected, 0);
    for (unsigned i = 0; i < ELEMENTSOF(cases); i++) {
        inject(&bench, cases[i].what, 1);
        wait_events(&bench, i + 1);
        ck_assert_int_eq(bench.events[i].kind, cases[i].kind);
        ck_assert(gpuid_equal(&bench.events[i].device, &bench.devices[1].id));
        ck_assert_uint_gt(bench.events[i].at_usec, 0);
    }
    ck_assert_uint_eq(bench.events[0].data, 31);
    SAMPLE(&bench); /* an event has everything read again, what is slow too */
    ck_assert_uint_eq(bench.devices[1].readings.ecc_corrected, 3);
    SAMPLE(&bench);
    inject(&bench, xid_31, 0); /* they are still listened to */
    wait_events(&bench, 4);
    ck_assert(gpuid_equal(&bench.events[3].device, &bench.devices[0].id));
    finish(&bench);
}
END_TEST

SUITE_TIMEOUT("hand-reader", 60, rows_say_what_nvml_says, links_are_lanes_and_paths,
              through_switches_all_links_lead_to_each_gpu, instances_follow_their_gpu,
              a_closed_gpu_is_named_and_not_read, a_successor_knows_what_it_was_told,
              a_gpu_that_fails_is_told_from_one_that_is_lost, lists_that_cannot_be_had_are_said,
              a_driver_that_is_not_there_is_tried_again, events_say_what_and_where)
