/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/suite.h"

static const struct box_spec two_a100 = { .n_gpus = 2, .models = "a100-40g", .seed = 5 };

/* A file that nvcc made, with a NUL at its end; to be freed. */
static char *kernels(const char *name, size_t *ret_bytes) {
    char path[4096];
    cleanup(fclosep) FILE *file = NULL;
    char *bytes;
    long n;

    snprintf(path, sizeof(path), "%s/%s", PTX_DIR, name);
    file = fopen(path, "re");
    ck_assert_msg(file != NULL, "%s is missing", path);
    fseek(file, 0, SEEK_END);
    n = ftell(file);
    rewind(file);
    bytes = calloc(1, (size_t)n + 1);
    ck_assert_uint_eq(fread(bytes, 1, (size_t)n, file), (size_t)n);
    if (ret_bytes)
        *ret_bytes = (size_t)n;
    return bytes;
}

#define HEAD ".version 7.0\n.target sm_75\n.address_size 64\n"
/* *p = value */
#define STORE(name, value)                                                                         \
    ".visible .entry " name "(.param .u64 p)\n{\n .reg .b64 %rd<3>;\n"                             \
    " ld.param.u64 %rd1, [p];\n cvta.to.global.u64 %rd2, %rd1;\n st.global.u32 [%rd2], " value     \
    ";\n ret;\n}\n"

static int run(CUfunction function) {
    CUdeviceptr out = cuda_library_alloc(4);
    void *params[] = { &out };
    int value = -1;

    ck_assert_cuda_ok(CU(cuMemsetD32_v2)(out, 0, 1));
    ck_assert_cuda_ok(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(&value, out, 4));
    ck_assert_cuda_ok(CU(cuMemFree_v2)(out));
    return value;
}

START_TEST(a_text_becomes_a_module_with_functions) {
    const char *text = HEAD STORE("one", "1") STORE("two", "2");
    CUfunction one, two, again, all[3] = { 0 };
    const char *name;
    size_t offset, bytes;
    unsigned count;
    CUmodule module, of;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    ck_assert_cuda_ok(CU(cuModuleLoadData)(&module, text));
    ck_assert_cuda_ok(CU(cuModuleGetFunction)(&one, module, "one"));
    ck_assert_cuda_ok(CU(cuModuleGetFunction)(&two, module, "two"));
    ck_assert_cuda_ok(CU(cuModuleGetFunction)(&again, module, "one"));
    ck_assert_ptr_eq(one, again);
    ck_assert_ptr_ne(one, two);
    ck_assert_cuda(CU(cuModuleGetFunction)(&again, module, "three"), CUDA_ERROR_NOT_FOUND);
    ck_assert_cuda(CU(cuModuleGetFunction)(&again, module, ""), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuModuleGetFunction)(&again, (CUmodule)one, "one"),
                   CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda_ok(CU(cuModuleGetFunctionCount)(&count, module));
    ck_assert_uint_eq(count, 2);
    ck_assert_cuda_ok(CU(cuModuleEnumerateFunctions)(all, 3, module));
    ck_assert(all[0] == one && all[1] == two && !all[2]);
    ck_assert_cuda_ok(CU(cuFuncGetName)(&name, two));
    ck_assert_str_eq(name, "two");
    ck_assert_cuda_ok(CU(cuFuncGetModule)(&of, two));
    ck_assert_ptr_eq(of, module);
    ck_assert_cuda_ok(CU(cuFuncGetParamInfo)(two, 0, &offset, &bytes));
    ck_assert(offset == 0 && bytes == 8);
    ck_assert_cuda(CU(cuFuncGetParamInfo)(two, 1, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(run(one), 1);
    ck_assert_int_eq(run(two), 2);
    ck_assert_cuda_ok(CU(cuModuleUnload)(module));
    ck_assert_cuda(CU(cuModuleUnload)(module), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda(CU(cuFuncGetName)(&name, two), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda(CU(cuLaunchKernel)(one, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
                   CUDA_ERROR_INVALID_HANDLE);
    sim_box_done(&s);
}
END_TEST

START_TEST(variables_are_memory_of_the_context) {
    cleanup(freep) char *text = kernels("launch.O3.ptx", NULL);
    CUdeviceptr factors, counter, table, both, out;
    uint64_t before;
    float seen[256], wanted;
    int n = 0, *shared;
    CUfunction function;
    CUmodule module;
    size_t bytes;
    void *params[] = { &out };
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    before = sim_box_used(&s, 0);
    ck_assert_cuda_ok(CU(cuModuleLoadData)(&module, text));
    ck_assert_uint_gt(sim_box_used(&s, 0), before);
    ck_assert_cuda_ok(CU(cuModuleGetGlobal_v2)(&factors, &bytes, module, "factors"));
    ck_assert_uint_eq(bytes, 16);
    ck_assert_cuda_ok(CU(cuModuleGetGlobal_v2)(&counter, &bytes, module, "counter"));
    ck_assert_uint_eq(bytes, 4);
    ck_assert_cuda_ok(CU(cuModuleGetGlobal_v2)(&table, NULL, module, "table"));
    ck_assert_cuda_ok(CU(cuModuleGetGlobal_v2)(NULL, &bytes, module, "table"));
    ck_assert_uint_eq(bytes, 1024);
    ck_assert_cuda(CU(cuModuleGetGlobal_v2)(&table, &bytes, module, "no_such"),
                   CUDA_ERROR_NOT_FOUND);
    ck_assert_cuda_ok(CU(cuModuleGetGlobal_v2)(&both, &bytes, module, "shared_with_host"));
    shared = (int *)(uintptr_t)both; /* managed: the host may touch it */
    ck_assert_int_eq(*shared, 5);
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(&n, counter, 4));
    ck_assert_int_eq(n, 100);

    for (int i = 0; i < 256; i++)
        seen[i] = (float)i * 10;
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(table, seen, sizeof(seen)));
    out = cuda_library_alloc(sizeof(seen));
    ck_assert_cuda_ok(CU(cuModuleGetFunction)(&function, module, "use_variables"));
    ck_assert_cuda_ok(CU(cuLaunchKernel)(function, 1, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(seen, out, sizeof(seen)));
    for (int i = 0; i < 256; i++) {
        wanted = (float)(i * 10 + i % 4 + 1);
        ck_assert_msg(seen[i] == wanted, "%d: %g instead of %g", i, seen[i], wanted);
    }
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(&n, counter, 4));
    ck_assert_int_eq(n, 356);
    ck_assert_int_eq(*shared, 6);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(out));
    ck_assert_cuda_ok(CU(cuModuleUnload)(module));
    ck_assert_uint_eq(sim_box_used(&s, 0), before);
    ck_assert_cuda(CU(cuMemcpyDtoH_v2)(&n, counter, 4), CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_full_device_refuses_the_module) {
    const char *text = HEAD ".visible .global .align 4 .b8 large[1073741824];\n" STORE("k", "1");
    CUdeviceptr hog;
    CUmodule module;
    uint64_t used;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    hog = cuda_library_alloc((cuda_library_free_bytes() - 512 * MIB) & ~(2 * MIB - 1));
    used = sim_box_used(&s, 0);
    ck_assert_cuda(CU(cuModuleLoadData)(&module, text), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_uint_eq(sim_box_used(&s, 0), used);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(hog));
    ck_assert_cuda_ok(CU(cuModuleLoadData)(&module, text));
    sim_box_done(&s);
}
END_TEST

/* Load with logs. */
static CUresult load(CUmodule *ret, const void *image, char *error, size_t n, char *info) {
    CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER,   CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                               CU_JIT_INFO_LOG_BUFFER,    CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                               CU_JIT_WALL_TIME,          CU_JIT_MAX_REGISTERS,
                               CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_TARGET_FROM_CUCONTEXT,
                               CU_JIT_LOG_VERBOSE,        CU_JIT_GENERATE_LINE_INFO };
    void *values[] = { error,
                       (void *)n,
                       info,
                       (void *)n,
                       NULL,
                       (void *)(uintptr_t)32,
                       (void *)(uintptr_t)4,
                       NULL,
                       (void *)(uintptr_t)1,
                       NULL };
    CUresult r = CU(cuModuleLoadDataEx)(ret, image, ELEMENTSOF(options), options, values);
    float ms;

    ck_assert_uint_eq((uintptr_t)values[1], strlen(error));
    memcpy(&ms, &values[4], sizeof(ms));
    ck_assert(ms >= 0 && ms < 10000);
    return r;
}

START_TEST(what_is_wrong_with_a_text_stands_in_the_log) {
    static const struct {
        const char *text;
        CUresult answer;
        const char *line, *reason;
    } cases[] = {
        { HEAD ".visible .entry k()\n{\n bogus.u32 %r1;\n ret;\n}\n", CUDA_ERROR_INVALID_PTX,
          "line 6", "bogus" },
        { HEAD ".visible .entry k()\n{\n .reg .b32 %r<2>;\n add.u32 %r1, %r9, 1;\n ret;\n}\n",
          CUDA_ERROR_INVALID_PTX, "line 7", "%r9" },
        { HEAD ".visible .entry k()\n{\n", CUDA_ERROR_INVALID_PTX, "line", "error" },
        { "this is no PTX", CUDA_ERROR_INVALID_PTX, "line 1", "error" },
        { HEAD ".extern .func outside();\n.visible .entry k()\n{\n call outside;\n ret;\n}\n",
          CUDA_ERROR_INVALID_PTX, "", "outside" },
        { ".version 99.9\n.target sm_75\n.address_size 64\n", CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
          "line 1", "99.9" },
        { "// a comment\n.version 7.0\n.target sm_90\n.address_size 64\n", CUDA_ERROR_INVALID_PTX,
          "line 3", "sm_90" },
        { ".version 8.6\n.target sm_75a\n.address_size 64\n", CUDA_ERROR_INVALID_PTX, "line 2",
          "sm_75a" },
        { "\x01\x02\x03\x04", CUDA_ERROR_INVALID_IMAGE, "", "nvcc -ptx" },
        { "", CUDA_ERROR_INVALID_PTX, "", "" },
    };
    char error[1024], info[1024];
    CUmodule module;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        CUresult r = load(&module, cases[i].text, error, sizeof(error), info);

        ck_assert_msg(r == cases[i].answer, "case %zu: %s instead of %s: %s", i,
                      cuda_library_name(r), cuda_library_name(cases[i].answer), error);
        ck_assert_msg(strstr(error, cases[i].line) && strstr(error, cases[i].reason),
                      "case %zu: %s", i, error);
        ck_assert_cuda(CU(cuModuleLoadData)(&module, cases[i].text), cases[i].answer);
    }
    /* A log that is too small is cut, and ends with a NUL. */
    memset(error, 'x', sizeof(error));
    ck_assert_cuda(load(&module, cases[0].text, error, 16, info), CUDA_ERROR_INVALID_PTX);
    ck_assert_uint_eq(strlen(error), 15);
    ck_assert_int_eq(error[16], 'x');
    /* None of this hurt the context. */
    ck_assert_cuda_ok(load(&module, HEAD STORE("k", "7"), error, sizeof(error), info));
    ck_assert_str_eq(error, "");
    sim_box_done(&s);
}
END_TEST

START_TEST(instructions_that_are_missing_are_named) {
    const char *text =
        HEAD ".visible .entry k(.param .u64 p)\n{\n .reg .b32 %r<9>;\n .reg .f32 %f<9>;\n"
             " wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%f1}, {%r1}, {%r2}, {%f2};\n"
             " ret;\n}\n";
    char error[1024], info[1024];
    CUmodule module;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    ck_assert_cuda(load(&module, text, error, sizeof(error), info), CUDA_ERROR_INVALID_PTX);
    ck_assert_msg(strstr(error, "line 8") && strstr(error, "wmma"), "%s", error);
    sim_box_done(&s);
}
END_TEST

START_TEST(options_are_checked) {
    CUjit_option unknown = 9999, level = CU_JIT_OPTIMIZATION_LEVEL;
    void *value = (void *)(uintptr_t)9;
    CUmodule module;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    ck_assert_cuda(CU(cuModuleLoadDataEx)(&module, HEAD, 1, &unknown, &value),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuModuleLoadDataEx)(&module, HEAD, 1, &level, &value),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuModuleLoadDataEx)(&module, HEAD, 1, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuModuleLoadData)(NULL, HEAD), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuModuleLoadData)(&module, NULL), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuModuleLoad)(&module, "/no/such/file.ptx"), CUDA_ERROR_FILE_NOT_FOUND);
    sim_box_done(&s);
}
END_TEST

START_TEST(fat_binaries_are_opened_where_they_hold_plain_ptx) {
    static const struct {
        const char *file;
        CUresult answer;
        const char *reason;
    } cases[] = {
        { "launch.fatbin", CUDA_SUCCESS, "" },
        { "compressed.fatbin", CUDA_ERROR_NO_BINARY_FOR_GPU, "compressed" },
        { "machine.fatbin", CUDA_ERROR_NO_BINARY_FOR_GPU, "machine code" },
        { "launch.cubin", CUDA_ERROR_NO_BINARY_FOR_GPU, "nvcc -ptx" },
    };
    char error[1024], info[1024], path[4096];
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        size_t bytes;
        cleanup(freep) char *image = kernels(cases[i].file, &bytes);
        struct {
            int magic, version;
            const void *data;
            void *rest;
        } wrapper = { 0x466243b1, 1, image, NULL };
        CUmodule module;
        CUfunction function;
        CUresult r = load(&module, image, error, sizeof(error), info);

        ck_assert_msg(r == cases[i].answer && strstr(error, cases[i].reason), "%s: %s: %s",
                      cases[i].file, cuda_library_name(r), error);
        ck_assert_cuda(CU(cuModuleLoadData)(&module, &wrapper), cases[i].answer);
        ck_assert_cuda(CU(cuModuleLoadFatBinary)(&module, image), cases[i].answer);
        snprintf(path, sizeof(path), "%s/%s", PTX_DIR, cases[i].file);
        ck_assert_cuda(CU(cuModuleLoad)(&module, path), cases[i].answer);
        if (r == CUDA_SUCCESS)
            ck_assert_cuda_ok(CU(cuModuleGetFunction)(&function, module, "add"));
        if (i == 0) { /* damaged: entries that lie about their size */
            image[16 + 8] ^= 0x40;
            image[16 + 14] = 1;
            ck_assert_cuda(CU(cuModuleLoadData)(&module, image), CUDA_ERROR_INVALID_IMAGE);
        }
    }
    sim_box_done(&s);
}
END_TEST

START_TEST(inputs_are_linked) {
    const char *caller =
        HEAD ".extern .func (.param .b32 r) answer();\n.extern .global .align 4 .u32 base;\n"
             ".visible .entry ask(.param .u64 p)\n{\n .reg .b64 %rd<3>;\n .reg .b32 %r<4>;\n"
             " .param .b32 r;\n call (r), answer, ();\n ld.param.b32 %r1, [r];\n"
             " ld.global.u32 %r2, [base];\n add.u32 %r3, %r1, %r2;\n ld.param.u64 %rd1, [p];\n"
             " cvta.to.global.u64 %rd2, %rd1;\n st.global.u32 [%rd2], %r3;\n ret;\n}\n";
    const char *callee = HEAD ".visible .global .align 4 .u32 base = 1000;\n"
                              ".visible .func (.param .b32 r) answer()\n{\n"
                              " st.param.b32 [r], 42;\n ret;\n}\n";
    char error[1024] = "";
    CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
    void *values[] = { error, (void *)sizeof(error) };
    cleanup(freep) void *kept = NULL;
    CUfunction function;
    CUlinkState link;
    CUmodule module;
    void *cubin;
    size_t bytes;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    ck_assert_cuda_ok(CU(cuLinkCreate_v2)(2, options, values, &link));
    ck_assert_cuda_ok(CU(cuLinkAddData_v2)(link, CU_JIT_INPUT_PTX, (void *)caller,
                                           strlen(caller) + 1, "caller", 0, NULL, NULL));
    ck_assert_cuda_ok(CU(cuLinkAddData_v2)(link, CU_JIT_INPUT_PTX, (void *)callee, strlen(callee),
                                           "callee", 0, NULL, NULL));
    ck_assert_cuda_ok(CU(cuLinkComplete)(link, &cubin, &bytes));
    kept = malloc(bytes);
    memcpy(kept, cubin, bytes); /* exactly so many: a reader past the end is seen by ASan */
    ck_assert_cuda_ok(CU(cuLinkDestroy)(link));
    ck_assert_cuda(CU(cuLinkDestroy)(link), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda_ok(CU(cuModuleLoadData)(&module, kept));
    ck_assert_cuda_ok(CU(cuModuleGetFunction)(&function, module, "ask"));
    ck_assert_int_eq(run(function), 1042);

    /* Half of it: the missing symbol is named. */
    values[1] = (void *)sizeof(error);
    ck_assert_cuda_ok(CU(cuLinkCreate)(2, options, values, &link));
    ck_assert_cuda_ok(CU(cuLinkAddData)(link, CU_JIT_INPUT_PTX, (void *)caller, strlen(caller) + 1,
                                        "caller", 0, NULL, NULL));
    ck_assert_cuda(CU(cuLinkComplete)(link, &cubin, &bytes), CUDA_ERROR_INVALID_PTX);
    ck_assert_msg(strstr(error, "answer") || strstr(error, "base"), "%s", error);
    ck_assert_cuda_ok(CU(cuLinkDestroy)(link));
    /* What cuLinkComplete() made can be linked again. */
    ck_assert_cuda_ok(CU(cuLinkCreate_v2)(0, NULL, NULL, &link));
    ck_assert_cuda_ok(
        CU(cuLinkAddData_v2)(link, CU_JIT_INPUT_CUBIN, kept, bytes, "both", 0, NULL, NULL));
    ck_assert_cuda_ok(CU(cuLinkComplete)(link, &cubin, &bytes));
    ck_assert_cuda_ok(CU(cuLinkDestroy)(link));
    ck_assert_cuda_ok(CU(cuLinkCreate_v2)(0, NULL, NULL, &link));
    ck_assert_cuda(CU(cuLinkAddFile_v2)(link, CU_JIT_INPUT_PTX, "/no/such", 0, NULL, NULL),
                   CUDA_ERROR_FILE_NOT_FOUND);
    ck_assert_cuda_ok(
        CU(cuLinkAddFile_v2)(link, CU_JIT_INPUT_PTX, PTX_DIR "/launch.O3.ptx", 0, NULL, NULL));
    ck_assert_cuda_ok(CU(cuLinkComplete)(link, &cubin, &bytes));
    ck_assert_cuda_ok(CU(cuLinkDestroy)(link));
    sim_box_done(&s);
}
END_TEST

START_TEST(a_library_is_a_module_in_each_context) {
    /* A kernel that uses a variable: reading its attributes first must not fix its address. */
    const char *text =
        HEAD ".visible .global .align 4 .u32 mine = 3;\n"
             ".visible .global .attribute(.managed) .align 4 .u32 ours = 4;\n"
             ".visible .entry look(.param .u64 p)\n{\n .reg .b64 %rd<3>;\n .reg .b32 %r<2>;\n"
             " ld.param.u64 %rd1, [p];\n cvta.to.global.u64 %rd2, %rd1;\n"
             " ld.global.u32 %r1, [mine];\n st.global.u32 [%rd2], %r1;\n ret;\n}\n" STORE("k", "9");
    CUcontext first, second;
    CUdeviceptr a, b, ours;
    CUfunction in_first, in_second;
    CUkernel kernel, look, all[3];
    CUlibrary library, of;
    CUmodule module;
    const char *name;
    unsigned count;
    size_t bytes;
    int value;
    struct sim_box s;

    cuda_library_init(&s, &two_a100);
    /* Without a context: a library needs none. */
    ck_assert_cuda_ok(CU(cuLibraryLoadData)(&library, text, NULL, NULL, 0, NULL, NULL, 0));
    ck_assert_cuda_ok(CU(cuLibraryGetKernel)(&kernel, library, "k"));
    ck_assert_cuda(CU(cuLibraryGetKernel)(&kernel, library, "x"), CUDA_ERROR_NOT_FOUND);
    ck_assert_cuda_ok(CU(cuLibraryGetKernelCount)(&count, library));
    ck_assert_uint_eq(count, 2);
    ck_assert_cuda_ok(CU(cuLibraryEnumerateKernels)(all, 3, library));
    ck_assert(all[0] == kernel || all[1] == kernel);
    ck_assert_cuda_ok(CU(cuLibraryGetKernel)(&look, library, "look"));
    ck_assert_cuda_ok(CU(cuKernelGetAttribute)(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, look, 1));
    ck_assert_cuda_ok(CU(cuKernelGetName)(&name, kernel));
    ck_assert_str_eq(name, "k");
    ck_assert_cuda_ok(CU(cuKernelGetLibrary)(&of, kernel));
    ck_assert_ptr_eq(of, library);
    ck_assert_cuda_ok(
        CU(cuKernelGetAttribute)(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 1));
    ck_assert_int_eq(value, 1024);
    ck_assert_cuda_ok(CU(cuKernelGetParamInfo)(kernel, 0, &bytes, NULL));
    ck_assert_uint_eq(bytes, 0);
    ck_assert_cuda(CU(cuKernelGetFunction)(&in_first, kernel), CUDA_ERROR_INVALID_CONTEXT);
    ck_assert_cuda_ok(CU(cuKernelSetAttribute)(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                               100000, kernel, 1));

    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&first, 0));
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&second, 1));
    ck_assert_cuda_ok(CU(cuCtxSetCurrent)(first));
    ck_assert_cuda_ok(CU(cuKernelGetFunction)(&in_first, kernel));
    ck_assert_int_eq(run((CUfunction)kernel), 9); /* a kernel is launched like a function */
    ck_assert_int_eq(run(in_first), 9);
    ck_assert_cuda_ok(CU(cuKernelGetAttribute)(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, look, 1));
    ck_assert_int_eq(run((CUfunction)look), 3);
    ck_assert_cuda_ok(CU(cuLibraryGetGlobal)(&a, &bytes, library, "mine"));
    ck_assert_cuda_ok(CU(cuLibraryGetManaged)(&ours, &bytes, library, "ours"));
    ck_assert_cuda(CU(cuLibraryGetManaged)(&ours, &bytes, library, "mine"), CUDA_ERROR_NOT_FOUND);
    ck_assert_cuda_ok(CU(cuLibraryGetModule)(&module, library));
    ck_assert_cuda(CU(cuModuleUnload)(module), CUDA_ERROR_NOT_PERMITTED);
    ck_assert_cuda_ok(
        CU(cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, in_first));
    ck_assert_int_eq(value, 48 * 1024);

    ck_assert_cuda_ok(CU(cuCtxSetCurrent)(second));
    ck_assert_cuda_ok(CU(cuKernelGetFunction)(&in_second, kernel));
    ck_assert_ptr_ne(in_first, in_second);
    ck_assert_cuda_ok(CU(cuLibraryGetGlobal)(&b, &bytes, library, "mine"));
    ck_assert_uint_ne(a, b);
    ck_assert_int_eq(run((CUfunction)look), 3);
    ck_assert_int_eq(run((CUfunction)kernel), 9);
    ck_assert_cuda_ok(
        CU(cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, in_second));
    ck_assert_int_eq(value, 100000);
    /* One of its contexts ends before it, and comes back. */
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxReset_v2)(0));
    ck_assert_int_eq(run((CUfunction)kernel), 9);
    ck_assert_cuda_ok(CU(cuLibraryUnload)(library));
    ck_assert_cuda(CU(cuLibraryUnload)(library), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda(CU(cuKernelGetName)(&name, kernel), CUDA_ERROR_INVALID_HANDLE);
    sim_box_done(&s);
}
END_TEST

START_TEST(modules_end_with_their_context) {
    CUcontext context;
    CUfunction function;
    CUmodule module;
    uint64_t before;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    before = sim_box_used(&s, 1);
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&context, 0, 1));
    ck_assert_cuda_ok(CU(cuModuleLoadData)(
        &module, HEAD ".visible .global .align 4 .b8 big[8388608];\n" STORE("k", "1")));
    ck_assert_cuda_ok(CU(cuModuleGetFunction)(&function, module, "k"));
    ck_assert_int_eq(run(function), 1);
    ck_assert_cuda_ok(CU(cuCtxDestroy_v2)(context));
    ck_assert_uint_eq(sim_box_used(&s, 1), before);
    ck_assert_cuda(CU(cuModuleUnload)(module), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda(CU(cuModuleGetFunction)(&function, module, "k"), CUDA_ERROR_INVALID_HANDLE);
    sim_box_done(&s);
}
END_TEST

START_TEST(attributes_say_what_the_text_says) {
    cleanup(freep) char *text = kernels("launch.O3.ptx", NULL);
    CUfunctionLoadingState state;
    CUfunction function;
    CUmodule module;
    int value;
    struct sim_box s;
    struct {
        const char *kernel;
        CUfunction_attribute attribute;
        int wanted;
    } cases[] = {
        { "bounded", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 128 },
        { "add", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024 },
        { "matmul", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 2048 },
        { "matmul", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 48 * 1024 - 2048 },
        { "matmul", CU_FUNC_ATTRIBUTE_PTX_VERSION, 75 },
        { "matmul", CU_FUNC_ATTRIBUTE_BINARY_VERSION, 80 },
        { "matmul", CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -1 },
    };

    cuda_library_start(&s, &two_a100);
    ck_assert_cuda_ok(CU(cuModuleLoadData)(&module, text));
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        ck_assert_cuda_ok(CU(cuModuleGetFunction)(&function, module, cases[i].kernel));
        ck_assert_cuda_ok(CU(cuFuncGetAttribute)(&value, cases[i].attribute, function));
        ck_assert_msg(value == cases[i].wanted, "case %zu: %d", i, value);
    }
    ck_assert_cuda_ok(CU(cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
    ck_assert_int_gt(value, 0);
    ck_assert_cuda(CU(cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_MAX, function),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuFuncSetAttribute)(function, CU_FUNC_ATTRIBUTE_NUM_REGS, 1),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(
        CU(cuFuncSetAttribute)(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101),
        CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuFuncSetCacheConfig)(function, CU_FUNC_CACHE_PREFER_L1));
    ck_assert_cuda_ok(
        CU(cuFuncSetSharedMemConfig)(function, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
    ck_assert_cuda_ok(CU(cuModuleGetFunction)(&function, module, "sum"));
    ck_assert_cuda_ok(CU(cuFuncIsLoaded)(&state, function));
    ck_assert_int_eq(state, CU_FUNCTION_LOADING_STATE_UNLOADED);
    ck_assert_cuda_ok(CU(cuFuncLoad)(function));
    ck_assert_cuda_ok(CU(cuFuncIsLoaded)(&state, function));
    ck_assert_int_eq(state, CU_FUNCTION_LOADING_STATE_LOADED);
    sim_box_done(&s);
}
END_TEST

/* A megabyte of text of which one kernel is used. */
START_TEST(a_large_module_loads_lazily) {
    cleanup(freep) char *text = NULL;
    struct timespec began, ended;
    CUfunction function;
    CUmodule module;
    size_t n = 0;
    FILE *stream = open_memstream(&text, &n);
    double ms;
    struct sim_box s;

    ck_assert_ptr_nonnull(stream);
    fputs(HEAD, stream);
    for (int i = 0; ftell(stream) < 1 << 20; i++) {
        fprintf(stream,
                ".visible .entry k%d(.param .u64 p)\n{\n .reg .b64 %%rd<3>;\n"
                " .reg .b32 %%r<40>;\n mov.u32 %%r1, %d;\n",
                i, i);
        for (int k = 1; k < 39; k++)
            fprintf(stream, " mad.lo.s32 %%r%d, %%r%d, %%r1, %d;\n", k + 1, k, k);
        fputs(" ld.param.u64 %rd1, [p];\n cvta.to.global.u64 %rd2, %rd1;\n"
              " st.global.u32 [%rd2], %r1;\n ret;\n}\n",
              stream);
    }
    fclose(stream);
    cuda_library_start(&s, &two_a100);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &began);
    ck_assert_cuda_ok(CU(cuModuleLoadData)(&module, text));
    ck_assert_cuda_ok(CU(cuModuleGetFunction)(&function, module, "k77"));
    ck_assert_int_eq(run(function), 77);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended);
    ms =
        (double)(ended.tv_sec - began.tv_sec) * 1e3 + (double)(ended.tv_nsec - began.tv_nsec) / 1e6;
    printf("%zu bytes of PTX loaded and one kernel run in %.1f ms of CPU time\n", n, ms);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__OPTIMIZE__)
    /* The goal is 30. CPU time does not depend on what else runs, only on how fast the CPU is. */
    ck_assert_msg(ms < 300, "%.1f ms", ms);
#endif
    sim_box_done(&s);
}
END_TEST

SUITE("cuda-module", a_text_becomes_a_module_with_functions, variables_are_memory_of_the_context,
      a_full_device_refuses_the_module, what_is_wrong_with_a_text_stands_in_the_log,
      instructions_that_are_missing_are_named, options_are_checked,
      fat_binaries_are_opened_where_they_hold_plain_ptx, inputs_are_linked,
      a_library_is_a_module_in_each_context, modules_end_with_their_context,
      attributes_say_what_the_text_says, a_large_module_loads_lazily)
