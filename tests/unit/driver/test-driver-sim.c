/* SPDX-License-Identifier: Apache-2.0 */
/* driver/ over the simulated box: what the product sees there is the truth of the box. */
#include <errno.h>
#include <string.h>

#include "driver/cuda.h"
#include "driver/nvml.h"
#include "driver/nvml_events.h"
#include "driver/nvml_process.h"
#include "driver/nvml_readings.h"
#include "driver/nvml_topology.h"
#include "sim/box/fault.h"
#include "tests/support/sim/nvml/nvml_library.h"
#include "tests/support/suite.h"

#define MIB (UINT64_C(1) << 20)

/* A box, and NVML found as a program of the build tree finds it: GPUSIM_BOX is all that is set. */
static struct nvml *open_box(struct sim_box *sim_box, const struct box_spec *spec) {
    struct driver_options options;
    struct allot_error err = { 0 };
    struct nvml *nvml = NULL;

    sim_box_init(sim_box, spec);
    unsetenv("ALLOT_SIM_DIR");
    options = driver_options_read(DRIVER_AUTO);
    ck_assert_msg(nvml_open(&nvml, &options, &err) == 0, "%s", err.text);
    ck_assert(nvml_is_simulated(nvml));
    return nvml;
}

START_TEST(identities_are_those_of_the_box) {
    static const struct box_spec spec = { .models = "a100-40g,t4-16g", .minors = "7,3" };
    cleanup(sim_box_done) struct sim_box sim_box;
    cleanup(nvml_closep) struct nvml *nvml = open_box(&sim_box, &spec);
    struct nvml_system system;
    struct allot_error err = { 0 };
    unsigned n;

    ck_assert_int_eq(nvml_system_read(nvml, &system, &err), 0);
    ck_assert_str_eq(system.driver, sim_box.box->file->driver_version);
    ck_assert_uint_eq(system.cuda, sim_box.box->file->cuda_driver_version);
    ck_assert_int_eq(nvml_device_count(nvml, &n, &err), 0);
    ck_assert_uint_eq(n, 2);
    for (unsigned i = 0; i < n; i++) {
        const struct box_gpu *gpu = &sim_box.box->file->gpu[i];
        struct nvml_device device, found;
        struct nvml_identity id;

        ck_assert_msg(nvml_device_at(nvml, &device, i, &err) == 0, "%s", err.text);
        ck_assert_msg(nvml_identity_read(nvml, &device, &id, &err) == 0, "%s", err.text);
        ck_assert_str_eq(id.uuid, gpu->uuid);
        ck_assert_uint_eq(id.pci.domain, gpu->pci_domain);
        ck_assert_uint_eq(id.pci.bus, gpu->pci_bus);
        ck_assert_uint_eq(id.pci.device, gpu->pci_device);
        ck_assert(id.has & NVML_HAS_MINOR);
        ck_assert_uint_eq(id.minor, gpu->minor);
        ck_assert(id.has & NVML_HAS_NUMA_NODE);
        ck_assert_uint_eq(id.numa_node, (uint32_t)gpu->numa_node);
        ck_assert_int_eq(nvml_device_find(nvml, &found, gpu->uuid, &err), 0);
        ck_assert_ptr_eq(found.handle, device.handle);
        ck_assert_int_eq(nvml_device_find_pci(nvml, &found, &id.pci, &err), 0);
        ck_assert_ptr_eq(found.handle, device.handle);
    }
    ck_assert_int_eq(nvml_device_find(nvml, &(struct nvml_device){ 0 },
                                      "GPU-00000000-0000-0000-0000-000000000000", &err),
                     -ENOENT);
}
END_TEST

START_TEST(memory_and_processes_are_those_of_the_box) {
    cleanup(sim_box_done) struct sim_box sim_box;
    cleanup(nvml_closep) struct nvml *nvml = open_box(&sim_box, NULL);
    cleanup(freep) struct nvml_process *list = NULL;
    struct nvml_library_hold hold = { .part = { 1, 0 }, .bytes = 512 * MIB };
    const struct box_gpu *gpu = &sim_box.box->file->gpu[1];
    struct readings readings = { 0 };
    struct nvml_device device;
    struct allot_error err = { 0 };
    size_t n;
    pid_t pid;

    ck_assert_int_eq(nvml_device_at(nvml, &device, 1, &err), 0);
    pid = nvml_library_hold(&sim_box, &hold);
    ck_assert_msg(nvml_readings_take(nvml, &device, READINGS_ALL, &readings, &err) == 0, "%s",
                  err.text);
    ck_assert_uint_eq(readings.total_bytes, gpu->total_bytes);
    ck_assert_uint_eq(readings.reserved_bytes, gpu->reserved_bytes);
    ck_assert_uint_eq(readings.used_bytes, sim_box_used(&sim_box, 1));
    ck_assert(READINGS_HAVE(&readings, temperature_celsius));
    ck_assert(READINGS_HAVE(&readings, power_milliwatts));
    ck_assert(READINGS_HAVE(&readings, sm_clock_mhz));
    ck_assert_msg(nvml_process_list(nvml, &device, &list, &n, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(list[0].pid, (uint32_t)pid);
    ck_assert(list[0].has_used);
    ck_assert_uint_eq(list[0].used_bytes, sim_box_used(&sim_box, 1));
    ck_assert_uint_eq(list[0].gpu_instance, NVML_NO_INSTANCE);
    sim_box_kill(pid);
    free(TAKE(list));
    ck_assert_int_eq(nvml_process_list(nvml, &device, &list, &n, &err), 0);
    ck_assert_uint_eq(n, 0);
}
END_TEST

START_TEST(instances_and_links_are_those_of_the_box) {
    static const struct box_spec spec = { .n_gpus = 2, .mig = "0:3g.20gb+1g.5gb" };
    cleanup(sim_box_done) struct sim_box sim_box;
    cleanup(nvml_closep) struct nvml *nvml = open_box(&sim_box, &spec);
    cleanup(freep) struct nvml_mig *migs = NULL;
    struct nvml_device gpu[2];
    struct readings readings = { 0 };
    struct nvml_link links[NVML_LINKS_MAX];
    struct allot_error err = { 0 };
    enum nvml_path path;
    uint32_t p2p;
    size_t n;

    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(nvml_device_at(nvml, &gpu[i], i, &err), 0);
    ck_assert_msg(nvml_topology_list_migs(nvml, &gpu[0], &migs, &n, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(n, 2);
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(strncmp(migs[i].uuid, "MIG-", 4), 0);
        ck_assert(migs[i].has_attributes);
        ck_assert_int_eq(
            nvml_readings_take(nvml, &migs[i].device, READINGS_MEMORY, &readings, &err), 0);
        ck_assert(READINGS_HAVE(&readings, total_bytes));
        ck_assert_uint_lt(readings.total_bytes, sim_box.box->file->gpu[0].total_bytes);
    }
    ck_assert_int_eq(nvml_topology_path(nvml, &gpu[0], &gpu[1], &path, &err), 0);
    ck_assert_int_eq(nvml_topology_p2p(nvml, &gpu[0], &gpu[1], &p2p, &err), 0);
    ck_assert_int_eq(nvml_topology_list_links(nvml, &gpu[1], links, &n, &err), 0);
    ck_assert_uint_eq(n, sim_box.box->file->gpu[1].nvlinks[0]);
}
END_TEST

START_TEST(a_lost_gpu_is_gone_and_the_other_is_not) {
    cleanup(sim_box_done) struct sim_box sim_box;
    cleanup(nvml_closep) struct nvml *nvml = open_box(&sim_box, NULL);
    struct readings readings = { 0 };
    struct nvml_device device[2];
    struct allot_error err = { 0 };
    int r;

    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(nvml_device_at(nvml, &device[i], i, &err), 0);
    ck_assert_int_eq(box_lock(sim_box.box), 0);
    fault_lost(sim_box.box, 0);
    box_unlock(sim_box.box);
    r = nvml_readings_take(nvml, &device[0], READINGS_ALL, &readings, &err);
    ck_assert_int_eq(r, -ENXIO);
    ck_assert(driver_is_gone(r));
    ck_assert_ptr_nonnull(strstr(err.text, device[0].label));
    ck_assert_int_eq(nvml_readings_take(nvml, &device[1], READINGS_ALL, &readings, &err), 0);
}
END_TEST

START_TEST(an_xid_wakes_waiters) {
    cleanup(sim_box_done) struct sim_box sim_box;
    cleanup(nvml_closep) struct nvml *nvml = open_box(&sim_box, NULL);
    cleanup(nvml_events_freep) struct nvml_events *events = NULL;
    struct nvml_device device;
    struct nvml_event event;
    struct allot_error err = { 0 };

    ck_assert_int_eq(nvml_device_at(nvml, &device, 1, &err), 0);
    ck_assert_msg(nvml_events_new(&events, nvml, &err) == 0, "%s", err.text);
    ck_assert_msg(nvml_events_add(events, &device, &err) == 0, "%s", err.text);
    ck_assert_int_eq(nvml_events_wait(events, 10, &event, &err), -ETIMEDOUT);
    ck_assert_int_eq(box_lock(sim_box.box), 0);
    fault_xid(sim_box.box, 1, 31);
    box_unlock(sim_box.box);
    ck_assert_msg(nvml_events_wait(events, 5000, &event, &err) == 0, "%s", err.text);
    ck_assert_int_eq(event.type, NVML_EVENT_XID);
    ck_assert_uint_eq(event.data, 31);
    ck_assert_ptr_eq(event.handle, device.handle);
}
END_TEST

START_TEST(cuda_allocates_what_nvml_then_shows) {
    static const struct box_spec spec = { .n_gpus = 2, .models = "t4-16g" };
    cleanup(sim_box_done) struct sim_box sim_box;
    cleanup(nvml_closep) struct nvml *nvml = open_box(&sim_box, &spec);
    cleanup(cuda_closep) struct cuda *cuda = NULL;
    struct driver_options options = driver_options_read(DRIVER_AUTO);
    struct readings before = { 0 }, after = { 0 };
    struct allot_error err = { 0 };
    struct nvml_device device;
    CUdeviceptr pointer = 0;
    CUcontext context;

    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    ck_assert_msg(cuda_open(&cuda, &options, &err) == 0, "%s", err.text);
    ck_assert_int_eq(cuda->n_devices, 1);
    ck_assert_ptr_nonnull(strstr(cuda->names[0].text, sim_box.box->file->gpu[1].uuid));
    ck_assert_msg(cuda_primary_ctx_retain(cuda, &err, &context, 0) == 0, "%s", err.text);
    ck_assert_msg(cuda_ctx_set_current(cuda, &err, context) == 0, "%s", err.text);
    ck_assert_int_eq(nvml_device_at(nvml, &device, 1, &err), 0);
    ck_assert_int_eq(nvml_readings_take(nvml, &device, READINGS_MEMORY, &before, &err), 0);
    ck_assert_msg(cuda_mem_alloc(cuda, &err, &pointer, 256 * MIB) == 0, "%s", err.text);
    ck_assert_int_eq(nvml_readings_take(nvml, &device, READINGS_MEMORY, &after, &err), 0);
    ck_assert_uint_eq(after.used_bytes - before.used_bytes, 256 * MIB);
    ck_assert_int_eq(cuda_mem_alloc(cuda, &err, &pointer, UINT64_C(1) << 40), -ENOMEM);
    ck_assert_ptr_nonnull(strstr(err.text, "cuMemAlloc_v2 on CUDA device 0 (GPU-"));
    ck_assert_ptr_nonnull(strstr(err.text, sim_box.box->file->gpu[1].uuid));
    ck_assert_int_eq(cuda_primary_ctx_release(cuda, &err, 0), 0);
}
END_TEST

START_TEST(no_visible_device_of_the_box_says_where_to_look) {
    cleanup(sim_box_done) struct sim_box sim_box;
    struct driver_options options;
    struct allot_error err = { 0 };
    struct cuda *cuda;

    sim_box_init(&sim_box, NULL);
    options = driver_options_read(DRIVER_AUTO);
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    ck_assert_int_eq(cuda_open(&cuda, &options, &err), -ENODEV);
    ck_assert_ptr_nonnull(strstr(err.text, "check CUDA_VISIBLE_DEVICES"));
}
END_TEST

SUITE("driver-sim", identities_are_those_of_the_box, memory_and_processes_are_those_of_the_box,
      instances_and_links_are_those_of_the_box, a_lost_gpu_is_gone_and_the_other_is_not,
      an_xid_wakes_waiters, cuda_allocates_what_nvml_then_shows,
      no_visible_device_of_the_box_says_where_to_look)
