/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables against the vendor's own libraries, in the folder ALLOT_TEST_REAL_DRIVER_DIR (Debian's
 * packages libcuda1 and libnvidia-ml1, unpacked). They load without a GPU and say that there is
 * none; where there is one, they must work.
 */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "driver/cuda.h"
#include "driver/nvml.h"
#include "driver/nvml_calls.h"
#include "tests/support/suite.h"

#define ck_assert_has(text, part)                                                                  \
    ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in \"%s\"", part, text)

struct row {
    const char *symbol;
    bool needed;
    unsigned since;
};

static const struct row nvml_rows[] = {
#define X(needed, since, field, symbol, ...) { #symbol, needed, since },
#define X0(needed, since, field, symbol)     { #symbol, needed, since },
    NVML_CALLS(X, X0)
#undef X
#undef X0
};

static const struct row cuda_rows[] = {
#define X(needed, since, where, field, symbol, ...) { #symbol, needed, since },
#define X0(needed, since, where, field, symbol)     { #symbol, needed, since },
    CUDA_CALLS(X, X0)
#undef X
#undef X0
};

static struct driver_options options = { .choice = DRIVER_NVIDIA };

static void *load(const char *soname) {
    char path[PATH_MAX];
    void *handle;

    snprintf(path, sizeof(path), "%s/%s", options.nvidia_dir, soname);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(handle, "%s", dlerror());
    return handle;
}

/* The release of the driver, from the name of its file: 535 of libcuda.so.535.309.01. */
static unsigned release_of(const char *soname) {
    cleanup(freep) char *file = NULL;
    char path[PATH_MAX];
    const char *suffix;

    snprintf(path, sizeof(path), "%s/%s", options.nvidia_dir, soname);
    file = realpath(path, NULL);
    suffix = file ? strstr(file, ".so.") : NULL;
    return suffix ? (unsigned)atoi(suffix + strlen(".so.")) : 0;
}

/* What a driver of `version` should have it has; what came later it has not. */
static void compare(void *handle, const struct row *rows, size_t n, unsigned version) {
    for (size_t i = 0; i < n; i++) {
        bool is_there = dlsym(handle, rows[i].symbol);

        ck_assert_msg(is_there || !rows[i].needed, "%s is needed and missing", rows[i].symbol);
        ck_assert_msg(is_there == (rows[i].since <= version), "%s: since %u, %s in %u",
                      rows[i].symbol, rows[i].since, is_there ? "there" : "missing", version);
    }
}

START_TEST(nvml_has_the_names_that_its_release_should_have) {
    unsigned release = release_of("libnvidia-ml.so.1");

    ck_assert_uint_ge(release, 400);
    compare(load("libnvidia-ml.so.1"), nvml_rows, ELEMENTSOF(nvml_rows), release);
}
END_TEST

START_TEST(cuda_has_the_names_that_its_version_should_have) {
    CUresult (*get_version)(int *version);
    void *handle = load("libcuda.so.1"), *symbol = dlsym(handle, "cuDriverGetVersion");
    int version = 0;

    memcpy(&get_version, &symbol, sizeof(symbol));
    ck_assert_int_eq(get_version(&version), CUDA_SUCCESS);
    ck_assert_int_ge(version, 11000);
    compare(handle, cuda_rows, ELEMENTSOF(cuda_rows), (unsigned)version);
}
END_TEST

START_TEST(without_a_driver_nvml_says_what_is_missing) {
    struct allot_error err = { 0 };
    struct nvml_system system;
    struct nvml *nvml;
    int r = nvml_open(&nvml, &options, &err);

    if (r == 0) { /* a machine that has one */
        ck_assert_int_eq(nvml_system_read(nvml, &system, &err), 0);
        nvml_close(nvml);
        return;
    }
    printf("%s\n", err.text);
    ck_assert_int_eq(r, -ENODEV);
    ck_assert_has(err.text, "the NVIDIA kernel module is not loaded");
    ck_assert_has(err.text, "modprobe nvidia");
    ck_assert_has(err.text, "nvmlInit_v2");
    ck_assert_int_eq(nvml_open(&nvml, &options, NULL), -ENODEV); /* and again */
}
END_TEST

START_TEST(without_a_driver_cuda_says_what_is_missing) {
    struct allot_error err = { 0 };
    struct cuda *cuda;
    int r = cuda_open(&cuda, &options, &err);

    if (r == 0) {
        ck_assert_int_ge(cuda->n_devices, 1);
        cuda_close(cuda);
        return;
    }
    printf("%s\n", err.text);
    ck_assert_int_eq(r, -ENODEV);
    ck_assert_has(err.text, "the NVIDIA kernel module is not loaded");
    ck_assert_has(err.text, "cuInit");
    ck_assert_int_eq(cuda_open(&cuda, &options, NULL), -ENODEV);
}
END_TEST

/* For the leak sanitizer, where it is on: what the vendor's libraries lose is not ours to find. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void) {
    return "leak:libcuda.so\nleak:libnvidia-ml.so\n";
}

int main(void) {
    const TTest *const tests[] = {
        nvml_has_the_names_that_its_release_should_have,
        cuda_has_the_names_that_its_version_should_have,
        without_a_driver_nvml_says_what_is_missing,
        without_a_driver_cuda_says_what_is_missing,
    };

    options.nvidia_dir = getenv("ALLOT_TEST_REAL_DRIVER_DIR");
    if (!options.nvidia_dir || !*options.nvidia_dir) {
        printf("skipped: ALLOT_TEST_REAL_DRIVER_DIR names no folder with the vendor's libcuda.so.1 "
               "and libnvidia-ml.so.1\n");
        return 77;
    }
    return suite_run("driver-real", tests, ELEMENTSOF(tests), 30);
}
