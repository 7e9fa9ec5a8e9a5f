/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/suite.h"

static const char *const names[] = {
#define FUNCTION(name)    #name,
#define DATA(name, bytes) #name,
#include "vendor/cuda_names.def"
#undef FUNCTION
#undef DATA
};

/* What the simulator adds: its marker, what its cuBLAS needs, and its part of modelled time. */
static const char *const own_names[] = { "gpusimMarker", "gpusimPrivate", "gpusimHostClock",
                                         "gpusimHostWork" };

static bool listed(const char *name) {
    for (size_t i = 0; i < ELEMENTSOF(names); i++)
        if (!strcmp(names[i], name))
            return true;
    for (size_t i = 0; i < ELEMENTSOF(own_names); i++)
        if (!strcmp(own_names[i], name))
            return true;
    return false;
}

START_TEST(the_library_exports_every_name_of_the_list_and_nothing_else) {
    int fd = open(SIM_CUDA, O_RDONLY | O_CLOEXEC);
    unsigned n_exported = 0;
    struct stat st;
    const char *file;
    const Elf64_Ehdr *elf;
    const Elf64_Shdr *sections;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fstat(fd, &st), 0);
    file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    ck_assert_ptr_ne(file, MAP_FAILED);
    elf = (const Elf64_Ehdr *)file;
    sections = (const Elf64_Shdr *)(file + elf->e_shoff);
    for (unsigned s = 0; s < elf->e_shnum; s++) {
        const Elf64_Sym *symbols = (const Elf64_Sym *)(file + sections[s].sh_offset);
        const char *strings;

        if (sections[s].sh_type != SHT_DYNSYM)
            continue;
        strings = file + sections[sections[s].sh_link].sh_offset;
        for (size_t i = 0; i < sections[s].sh_size / sizeof(*symbols); i++) {
            const char *name = strings + symbols[i].st_name;

            if (symbols[i].st_shndx == SHN_UNDEF || !*name)
                continue;
            ck_assert_msg(listed(name), "%s is exported and in no list", name);
            n_exported++;
        }
    }
    ck_assert_uint_eq(n_exported, ELEMENTSOF(names) + ELEMENTSOF(own_names));
    for (size_t i = 0; i < ELEMENTSOF(names); i++)
        cuda_library_symbol(names[i]);
}
END_TEST

START_TEST(what_is_not_there_says_not_initialized_and_then_not_supported) {
    struct sim_box s;

    sim_box_init(&s, NULL);
    ck_assert_cuda(CU(cuGraphDebugDotPrint)(NULL, NULL, 0), CUDA_ERROR_NOT_INITIALIZED);
    ck_assert_cuda(CU(cuMemAlloc_v2)(NULL, 0), CUDA_ERROR_NOT_INITIALIZED);
    ck_assert_cuda_ok(CU(cuInit)(0));
    ck_assert_cuda(CU(cuGraphDebugDotPrint)(NULL, NULL, 0), CUDA_ERROR_NOT_SUPPORTED);
    sim_box_done(&s);
}
END_TEST

static char *read_header(const char *name) {
    char path[4096];
    FILE *f;
    char *text;
    size_t n;

    snprintf(path, sizeof(path), "%s/%s", CUDA_HEADERS, name);
    f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s cannot be read", path);
    text = malloc(8 << 20);
    n = fread(text, 1, (8 << 20) - 1, f);
    text[n] = 0;
    fclose(f);
    return text;
}

static void *address(const char *name, int version, cuuint64_t flags) {
    CUdriverProcAddressQueryResult status;
    void *found = NULL;

    if (CU(cuGetProcAddress_v2)(name, &found, version, flags, &status) != CUDA_SUCCESS)
        return NULL;
    ck_assert_int_eq(found != NULL, status == CU_GET_PROC_ADDRESS_SUCCESS);
    return found;
}

START_TEST(every_typedef_of_the_vendor_has_its_symbol) {
    cleanup(freep) char *text = read_header("cudaTypedefs.h");
    struct sim_box s;
    regmatch_t match[5];
    regex_t typedefs;
    unsigned n = 0;

    sim_box_init(&s, NULL);
    ck_assert_int_eq(
        regcomp(&typedefs, "\\*PFN_(cu[A-Za-z0-9]+)_v([0-9]+)(_pt[sd][sz])?\\)\\(", REG_EXTENDED),
        0);
    for (const char *at = text; !regexec(&typedefs, at, 5, match, 0); at += match[0].rm_eo) {
        char name[128];
        int version = atoi(at + match[2].rm_so);
        bool per_thread = match[3].rm_so >= 0;
        void *found, *before;
        Dl_info info;

        snprintf(name, sizeof(name), "%.*s", (int)(match[1].rm_eo - match[1].rm_so),
                 at + match[1].rm_so);
        if (version > 13000) /* newer than the list of names */
            continue;
        found = address(name, version,
                        per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                   : CU_GET_PROC_ADDRESS_LEGACY_STREAM);
        ck_assert_msg(found != NULL, "%s of version %d is not found", name, version);
        ck_assert_int_ne(dladdr(found, &info), 0);
        ck_assert_msg(!strncmp(info.dli_sname, name, strlen(name)), "%s of version %d is %s", name,
                      version, info.dli_sname);
        if (per_thread)
            ck_assert_msg(strstr(info.dli_sname, "_pt") != NULL, "%s is %s", name, info.dli_sname);
        /* Each version is a function of its own. */
        before = address(name, version - 1, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
        ck_assert_msg(before != found, "%s is the same before version %d", name, version);
        n++;
    }
    regfree(&typedefs);
    ck_assert_uint_gt(n, 550);
    sim_box_done(&s);
}
END_TEST

START_TEST(todays_version_is_what_the_header_makes_of_the_name) {
    cleanup(freep) char *text = read_header("cuda.h");
    struct sim_box s;
    regmatch_t match[4];
    regex_t defines;
    unsigned n = 0;

    sim_box_init(&s, NULL);
    ck_assert_int_eq(
        regcomp(&defines,
                "#define (cu[A-Z][A-Za-z0-9]*) +(__CUDA_API_PTSZ\\(|__CUDA_API_PTDS\\()"
                "?(cu[A-Za-z0-9_]+)",
                REG_EXTENDED),
        0);
    for (const char *at = text; !regexec(&defines, at, 4, match, 0); at += match[0].rm_eo) {
        char name[128], symbol[128];
        void *found;

        snprintf(name, sizeof(name), "%.*s", (int)(match[1].rm_eo - match[1].rm_so),
                 at + match[1].rm_so);
        snprintf(symbol, sizeof(symbol), "%.*s", (int)(match[3].rm_eo - match[3].rm_so),
                 at + match[3].rm_so);
        if (!listed(symbol) || !strncmp(name, "cuGL", 4))
            continue;
        /* Here the vendor's two headers disagree: programs get the old, loaders the new one. */
        if (!strcmp(name, "cuStreamGetCtx"))
            continue;
        found = address(name, 13000, CU_GET_PROC_ADDRESS_DEFAULT);
        ck_assert_msg(found == cuda_library_symbol(symbol), "%s is not %s", name, symbol);
        n++;
    }
    regfree(&defines);
    ck_assert_uint_gt(n, 60);
    sim_box_done(&s);
}
END_TEST

START_TEST(the_newest_version_that_is_not_too_new_is_given) {
    struct sim_box s;

    sim_box_init(&s, NULL);
    ck_assert_ptr_eq(address("cuCtxCreate", 3020, 0), cuda_library_symbol("cuCtxCreate_v2"));
    ck_assert_ptr_eq(address("cuCtxCreate", 11030, 0), cuda_library_symbol("cuCtxCreate_v2"));
    ck_assert_ptr_eq(address("cuCtxCreate", 11040, 0), cuda_library_symbol("cuCtxCreate_v3"));
    ck_assert_ptr_eq(address("cuCtxCreate", 12050, 0), cuda_library_symbol("cuCtxCreate_v4"));
    ck_assert_ptr_eq(address("cuCtxCreate", 13000, 0), cuda_library_symbol("cuCtxCreate_v4"));
    ck_assert_ptr_eq(address("cuGraphInstantiate", 12000, 0),
                     cuda_library_symbol("cuGraphInstantiateWithFlags"));
    ck_assert_ptr_eq(address("cuGetProcAddress", 11030, 0),
                     cuda_library_symbol("cuGetProcAddress"));
    ck_assert_ptr_eq(address("cuGetProcAddress", 12000, 0),
                     cuda_library_symbol("cuGetProcAddress_v2"));
    sim_box_done(&s);
}
END_TEST

START_TEST(the_default_stream_of_the_thread_is_a_matter_of_flags) {
    const cuuint64_t own = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    struct sim_box s;

    sim_box_init(&s, NULL);
    ck_assert_ptr_eq(address("cuMemcpyHtoD", 12000, own),
                     cuda_library_symbol("cuMemcpyHtoD_v2_ptds"));
    ck_assert_ptr_eq(address("cuMemcpyHtoD", 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM),
                     cuda_library_symbol("cuMemcpyHtoD_v2"));
    ck_assert_ptr_eq(address("cuStreamQuery", 12000, own),
                     cuda_library_symbol("cuStreamQuery_ptsz"));
    /* No variant, or none that old: the legacy one. */
    ck_assert_ptr_eq(address("cuMemAlloc", 12000, own), cuda_library_symbol("cuMemAlloc_v2"));
    ck_assert_ptr_eq(address("cuMemcpyHtoD", 6050, own), cuda_library_symbol("cuMemcpyHtoD_v2"));
    sim_box_done(&s);
}
END_TEST

START_TEST(a_miss_says_why) {
    CUdriverProcAddressQueryResult status;
    void *found = &status;
    struct sim_box s;

    sim_box_init(&s, NULL);
    ck_assert_cuda_ok(CU(cuGetProcAddress_v2)("cuNoSuchThing", &found, 12000, 0, &status));
    ck_assert_ptr_null(found);
    ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    ck_assert_cuda_ok(CU(cuGetProcAddress_v2)("cuMemAllocAsync", &found, 11010, 0, &status));
    ck_assert_ptr_null(found);
    ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    ck_assert_cuda(CU(cuGetProcAddress)("cuNoSuchThing", &found, 12000, 0), CUDA_ERROR_NOT_FOUND);
    ck_assert_cuda(CU(cuGetProcAddress_v2)("cuInit", &found, 99000, 0, &status),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuGetProcAddress_v2)("cuInit", &found, 12000, 7, &status),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuGetProcAddress_v2)(NULL, &found, 12000, 0, &status),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuGetProcAddress_v2)("cuInit", &found, 2000, 0, NULL));
    ck_assert_ptr_eq(found, cuda_library_symbol("cuInit"));
    sim_box_done(&s);
}
END_TEST

START_TEST(every_result_has_a_name_and_a_sentence) {
    cleanup(freep) char *text = read_header("cuda.h");
    const char *begin = strstr(text, "typedef enum cudaError_enum");
    char *end = strstr(text, "} CUresult;");
    regmatch_t match[3];
    regex_t values;
    unsigned n = 0;

    ck_assert_ptr_nonnull(begin);
    *end = 0;
    regcomp(&values, "\n +(CUDA_[A-Z0-9_]+) *= *([0-9]+)", REG_EXTENDED);
    for (const char *at = begin; !regexec(&values, at, 3, match, 0); at += match[0].rm_eo) {
        CUresult value = (CUresult)atoi(at + match[2].rm_so);
        const char *name, *sentence;

        if (CU(cuGetErrorName)(value, &name) != CUDA_SUCCESS) /* of a later header */
            continue;
        ck_assert_int_eq(strncmp(name, at + match[1].rm_so, strlen(name)), 0);
        ck_assert_cuda_ok(CU(cuGetErrorString)(value, &sentence));
        ck_assert_uint_gt(strlen(sentence), 5);
        n++;
    }
    regfree(&values);
    ck_assert_uint_ge(n, 101);
    {
        const char *name = "";

        ck_assert_cuda(CU(cuGetErrorName)((CUresult)12345, &name), CUDA_ERROR_INVALID_VALUE);
        ck_assert_ptr_null(name);
        ck_assert_cuda_ok(CU(cuGetErrorString)(CUDA_ERROR_OUT_OF_MEMORY, &name));
        ck_assert_str_eq(name, "out of memory");
    }
}
END_TEST

SUITE("cuda-names", the_library_exports_every_name_of_the_list_and_nothing_else,
      what_is_not_there_says_not_initialized_and_then_not_supported,
      every_typedef_of_the_vendor_has_its_symbol,
      todays_version_is_what_the_header_makes_of_the_name,
      the_newest_version_that_is_not_too_new_is_given,
      the_default_stream_of_the_thread_is_a_matter_of_flags, a_miss_says_why,
      every_result_has_a_name_and_a_sentence)
