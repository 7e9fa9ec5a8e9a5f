/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/gpuid.h"
#include "sim/box/fault.h"
#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/suite.h"

/* The box of tests/cases/visible.tsv; GPU 2 is the fastest, then the order of the bus. */
static const struct box_spec four = {
    .n_gpus = 4,
    .models = "t4-16g,t4-16g,a100-40g,t4-16g",
    .uuids = "GPU-9942190a-aa31-4ff1-4aa9-c388d80f85f1,GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293,"
             "GPU-e429a63e-c61c-4795-b757-5132caeb8e70,GPU-eee1dfbc-0a0f-6ad8-5ff6-dc942a8b9d98",
    .nvlink = "none",
    .seed = 7,
};

/* Replace \xHH and \t as the table writes them. */
static void unescape(char *text) {
    char *to = text;

    for (const char *from = text; *from; from++) {
        unsigned value;

        if (!strncmp(from, "\\x", 2) && sscanf(from + 2, "%2x", &value) == 1) {
            *to++ = (char)value;
            from += 3;
        } else if (!strncmp(from, "\\t", 2)) {
            *to++ = '\t';
            from++;
        } else {
            *to++ = *from;
        }
    }
    *to = 0;
}

/* What cuInit() makes of the environment: "[2,0]" in indices of the bus. For a child process. */
static int print_visible(struct sim_box *s, void *argument) {
    char seen[64] = "[";
    CUresult r = CU(cuInit)(0);
    int n = 0;

    if (r == CUDA_SUCCESS)
        ck_assert_cuda_ok(CU(cuDeviceGetCount)(&n));
    else if (r != CUDA_ERROR_NO_DEVICE)
        return 2;
    for (int i = 0; i < n; i++) {
        CUuuid uuid;

        ck_assert_cuda_ok(CU(cuDeviceGetUuid_v2)(&uuid, i));
        for (unsigned g = 0; g < 4; g++) {
            struct gpuid id;

            gpuid_parse(&id, s->box->file->gpu[g].uuid);
            if (!memcmp(id.uuid, uuid.bytes, 16))
                snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "%s%u", i ? "," : "", g);
        }
    }
    strcat(seen, "]");
    if (strcmp(seen, argument) != 0) {
        fprintf(stderr, "sees %s, not %s\n", seen, (char *)argument);
        return 1;
    }
    return 0;
}

START_TEST(visible_devices_are_those_of_the_table) {
    FILE *f = fopen(TEST_CASES "/visible.tsv", "r");
    char line[1024];
    unsigned n = 0;
    struct sim_box s;

    ck_assert_ptr_nonnull(f);
    sim_box_init(&s, &four);
    while (fgets(line, sizeof(line), f)) {
        char *save, *id, *order, *env, *expected, *confidence;

        line[strcspn(line, "\n")] = 0;
        if (line[0] == '#' || !strncmp(line, "id\t", 3))
            continue;
        id = strtok_r(line, "\t", &save);
        order = strtok_r(NULL, "\t", &save);
        env = strtok_r(NULL, "\t", &save);
        expected = strtok_r(NULL, "\t", &save);
        confidence = strtok_r(NULL, "\t", &save);
        if (!confidence || !strcmp(confidence, "unverified") || !strcmp(confidence, "prose"))
            continue;
        setenv("CUDA_DEVICE_ORDER", order, 1);
        unescape(env);
        if (!strcmp(env, "<unset>"))
            unsetenv("CUDA_VISIBLE_DEVICES");
        else
            setenv("CUDA_VISIBLE_DEVICES", !strcmp(env, "<empty>") ? "" : env, 1);
        fprintf(stderr, "row %s\n", id);
        sim_box_expect_success(sim_box_fork(print_visible, &s, expected));
        n++;
    }
    fclose(f);
    ck_assert_uint_gt(n, 35);
    sim_box_done(&s);
}
END_TEST

START_TEST(identity_is_that_of_the_box) {
    const char *uuid;
    struct gpuid id;
    struct sim_box s;
    char text[64];
    CUuuid bytes;
    CUdevice device;
    size_t total;
    int major, minor, count;

    cuda_library_init(&s, &four);
    ck_assert_cuda_ok(CU(cuDeviceGetCount)(&count));
    ck_assert_int_eq(count, 4);
    ck_assert_cuda(CU(cuDeviceGet)(&device, 4), CUDA_ERROR_INVALID_DEVICE);
    ck_assert_cuda(CU(cuDeviceGet)(&device, -1), CUDA_ERROR_INVALID_DEVICE);
    ck_assert_cuda_ok(CU(cuDeviceGet)(&device, 0)); /* fastest first: GPU 2 of the bus */

    uuid = s.box->file->gpu[2].uuid;
    ck_assert_int_eq(gpuid_parse(&id, uuid), 0);
    ck_assert_cuda_ok(CU(cuDeviceGetUuid)(&bytes, device));
    ck_assert_mem_eq(bytes.bytes, id.uuid, 16);
    ck_assert_cuda_ok(CU(cuDeviceGetUuid_v2)(&bytes, device));
    ck_assert_mem_eq(bytes.bytes, id.uuid, 16);

    ck_assert_cuda_ok(CU(cuDeviceGetName)(text, sizeof(text), device));
    ck_assert_str_eq(text, "SIM A100-SXM4-40GB");
    ck_assert_cuda_ok(CU(cuDeviceGetName)(text, 4, device));
    ck_assert_str_eq(text, "SIM");
    ck_assert_cuda_ok(CU(cuDeviceTotalMem_v2)(&total, device));
    ck_assert_uint_eq(total, box_capacity(s.box, (struct box_part){ 2, 0 }));
    ck_assert_cuda_ok(CU(cuDeviceComputeCapability)(&major, &minor, device));
    ck_assert_int_eq(major * 10 + minor, 80);

    ck_assert_cuda_ok(CU(cuDeviceGetPCIBusId)(text, sizeof(text), device));
    ck_assert_cuda_ok(CU(cuDeviceGetByPCIBusId)(&device, text));
    ck_assert_int_eq(device, 0);
    ck_assert_cuda(CU(cuDeviceGetByPCIBusId)(&device, "0000:ff:1f.0"), CUDA_ERROR_INVALID_DEVICE);
    ck_assert_cuda(CU(cuDeviceGetByPCIBusId)(&device, "nonsense"), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuDeviceGetLuid)(text, (unsigned *)&count, 0), CUDA_ERROR_NOT_SUPPORTED);
    sim_box_done(&s);
}
END_TEST

START_TEST(every_attribute_of_the_header_is_known) {
    struct sim_box s;
    int value, n = 0;

    cuda_library_init(&s, &four);
    for (int a = 1; a < CU_DEVICE_ATTRIBUTE_MAX; a++) {
        CUresult r = CU(cuDeviceGetAttribute)(&value, (CUdevice_attribute)a, 0);

        if (a == 139 || a > 147) /* not in the header of 13.0 */
            continue;
        ck_assert_msg(r == CUDA_SUCCESS, "attribute %d", a);
        n++;
    }
    ck_assert_int_eq(n, 146);
    ck_assert_cuda(CU(cuDeviceGetAttribute)(&value, (CUdevice_attribute)9999, 0),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 9),
                   CUDA_ERROR_INVALID_DEVICE);
    ck_assert_cuda_ok(
        CU(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    ck_assert_int_eq(value, 108);
    ck_assert_cuda_ok(CU(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0));
    ck_assert_int_eq(value, (int)s.box->file->gpu[2].pci_bus);
    ck_assert_cuda_ok(CU(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 0));
    ck_assert_int_eq(value, 1);
    sim_box_done(&s);
}
END_TEST

START_TEST(peers_are_those_that_a_link_or_the_bus_connects) {
    struct sim_box s;
    int value;

    cuda_library_init(&s,
                      &(struct box_spec){ .models = "a100-40g,a100-40g,rtx4090-24g", .seed = 1 });
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    /* Which of them is the RTX depends on the order: ask for it. */
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            char a[64], b[64];
            bool expected;

            ck_assert_cuda_ok(CU(cuDeviceGetName)(a, sizeof(a), i));
            ck_assert_cuda_ok(CU(cuDeviceGetName)(b, sizeof(b), k));
            expected = i != k && strstr(a, "A100") && strstr(b, "A100");
            ck_assert_cuda_ok(CU(cuDeviceCanAccessPeer)(&value, i, k));
            ck_assert_int_eq(value, expected);
            if (i == k) {
                ck_assert_cuda(CU(cuDeviceGetP2PAttribute)(
                                   &value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, i, k),
                               CUDA_ERROR_INVALID_DEVICE);
                continue;
            }
            ck_assert_cuda_ok(CU(cuDeviceGetP2PAttribute)(
                &value, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, i, k));
            ck_assert_int_eq(value, expected);
        }
    sim_box_done(&s);
}
END_TEST

START_TEST(a_mig_instance_is_a_device_of_its_own) {
    struct sim_box s;
    CUuuid uuid, mig;
    struct gpuid id;
    size_t total;
    char name[96];
    int n, value;

    cuda_library_init(
        &s, &(struct box_spec){
                .n_gpus = 1, .models = "a100-40g", .mig = "0:3g.20gb+1g.5gb", .seed = 3 });
    ck_assert_cuda_ok(CU(cuDeviceGetCount)(&n));
    ck_assert_int_eq(n, 1); /* CUDA shows a process one instance */
    ck_assert_cuda_ok(CU(cuDeviceGetUuid)(&uuid, 0));
    ck_assert_cuda_ok(CU(cuDeviceGetUuid_v2)(&mig, 0));
    gpuid_parse(&id, s.box->file->gpu[0].uuid);
    ck_assert_mem_eq(uuid.bytes, id.uuid, 16);
    gpuid_parse(&id, s.box->file->gpu[0].gi[0].ci[0].uuid);
    ck_assert_mem_eq(mig.bytes, id.uuid, 16);
    ck_assert_cuda_ok(CU(cuDeviceTotalMem_v2)(&total, 0));
    ck_assert_uint_eq(total, box_capacity(s.box, (struct box_part){ 0, 1 }));
    ck_assert_cuda_ok(CU(cuDeviceGetName)(name, sizeof(name), 0));
    ck_assert_ptr_nonnull(strstr(name, "MIG 3g.20gb"));
    ck_assert_cuda_ok(
        CU(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    ck_assert_int_eq(value, 42);

    /* Its memory is not the other instance's. */
    cuda_library_use(0);
    cuda_library_alloc(4 * MIB);
    ck_assert_int_eq(box_lock(s.box), 0);
    ck_assert_uint_eq(s.box->file->proc[0].usage[0].private_bytes[1],
                      box_model(s.box, 0)->context_bytes + 4 * MIB);
    ck_assert_uint_eq(s.box->file->proc[0].usage[0].gi_id, s.box->file->gpu[0].gi[0].id);
    box_unlock(s.box);
    sim_box_done(&s);
}
END_TEST

static int child_after_init(struct sim_box *s, void *argument) {
    int n;

    if (CU(cuDeviceGetCount)(&n) != CUDA_ERROR_NOT_INITIALIZED)
        return 1;
    return CU(cuInit)(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 2;
}

static int child_before_init(struct sim_box *s, void *argument) {
    int version;

    if (CU(cuDriverGetVersion)(&version) != CUDA_SUCCESS || version < 12000)
        return 1;
    return CU(cuInit)(0) == CUDA_SUCCESS ? 0 : 2;
}

START_TEST(a_child_of_a_process_that_used_cuda_cannot) {
    struct sim_box s;

    sim_box_init(&s, NULL);
    sim_box_expect_success(sim_box_fork(child_before_init, &s, NULL));
    ck_assert_cuda(CU(cuInit)(1), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuInit)(0));
    ck_assert_cuda_ok(CU(cuInit)(0));
    sim_box_expect_success(sim_box_fork(child_after_init, &s, NULL));
    ck_assert_cuda_ok(CU(cuInit)(0));
    sim_box_done(&s);
}
END_TEST

START_TEST(a_box_that_is_not_there_is_no_device) {
    setenv("GPUSIM_BOX", "/nonexistent/box", 1);
    ck_assert_cuda(CU(cuInit)(0), CUDA_ERROR_NO_DEVICE);
    ck_assert_cuda(CU(cuDeviceGetCount)(&(int){ 0 }), CUDA_ERROR_NOT_INITIALIZED);
}
END_TEST

START_TEST(a_lost_gpu_kills_its_contexts_and_makes_no_new_ones) {
    CUdeviceptr p;
    CUcontext other;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    p = cuda_library_alloc(1000);
    box_lock(s.box);
    fault_lost(s.box, 0);
    box_unlock(s.box);
    ck_assert_cuda(CU(cuMemAlloc_v2)(&p, 1000), CUDA_ERROR_DEVICE_UNAVAILABLE);
    ck_assert_cuda(CU(cuMemsetD8_v2)(p, 0, 1), CUDA_ERROR_DEVICE_UNAVAILABLE);
    ck_assert_cuda(CU(cuCtxCreate_v2)(&other, 0, 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&other, 0, 1));
    ck_assert_cuda_ok(CU(cuCtxPopCurrent_v2)(NULL));
    box_lock(s.box);
    fault_recover(s.box, 0);
    box_unlock(s.box);
    ck_assert_cuda(CU(cuMemAlloc_v2)(&p, 1000), CUDA_ERROR_DEVICE_UNAVAILABLE); /* sticky */
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxReset_v2)(0));
    cuda_library_use(0);
    cuda_library_alloc(1000);
    sim_box_done(&s);
}
END_TEST

START_TEST(an_injected_fault_hits_the_call_it_names) {
    struct box_fault fault = { .kind = FAULT_CALL_FAIL,
                               .gpu = -1,
                               .code = CUDA_ERROR_LAUNCH_FAILED,
                               .call = "cuMemAlloc_v2",
                               .remaining = 1 };
    CUdeviceptr p;
    struct sim_box s;
    uint32_t id;

    cuda_library_start(&s, NULL);
    box_lock(s.box);
    ck_assert_int_eq(fault_add(s.box, &fault, &id), 0);
    box_unlock(s.box);
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    ck_assert_cuda(CU(cuMemAlloc_v2)(&p, 10), CUDA_ERROR_LAUNCH_FAILED);
    ck_assert_cuda_ok(CU(cuMemAlloc_v2)(&p, 10));
    sim_box_done(&s);
}
END_TEST

SUITE("cuda-device", visible_devices_are_those_of_the_table, identity_is_that_of_the_box,
      every_attribute_of_the_header_is_known, peers_are_those_that_a_link_or_the_bus_connects,
      a_mig_instance_is_a_device_of_its_own, a_child_of_a_process_that_used_cuda_cannot,
      a_box_that_is_not_there_is_no_device, a_lost_gpu_kills_its_contexts_and_makes_no_new_ones,
      an_injected_fault_hits_the_call_it_names)
