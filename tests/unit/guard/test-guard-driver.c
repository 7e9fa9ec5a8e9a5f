/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which library the guard takes for the driver. This program is linked with the guard in front and
 * a library behind it that has the driver's names and loads the driver when it is called: the order
 * that a preloaded guard gives TensorFlow. Without a lease every hook passes to the driver.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/fake/loader.h"
#include "tests/support/suite.h"

/* The file that an address lies in. */
static const char *library_of(const void *address) {
    Dl_info info;
    const char *slash;

    ck_assert_int_ne(dladdr(address, &info), 0);
    slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

#define GUARD  "liballot-guard.so"
#define LOADER "libfake-loader.so"

static bool is_loaded(const char *library) {
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);

    if (handle)
        dlclose(handle);
    return handle;
}

static void *open_fake(const char *file) {
    char path[512];
    void *handle;

    snprintf(path, sizeof(path), "%s/%s", FAKE_DIR, file);
    handle = dlopen(path, RTLD_LAZY);
    ck_assert_msg(handle, "%s", dlerror());
    return handle;
}

static unsigned calls_of(void *library) {
    unsigned *n = dlsym(library, "libs_n_calls");

    ck_assert_ptr_nonnull(n);
    return *n;
}

START_TEST(a_call_by_linkage_loads_the_driver_and_reaches_it) {
    CUdeviceptr pointer = 0;

    ck_assert_str_eq(library_of((void *)cuInit), GUARD);
    ck_assert(!is_loaded("libcuda.so.1"));
    ck_assert_int_eq(loader_init(), CUDA_SUCCESS);
    ck_assert(is_loaded("libcuda.so.1"));
    ck_assert_int_eq(cuMemAlloc_v2(&pointer, 4096), CUDA_SUCCESS);
    ck_assert_uint_eq(pointer, 0x7000000 + 4096);
    ck_assert_uint_eq(calls_of(dlopen("libcuda.so.1", RTLD_LAZY)), 2);
    /* The loader's own functions were not part of it. */
    ck_assert_uint_eq(loader_n_calls, 0);
}
END_TEST

START_TEST(the_loader_s_function_is_its_own_and_leads_to_the_guard) {
    void *loader = dlopen(LOADER, RTLD_LAZY | RTLD_NOLOAD);
    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUdeviceptr pointer;

    ck_assert_ptr_nonnull(loader);
    alloc = (__typeof__(alloc))dlsym(loader, "cuMemAlloc_v2");
    ck_assert_str_eq(library_of((void *)alloc), LOADER);
    ck_assert_int_eq(alloc(&pointer, 1), CUDA_SUCCESS);
    ck_assert_int_eq(alloc(&pointer, 1), CUDA_SUCCESS);
    ck_assert_uint_eq(loader_n_calls, 1);
    ck_assert_uint_eq(calls_of(dlopen("libcuda.so.1", RTLD_LAZY)), 2);
    /* The loader got what any program gets. */
    ck_assert_str_eq(library_of(dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuMemAlloc_v2")), GUARD);
    /* And now that the driver is here the loader is still not it. */
    ck_assert_str_eq(library_of(dlsym(loader, "cuMemAlloc_v2")), LOADER);
    ck_assert_int_eq(loader_alloc(&pointer, 1), CUDA_SUCCESS);
    ck_assert_uint_eq(calls_of(dlopen("libcuda.so.1", RTLD_LAZY)), 3);
}
END_TEST

START_TEST(a_question_loads_nothing) {
    dlerror();
    ck_assert_str_eq(library_of(dlsym(RTLD_DEFAULT, "cuInit")), LOADER);
    ck_assert_str_eq(library_of(dlsym(RTLD_DEFAULT, "nvmlDeviceGetCount_v2")), LOADER);
    ck_assert_ptr_null(dlerror());
    ck_assert_ptr_null(dlsym(RTLD_DEFAULT, "cuMemCreate"));
    ck_assert_ptr_nonnull(strstr(dlerror(), "cuMemCreate"));
    ck_assert_ptr_null(dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo"));
    ck_assert_ptr_nonnull(strstr(dlerror(), "nvmlDeviceGetMemoryInfo"));
    ck_assert_ptr_null(dlsym(RTLD_NEXT, "cuMemCreate"));
    ck_assert(!is_loaded("libcuda.so.1"));
    ck_assert(!is_loaded("libnvidia-ml.so.1"));
}
END_TEST

START_TEST(without_a_driver_a_call_says_so) {
    CUdeviceptr pointer;
    unsigned n;

    /* No file can be opened. */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 0, 0 }), 0);
    ck_assert_int_eq(cuInit(0), CUDA_ERROR_SHARED_OBJECT_INIT_FAILED);
    ck_assert_int_eq(loader_alloc(&pointer, 1), CUDA_ERROR_SHARED_OBJECT_INIT_FAILED);
    ck_assert_int_eq(loader_count(&n), NVML_ERROR_LIBRARY_NOT_FOUND);
}
END_TEST

START_TEST(a_call_that_the_driver_lacks_is_not_supported) {
    CUdeviceptr pointer;

    ck_assert_int_eq(cuMemAllocManaged(&pointer, 1, 1), CUDA_ERROR_NOT_SUPPORTED);
    ck_assert_int_eq(cuMemFree_v2(0), CUDA_ERROR_NOT_SUPPORTED);
    ck_assert_ptr_null(dlsym(RTLD_DEFAULT, "cuMemAllocManaged"));
    ck_assert_str_eq(library_of(dlsym(RTLD_DEFAULT, "cuMemFree_v2")), LOADER);
}
END_TEST

START_TEST(a_copy_by_another_path_is_the_driver) {
    void *copied = open_fake("copied.so.1");

    ck_assert_str_eq(library_of(dlsym(copied, "cuMemAlloc_v2")), GUARD);
    ck_assert_int_eq(cuInit(0), CUDA_SUCCESS);
    ck_assert_uint_eq(calls_of(copied), 1);
    ck_assert_str_eq(library_of(dlsym(open_fake("libcuda.so.1"), "cuMemAlloc_v2")), GUARD);
}
END_TEST

START_TEST(a_copy_with_another_soname_is_not) {
    void *disguised = open_fake("disguised.so.1");

    ck_assert_str_eq(library_of(dlsym(disguised, "cuMemAlloc_v2")), "disguised.so.1");
    ck_assert_int_eq(cuInit(0), CUDA_SUCCESS);
    ck_assert_uint_eq(calls_of(disguised), 0);
    ck_assert_uint_eq(calls_of(dlopen("libcuda.so.1", RTLD_LAZY)), 1);
}
END_TEST

START_TEST(nvml_is_loaded_and_reached_alike) {
    unsigned n = 0;
    void *loader = dlopen(LOADER, RTLD_LAZY | RTLD_NOLOAD);
    nvmlReturn_t (*count)(unsigned *) = (__typeof__(count))dlsym(loader, "nvmlDeviceGetCount_v2");

    ck_assert_str_eq(library_of((void *)count), LOADER);
    ck_assert_int_eq(loader_count(&n), NVML_SUCCESS);
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(loader_n_calls, 0);
    ck_assert_int_eq(count(&n), NVML_SUCCESS);
    ck_assert_uint_eq(loader_n_calls, 1);
    ck_assert_uint_eq(calls_of(dlopen("libnvidia-ml.so.1", RTLD_LAZY)), 2);
    ck_assert_int_eq(nvmlDeviceGetIndex(NULL, &n), NVML_ERROR_FUNCTION_NOT_FOUND);
    ck_assert(!is_loaded("libcuda.so.1"));
}
END_TEST

/* ---- What the driver does itself ------------------------------------------------------------- */

START_TEST(what_the_driver_asks_for_is_the_driver_s) {
    void *first = open_fake("libcuda.so.1"), *second = open_fake("copied.so.1");
    void *(*ask)(void *, const char *) = (__typeof__(ask))dlsym(first, "libs_ask");

    ck_assert_int_eq(cuInit(0), CUDA_SUCCESS);
    ck_assert_str_eq(library_of(ask(first, "cuInit")), "libcuda.so.1");
    ck_assert_str_eq(library_of(ask(RTLD_DEFAULT, "cuInit")), "libcuda.so.1");
    /* One that stands in front of another gets what is behind it. */
    ck_assert_str_eq(library_of(ask(second, "cuInit")), "copied.so.1");
    ck_assert_ptr_null(ask(RTLD_NEXT, "cuInit"));
    ck_assert_ptr_null(ask(RTLD_DEFAULT, "cuMemCreate"));
    ck_assert_str_eq(library_of(dlsym(first, "cuInit")), GUARD);
}
END_TEST

/* Whether a library's calls of its own names stay in it, whatever stands in front. */
static bool is_symbolic(void *handle) {
    struct link_map *map;

    ck_assert_int_eq(dlinfo(handle, RTLD_DI_LINKMAP, &map), 0);
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_SYMBOLIC ||
            (entry->d_tag == DT_FLAGS && (entry->d_un.d_val & DF_SYMBOLIC)))
            return true;
    return false;
}

START_TEST(the_real_driver_does_not_call_the_guard) {
    const char *folder = getenv("ALLOT_TEST_REAL_DRIVER_DIR");
    char path[512];
    void *handle;

    if (!folder || !*folder) {
        puts("skipped: no libcuda of NVIDIA's; ./run test unit has one on Debian 12");
        return;
    }
    snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
    handle = dlopen(path, RTLD_NOW);
    ck_assert_msg(handle, "%s", dlerror());
    ck_assert(is_symbolic(handle));
    /* There is no device: what counts is that it answers. */
    ck_assert_int_ne(loader_init(), CUDA_ERROR_SHARED_OBJECT_INIT_FAILED);
}
END_TEST

START_TEST(the_simulated_driver_does_not_call_the_guard) {
    void *handle = dlopen(SIM_LIB_DIR "/libcuda.so.1", RTLD_NOW);

    if (!handle) {
        puts("skipped: built without the simulator");
        return;
    }
    ck_assert(is_symbolic(handle));
}
END_TEST

SUITE("guard-driver", a_call_by_linkage_loads_the_driver_and_reaches_it,
      the_loader_s_function_is_its_own_and_leads_to_the_guard, a_question_loads_nothing,
      without_a_driver_a_call_says_so, a_call_that_the_driver_lacks_is_not_supported,
      a_copy_by_another_path_is_the_driver, a_copy_with_another_soname_is_not,
      nvml_is_loaded_and_reached_alike, what_the_driver_asks_for_is_the_driver_s,
      the_real_driver_does_not_call_the_guard, the_simulated_driver_does_not_call_the_guard)
