/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "driver/cublas.h"
#include "driver/cuda.h"
#include "tests/support/driver/fake_driver.h"
#include "tests/support/suite.h"

#define ck_assert_has(text, part)                                                                  \
    ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in \"%s\"", part, text)

struct world {
    struct fake_driver fake_driver;
    struct fake *lever;
    struct cuda *cuda;
    struct allot_error err;
};

static void world_init(struct world *w) {
    *w = (struct world){ 0 };
    fake_driver_init(&w->fake_driver, "cuda", "full", "cublas", "full", NULL);
    w->lever = fake_driver_lever(&w->fake_driver, "cuda");
    ck_assert_msg(cuda_open(&w->cuda, &w->fake_driver.options, &w->err) == 0, "%s", w->err.text);
}

static void world_done(struct world *w) {
    cuda_close(w->cuda);
    fake_driver_done(&w->fake_driver);
}

START_TEST(each_code_is_an_errno_and_a_sentence) {
    static const struct {
        int code, error;
        const char *name, *text;
    } rows[] = {
#define X(code, name, error, text) { code, error, #name, text },
#include "driver/cuda_codes.h"
#undef X
    };
    cleanup(world_done) struct world w;

    world_init(&w);
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        CUdeviceptr pointer;
        char wanted[512];

        w.lever->code = rows[i].code;
        ck_assert_int_eq(cuda_mem_alloc(w.cuda, &w.err, &pointer, 1), rows[i].error);
        ck_assert_int_lt(rows[i].error, 0);
        snprintf(wanted, sizeof(wanted),
                 "cuMemAlloc_v2 on CUDA device 1 (GPU-11111111-1111-1111-1111-111111111111, Fake "
                 "1): %s (%s %d)",
                 rows[i].text, rows[i].name, rows[i].code);
        ck_assert_str_eq(w.err.text, wanted);
    }
    w.lever->code = 12345;
    ck_assert_int_eq(cuda_ctx_synchronize(w.cuda, &w.err), -EIO);
    ck_assert_has(w.err.text, "cuCtxSynchronize on CUDA device 1");
}
END_TEST

START_TEST(an_error_names_the_device_it_concerns) {
    cleanup(world_done) struct world w;
    CUcontext context;
    int value;

    world_init(&w);
    ck_assert_int_eq(w.cuda->n_devices, 2);
    ck_assert_int_eq(w.cuda->version, 12040);
    w.lever->code = 46;
    ck_assert_int_eq(cuda_primary_ctx_retain(w.cuda, &w.err, &context, 0), -EBUSY);
    ck_assert_has(w.err.text, "cuDevicePrimaryCtxRetain on CUDA device 0 (GPU-00000000-");
    w.lever->code = 101;
    ck_assert_int_eq(
        cuda_device_get_attribute(w.cuda, &w.err, &value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 17),
        -EINVAL);
    ck_assert_has(w.err.text, "cuDeviceGetAttribute on CUDA device 17:");
    ck_assert_int_eq(cuda_mem_free(w.cuda, NULL, 1), -EINVAL);
    w.lever->code = 600;
    ck_assert_int_eq(cuda_stream_query(w.cuda, NULL, NULL), -EAGAIN);
}
END_TEST

START_TEST(no_device_says_where_to_look) {
    cleanup(fake_driver_done) struct fake_driver fake_driver;
    struct allot_error err;
    struct cuda *cuda;

    fake_driver_init(&fake_driver, "cuda", "full", NULL);
    fake_driver_lever(&fake_driver, "cuda")->init_code = 100;
    ck_assert_int_eq(cuda_open(&cuda, &fake_driver.options, &err), -ENODEV);
    ck_assert_has(err.text, "the NVIDIA kernel module is not loaded");
    fake_driver_module(&fake_driver, "550.54.14");
    ck_assert_int_eq(cuda_open(&cuda, &fake_driver.options, &err), -ENODEV);
    ck_assert_has(err.text, "the NVIDIA driver 550.54.14 is loaded but no device is visible");
    ck_assert_has(err.text, "CUDA_VISIBLE_DEVICES");
    fake_driver_lever(&fake_driver, "cuda")->init_code = 803;
    ck_assert_int_eq(cuda_open(&cuda, &fake_driver.options, &err), -ELIBBAD);
    ck_assert_has(err.text, "reboot or reload the module");
    fake_driver_lever(&fake_driver, "cuda")->init_code = 34;
    ck_assert_int_eq(cuda_open(&cuda, &fake_driver.options, &err), -ELIBBAD);
    ck_assert_has(err.text, "stub");
}
END_TEST

START_TEST(cublas_answers_alike) {
    static const struct {
        int code, error;
        const char *text;
    } rows[] = {
#define X(code, name, error, text) { code, error, text },
#include "vendor/cublas_codes.h"
#undef X
    };
    cleanup(world_done) struct world w;
    cleanup(cublas_closep) struct cublas *cublas = NULL;
    cublasHandle_t handle = NULL;
    float one = 1;

    world_init(&w);
    ck_assert_msg(cublas_open(&cublas, w.cuda, &w.fake_driver.options, &w.err) == 0, "%s",
                  w.err.text);
    ck_assert_int_eq(cublas_create(cublas, &w.err, &handle), 0);
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        fake_driver_lever(&w.fake_driver, "cublas")->code = rows[i].code;
        ck_assert_int_eq(cublas_sgemm(cublas, &w.err, handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1,
                                      &one, &one, 1, &one, 1, &one, &one, 1),
                         rows[i].error);
        ck_assert_has(w.err.text, "cublasSgemm_v2 on CUDA device 1 (GPU-1");
        ck_assert_has(w.err.text, rows[i].text);
    }
}
END_TEST

START_TEST(cublas_that_is_not_there_is_an_error_to_live_with) {
    cleanup(fake_driver_done) struct fake_driver fake_driver;
    struct allot_error err;
    struct cublas *cublas;

    fake_driver_init(&fake_driver, NULL);
    ck_assert_int_eq(cublas_open(&cublas, NULL, &fake_driver.options, &err), -ELIBACC);
    ck_assert_has(err.text, "the CUDA toolkit");
}
END_TEST

SUITE("driver-cuda", each_code_is_an_errno_and_a_sentence, an_error_names_the_device_it_concerns,
      no_device_says_where_to_look, cublas_answers_alike,
      cublas_that_is_not_there_is_an_error_to_live_with)
