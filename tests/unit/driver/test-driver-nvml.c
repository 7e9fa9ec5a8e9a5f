/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "driver/nvml.h"
#include "driver/nvml_events.h"
#include "driver/nvml_process.h"
#include "driver/nvml_readings.h"
#include "driver/nvml_topology.h"
#include "tests/support/driver/fake_driver.h"
#include "tests/support/suite.h"

#define ck_assert_has(text, part)                                                                  \
    ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in \"%s\"", part, text)

/* A driver with two GPUs, opened; all of it goes with world_done(). */
struct world {
    struct fake_driver fake_driver;
    struct fake *lever;
    struct nvml *nvml;
    struct nvml_device gpu[2];
    struct allot_error err;
};

static void world_init(struct world *w, const char *variant, const char *driver) {
    *w = (struct world){ 0 };
    fake_driver_init(&w->fake_driver, "nvml", variant, NULL);
    w->lever = fake_driver_lever(&w->fake_driver, "nvml");
    if (driver)
        w->lever->driver = driver;
    ck_assert_msg(nvml_open(&w->nvml, &w->fake_driver.options, &w->err) == 0, "%s", w->err.text);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(nvml_device_at(w->nvml, &w->gpu[i], i, &w->err), 0);
}

static void world_done(struct world *w) {
    nvml_close(w->nvml);
    fake_driver_done(&w->fake_driver);
}

START_TEST(each_code_is_an_errno_and_a_sentence) {
    static const struct {
        int code, error;
        const char *name, *text;
    } rows[] = {
#define X(code, name, error, text) { code, error, #name, text },
#include "driver/nvml_codes.h"
#undef X
    };
    cleanup(world_done) struct world w;

    world_init(&w, "full", NULL);
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        char wanted[512];
        unsigned n = 4711;

        w.lever->code = rows[i].code;
        ck_assert_int_eq(nvml_device_count(w.nvml, &n, &w.err), rows[i].error);
        ck_assert_int_lt(rows[i].error, 0);
        ck_assert_int_eq(w.err.code, rows[i].error);
        snprintf(wanted, sizeof(wanted), "nvmlDeviceGetCount_v2: %s (%s %d)", rows[i].text,
                 rows[i].name, rows[i].code);
        ck_assert_str_eq(w.err.text, wanted);
        ck_assert_uint_eq(n, 4711); /* untouched */
        ck_assert_int_eq(nvml_device_count(w.nvml, &n, NULL), rows[i].error);
    }
    w.lever->code = 12345;
    ck_assert_int_eq(nvml_device_count(w.nvml, &(unsigned){ 0 }, &w.err), -EIO);
    ck_assert_has(w.err.text, "does not know (unknown 12345)");
}
END_TEST

START_TEST(a_missing_driver_says_which_part_is_missing) {
    cleanup(fake_driver_done) struct fake_driver fake_driver;
    struct allot_error err;
    struct nvml *nvml;

    fake_driver_init(&fake_driver, "nvml", "full", NULL);
    fake_driver_lever(&fake_driver, "nvml")->init_code = 9;
    ck_assert_int_eq(nvml_open(&nvml, &fake_driver.options, &err), -ENODEV);
    ck_assert_has(err.text, "the NVIDIA kernel module is not loaded");
    ck_assert_has(err.text, "modprobe nvidia");
    ck_assert_has(err.text, "NVML_ERROR_DRIVER_NOT_LOADED 9");
    fake_driver_module(&fake_driver, "535.154.05");
    ck_assert_int_eq(nvml_open(&nvml, &fake_driver.options, &err), -ENODEV);
    ck_assert_has(err.text, "the NVIDIA kernel module 535.154.05 is loaded but does not answer");
    ck_assert_has(err.text, "/dev/nvidiactl");
}
END_TEST

START_TEST(an_upgrade_under_a_loaded_module_says_reboot_or_reload) {
    cleanup(fake_driver_done) struct fake_driver fake_driver;
    struct allot_error err;
    struct nvml *nvml;

    fake_driver_init(&fake_driver, "nvml", "full", NULL);
    fake_driver_module(&fake_driver, "535.154.05");
    fake_driver_lever(&fake_driver, "nvml")->init_code = 18;
    ck_assert_int_eq(nvml_open(&nvml, &fake_driver.options, &err), -ELIBBAD);
    ck_assert_has(err.text, "its kernel module 535.154.05 stayed loaded");
    ck_assert_has(err.text, "reboot, or stop all users of the GPUs and reload the module");
}
END_TEST

START_TEST(devices_are_found_by_index_uuid_and_bus) {
    struct pci_id second = { 1, 0x3c, 0, 0 }, none = { 1, 0x3d, 0, 0 };
    cleanup(world_done) struct world w;
    struct nvml_device device;
    struct nvml_system system;
    unsigned n;

    world_init(&w, "full", NULL);
    ck_assert_int_eq(nvml_system_read(w.nvml, &system, &w.err), 0);
    ck_assert_str_eq(system.driver, "550.54.14");
    ck_assert_int_eq(nvml_device_count(w.nvml, &n, &w.err), 0);
    ck_assert_uint_eq(n, 2);
    ck_assert_str_eq(w.gpu[1].label, "GPU 1 (GPU-11111111-1111-1111-1111-111111111111)");
    ck_assert_int_eq(nvml_device_at(w.nvml, &device, 2, &w.err), -EINVAL);
    ck_assert_has(w.err.text, "nvmlDeviceGetHandleByIndex_v2 on GPU 2:");

    ck_assert_int_eq(nvml_device_find_pci(w.nvml, &device, &second, &w.err), 0);
    ck_assert_ptr_eq(device.handle, w.gpu[1].handle);
    ck_assert_str_eq(device.label, w.gpu[1].label);
    ck_assert_int_eq(nvml_device_find_pci(w.nvml, &device, &none, &w.err), -ENOENT);
    ck_assert_has(w.err.text, "00000001:3D:00.0");

    ck_assert_int_eq(
        nvml_device_find(w.nvml, &device, "MIG-22222222-2222-2222-2222-222222222222", &w.err), 0);
    ck_assert_str_eq(device.label, "MIG-22222222-2222-2222-2222-222222222222");
    ck_assert_int_eq(nvml_device_find(w.nvml, &device, "GPU-nobody", &w.err), -ENOENT);
    ck_assert_has(w.err.text, "nvmlDeviceGetHandleByUUID on GPU-nobody");
}
END_TEST

START_TEST(an_identity_has_what_the_driver_gives) {
    cleanup(world_done) struct world w;
    struct nvml_identity id;

    world_init(&w, "full", NULL);
    ck_assert_int_eq(nvml_identity_read(w.nvml, &w.gpu[1], &id, &w.err), 0);
    ck_assert_str_eq(id.uuid, "GPU-11111111-1111-1111-1111-111111111111");
    ck_assert_str_eq(id.name, "Fake 1");
    ck_assert_uint_eq(id.pci.domain, 1);
    ck_assert_uint_eq(id.pci.bus, 0x3c);
    ck_assert_uint_eq(id.pci_device, 0x20b010de);
    ck_assert(id.has & NVML_HAS_MINOR);
    ck_assert_uint_eq(id.minor, 6);
    ck_assert(id.has & NVML_HAS_NUMA_NODE);
    ck_assert_uint_eq(id.numa_node, 66);
    ck_assert(!(id.has & NVML_HAS_SERIAL));
    w.lever->code = 15;
    ck_assert_int_eq(nvml_identity_read(w.nvml, &w.gpu[1], &id, &w.err), -ENXIO);
    ck_assert_has(w.err.text, w.gpu[1].label);
    ck_assert_has(w.err.text, "fallen off the bus");
}
END_TEST

START_TEST(an_old_driver_has_fewer_answers_and_no_zeroes) {
    cleanup(world_done) struct world w;
    struct readings readings = { 0 };
    struct nvml_identity id;
    struct nvml_limit limit;
    struct nvml_mig *migs;
    struct nvml_link links[NVML_LINKS_MAX];
    uint32_t p2p;
    size_t n;

    world_init(&w, "bare", NULL);
    ck_assert_int_eq(nvml_identity_read(w.nvml, &w.gpu[0], &id, &w.err), 0);
    ck_assert_uint_eq(id.has, 0);
    ck_assert_int_eq(nvml_readings_take(w.nvml, &w.gpu[0], READINGS_ALL, &readings, &w.err), 0);
    ck_assert_uint_eq(readings.has, READINGS_BIT(total_bytes) | READINGS_BIT(used_bytes));
    ck_assert_uint_eq(readings.used_bytes,
                      400); /* with the reserved part, which cannot be told apart */
    ck_assert_int_eq(w.err.code, 0);
    ck_assert_int_eq(
        nvml_process_limit_get(w.nvml, &w.gpu[0], "/sys/fs/cgroup/job", &limit, &w.err),
        -EOPNOTSUPP);
    ck_assert_str_eq(w.err.text,
                     "nvmlDeviceGetMemoryLimits_v1 on GPU 0 (GPU-00000000-0000-0000-0000-"
                     "000000000000): not supported by this driver, needs at least driver 615");
    ck_assert_int_eq(nvml_topology_list_migs(w.nvml, &w.gpu[0], &migs, &n, &w.err), 0);
    ck_assert_uint_eq(n, 0);
    ck_assert_int_eq(nvml_topology_list_links(w.nvml, &w.gpu[0], links, &n, &w.err), 0);
    ck_assert_uint_eq(n, 0);
    ck_assert_int_eq(nvml_topology_p2p(w.nvml, &w.gpu[0], &w.gpu[1], &p2p, &w.err), -EOPNOTSUPP);
}
END_TEST

START_TEST(what_the_driver_does_not_give_is_absent) {
    cleanup(world_done) struct world w;
    struct readings readings = { 0 };

    world_init(&w, "full", NULL);
    ck_assert_int_eq(nvml_readings_take(w.nvml, &w.gpu[0], READINGS_ALL, &readings, &w.err), 0);
    ck_assert_int_eq(w.err.code, 0);
    ck_assert(READINGS_HAVE(&readings, utilization_percent));
    ck_assert_uint_eq(readings.utilization_percent, 42);
    ck_assert(!READINGS_HAVE(&readings, memory_utilization_percent)); /* it says: not available */
    ck_assert(!READINGS_HAVE(&readings, power_limit_milliwatts));     /* not supported */
    ck_assert(
        READINGS_HAVE(&readings, temperature_celsius)); /* the older call, where the newer balks */
    ck_assert_uint_eq(readings.temperature_celsius, 37);
    ck_assert(READINGS_HAVE(&readings, ecc_corrected));
    ck_assert_uint_eq(readings.ecc_corrected, 0);
}
END_TEST

START_TEST(a_device_that_is_gone_ends_the_reading) {
    cleanup(world_done) struct world w;
    struct readings readings = { .has = 4711 };

    world_init(&w, "full", NULL);
    w.lever->code = 15;
    ck_assert_int_eq(nvml_readings_take(w.nvml, &w.gpu[0], READINGS_ALL, &readings, &w.err),
                     -ENXIO);
    ck_assert_has(w.err.text, "nvmlDeviceGetMemoryInfo_v2 on GPU 0 (GPU-0");
    ck_assert_uint_eq(readings.has, 4711);
    ck_assert_int_eq(nvml_readings_take(w.nvml, &w.gpu[0], READINGS_ALL, &readings, NULL), -ENXIO);
    w.lever->code = 999; /* the driver stumbles on each question, but is there */
    ck_assert_int_eq(nvml_readings_take(w.nvml, &w.gpu[0], READINGS_ALL, &readings, NULL), 0);
    ck_assert_uint_eq(readings.has & READINGS_BIT(total_bytes), 0);
}
END_TEST

START_TEST(the_sum_decides_whether_used_includes_reserved) {
    static const struct {
        uint64_t total, reserved, free, used; /* as the driver says */
        uint64_t wanted;
    } rows[] = {
        { 1000, 100, 600, 300, 300 }, /* without: they add up to the total */
        { 1000, 100, 600, 400, 300 }, /* with */
        { 1000, 0, 600, 400, 400 },   /* nothing reserved: the same */
        { 1000, 100, 600, 250, 250 }, /* no sum fits (a GPU that is a NUMA node): as told */
    };
    cleanup(world_done) struct world w;

    world_init(&w, "full", NULL);
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        struct readings readings = { 0 };

        w.lever->total = rows[i].total;
        w.lever->reserved = rows[i].reserved;
        w.lever->free = rows[i].free;
        w.lever->used = rows[i].used;
        ck_assert_int_eq(nvml_readings_take(w.nvml, &w.gpu[0], READINGS_MEMORY, &readings, NULL),
                         0);
        ck_assert_uint_eq(readings.used_bytes, rows[i].wanted);
        ck_assert(READINGS_HAVE(&readings, reserved_bytes));
        ck_assert_uint_eq(readings.reserved_bytes, rows[i].reserved);
    }
}
END_TEST

START_TEST(groups_that_are_not_asked_for_stay_as_they_are) {
    cleanup(world_done) struct world w;
    struct readings readings = { 0 };

    world_init(&w, "full", NULL);
    READINGS_PUT(&readings, ecc_uncorrected, 7);
    READINGS_PUT(&readings, memory_utilization_percent, 7);
    ck_assert_int_eq(nvml_readings_take(w.nvml, &w.gpu[0], READINGS_USE, &readings, &w.err), 0);
    ck_assert_uint_eq(readings.has,
                      READINGS_BIT(ecc_uncorrected) | READINGS_BIT(utilization_percent));
    ck_assert_uint_eq(readings.ecc_uncorrected, 7);
}
END_TEST

/* Two in compute, of which one is also in graphics, in each version of the lists. */
START_TEST(processes_are_listed_once_whatever_the_version) {
    static const struct {
        const char *variant, *driver;
        bool has_instances, has_graphics;
    } rows[] = {
        { "full", "550.54.14", true, true },
        { "full", "535.54.03", true, true }, /* version 3 has longer records there */
        { "bare", "440.33.01", false, false },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        cleanup(world_done) struct world w;
        cleanup(freep) struct nvml_process *list = NULL;
        size_t n;

        world_init(&w, rows[i].variant, rows[i].driver);
        w.lever->n_compute = 2;
        w.lever->compute[0] = (struct fake_process){ 300, 5 << 20, 1, 0 };
        w.lever->compute[1] = (struct fake_process){ 200, UINT64_MAX, 2, 3 };
        w.lever->n_graphics = 1;
        w.lever->graphics[0] = (struct fake_process){ 300, 5 << 20, 1, 0 };
        ck_assert_msg(nvml_process_list(w.nvml, &w.gpu[0], &list, &n, &w.err) == 0, "%s",
                      w.err.text);
        ck_assert_uint_eq(n, 2);
        ck_assert_uint_eq(list[0].pid, 200);
        ck_assert(!list[0].has_used);
        ck_assert_uint_eq(list[0].kinds, NVML_COMPUTE);
        ck_assert_uint_eq(list[0].compute_instance, rows[i].has_instances ? 3 : NVML_NO_INSTANCE);
        ck_assert_uint_eq(list[1].pid, 300);
        ck_assert(list[1].has_used);
        ck_assert_uint_eq(list[1].used_bytes, 5 << 20);
        ck_assert_uint_eq(list[1].kinds,
                          rows[i].has_graphics ? NVML_COMPUTE | NVML_GRAPHICS : NVML_COMPUTE);
        ck_assert_uint_eq(list[1].gpu_instance, rows[i].has_instances ? 1 : NVML_NO_INSTANCE);
    }
}
END_TEST

START_TEST(a_list_that_outgrows_its_buffer_is_asked_for_again) {
    cleanup(world_done) struct world w;
    cleanup(freep) struct nvml_process *list = NULL;
    size_t n;

    world_init(&w, "full", NULL);
    w.lever->n_compute = FAKE_PROCESSES_MAX;
    w.lever->grows_by = 500; /* by the time it is asked again */
    for (unsigned i = 0; i < FAKE_PROCESSES_MAX; i++)
        w.lever->compute[i] = (struct fake_process){ i + 1, i, UINT32_MAX, UINT32_MAX };
    ck_assert_int_eq(nvml_process_list(w.nvml, &w.gpu[0], &list, &n, &w.err), 0);
    ck_assert_uint_eq(n, FAKE_PROCESSES_MAX);
    ck_assert_uint_eq(list[255].pid, 256);
    w.lever->grows_by = UINT32_MAX / 2; /* never satisfied */
    free(TAKE(list));
    ck_assert_int_eq(nvml_process_list(w.nvml, &w.gpu[0], &list, &n, &w.err), -ENOBUFS);
}
END_TEST

START_TEST(no_process_is_an_empty_list_and_no_list_an_error) {
    cleanup(world_done) struct world w;
    struct nvml_process *list = (void *)1;
    size_t n;

    world_init(&w, "full", NULL);
    ck_assert_int_eq(nvml_process_list(w.nvml, &w.gpu[0], &list, &n, &w.err), 0);
    ck_assert_ptr_null(list);
    ck_assert_uint_eq(n, 0);
    w.lever->code = 3;
    ck_assert_int_eq(nvml_process_list(w.nvml, &w.gpu[0], &list, &n, &w.err), -EOPNOTSUPP);
    w.lever->code = 15;
    ck_assert_int_eq(nvml_process_list(w.nvml, &w.gpu[0], &list, &n, &w.err), -ENXIO);
}
END_TEST

START_TEST(samples_that_cannot_be_true_are_sorted_out) {
    cleanup(world_done) struct world w;
    cleanup(freep) struct nvml_process_use *list = NULL;
    struct nvml_process_use *none;
    size_t n;

    world_init(&w, "full", NULL);
    ck_assert_int_eq(nvml_process_use_list(w.nvml, &w.gpu[0], 1000, &list, &n, &w.err), 0);
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(list[0].pid, 100);
    ck_assert_uint_eq(list[0].sm, 50);
    ck_assert_uint_eq(list[1].pid, 103);
    ck_assert_uint_eq(list[1].decoder, 4);
    ck_assert_int_eq(nvml_process_use_list(w.nvml, &w.gpu[0], 20000, &none, &n, &w.err), 0);
    ck_assert_uint_eq(n, 0);
    ck_assert_ptr_null(none);
}
END_TEST

START_TEST(limits_of_a_cgroup_are_set_and_read_back) {
    struct nvml_limit limit = { .soft_bytes = 0, .hard_bytes = 8192 };
    cleanup(world_done) struct world w;

    world_init(&w, "full", NULL);
    ck_assert_int_eq(
        nvml_process_limit_set(w.nvml, &w.gpu[0], "/sys/fs/cgroup/job", &limit, &w.err), 0);
    ck_assert_int_eq(
        nvml_process_limit_get(w.nvml, &w.gpu[0], "/sys/fs/cgroup/job", &limit, &w.err), 0);
    ck_assert_uint_eq(limit.hard_bytes, 8192);
    ck_assert_uint_eq(limit.used_bytes, 77);
    ck_assert_int_eq(nvml_process_limit_set(w.nvml, &w.gpu[0], "/nowhere", &limit, &w.err),
                     -EACCES);
    ck_assert_has(w.err.text, "nvmlDeviceSetMemoryLimits_v1 on GPU 0");
}
END_TEST

START_TEST(instances_are_listed_over_the_holes_between_them) {
    cleanup(world_done) struct world w;
    cleanup(freep) struct nvml_mig *list = NULL;
    struct nvml_mig *none;
    size_t n;

    world_init(&w, "full", NULL);
    ck_assert_int_eq(nvml_topology_list_migs(w.nvml, &w.gpu[0], &none, &n, &w.err), 0);
    ck_assert_uint_eq(n, 0);
    w.lever->is_mig = true;
    ck_assert_int_eq(nvml_topology_list_migs(w.nvml, &w.gpu[1], &none, &n, &w.err), 0);
    ck_assert_uint_eq(n, 0); /* that one cannot do it at all */
    ck_assert_int_eq(nvml_topology_list_migs(w.nvml, &w.gpu[0], &list, &n, &w.err), 0);
    ck_assert_uint_eq(n, 2);
    ck_assert_str_eq(list[0].uuid, "MIG-22222222-2222-2222-2222-222222222222");
    ck_assert_str_eq(list[0].device.label, list[0].uuid);
    ck_assert_uint_eq(list[0].gpu_instance, 1);
    ck_assert(list[0].has_attributes);
    ck_assert_uint_eq(list[0].memory_bytes, UINT64_C(4864) << 20);
    ck_assert_uint_eq(list[1].gpu_instance, 2);
    ck_assert(!list[1].has_attributes);
}
END_TEST

START_TEST(paths_and_links_between_gpus_are_read) {
    cleanup(world_done) struct world w;
    struct nvml_link links[NVML_LINKS_MAX];
    enum nvml_path path;
    unsigned generation, width;
    uint32_t p2p;
    size_t n;

    world_init(&w, "full", NULL);
    ck_assert_int_eq(nvml_topology_path(w.nvml, &w.gpu[0], &w.gpu[1], &path, &w.err), 0);
    ck_assert_int_eq(path, NVML_PATH_BRIDGE);
    ck_assert_int_eq(nvml_topology_p2p(w.nvml, &w.gpu[0], &w.gpu[1], &p2p, &w.err), 0);
    ck_assert_uint_eq(p2p, NVML_P2P_READ | NVML_P2P_WRITE | NVML_P2P_ATOMICS);
    ck_assert_int_eq(nvml_topology_list_links(w.nvml, &w.gpu[0], links, &n, &w.err), 0);
    ck_assert_uint_eq(n, 2); /* link 1 is down, there is no link 3 */
    ck_assert_uint_eq(links[0].number, 0);
    ck_assert_int_eq(links[0].end, NVML_END_SWITCH);
    ck_assert(!links[0].has_remote);
    ck_assert_uint_eq(links[1].number, 2);
    ck_assert_int_eq(links[1].end, NVML_END_GPU);
    ck_assert(links[1].has_remote);
    ck_assert_uint_eq(links[1].remote.bus, 0x3c);
    ck_assert_int_eq(nvml_topology_pcie(w.nvml, &w.gpu[0], &generation, &width, &w.err), 0);
    ck_assert_uint_eq(generation, 4);
    ck_assert_uint_eq(width, 16);
}
END_TEST

START_TEST(events_wake_or_time_out) {
    cleanup(world_done) struct world w;
    cleanup(nvml_events_freep) struct nvml_events *events = NULL;
    struct nvml_event event;

    world_init(&w, "full", NULL);
    ck_assert_int_eq(nvml_events_new(&events, w.nvml, &w.err), 0);
    ck_assert_int_eq(nvml_events_add(events, &w.gpu[0], &w.err), 0);
    ck_assert_int_eq(nvml_events_add(events, &w.gpu[1], &w.err), -EOPNOTSUPP);
    ck_assert_has(w.err.text, "reports no events");
    ck_assert_int_eq(nvml_events_wait(events, 0, &event, &w.err), -ETIMEDOUT);
    w.lever->event = 8;
    ck_assert_int_eq(nvml_events_wait(events, 1000, &event, &w.err), 0);
    ck_assert_int_eq(event.type, NVML_EVENT_XID);
    ck_assert_uint_eq(event.data, 79);
    ck_assert_uint_eq(event.gpu_instance, 1);
    ck_assert_ptr_eq(event.handle, w.gpu[0].handle);
    w.lever->event = 0x4000;
    ck_assert_int_eq(nvml_events_wait(events, 1000, &event, &w.err), 0);
    ck_assert_int_eq(event.type, NVML_EVENT_UNAVAILABLE);
}
END_TEST

SUITE("driver-nvml", each_code_is_an_errno_and_a_sentence,
      a_missing_driver_says_which_part_is_missing,
      an_upgrade_under_a_loaded_module_says_reboot_or_reload,
      devices_are_found_by_index_uuid_and_bus, an_identity_has_what_the_driver_gives,
      an_old_driver_has_fewer_answers_and_no_zeroes, what_the_driver_does_not_give_is_absent,
      a_device_that_is_gone_ends_the_reading, the_sum_decides_whether_used_includes_reserved,
      groups_that_are_not_asked_for_stay_as_they_are,
      processes_are_listed_once_whatever_the_version,
      a_list_that_outgrows_its_buffer_is_asked_for_again,
      no_process_is_an_empty_list_and_no_list_an_error, samples_that_cannot_be_true_are_sorted_out,
      limits_of_a_cgroup_are_set_and_read_back, instances_are_listed_over_the_holes_between_them,
      paths_and_links_between_gpus_are_read, events_wake_or_time_out)
