/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Module: code and variables on the device. Their size is read from the image (image.h) and charged
 * before the driver loads it. The driver loads a library into each context that uses it; the guard
 * charges it once, where it is first loaded.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "guard/image.h"
#include "guard/memory.h"

/* The bytes that the module in a file takes. If the file cannot be read, the driver will refuse
 * it. */
static uint64_t file_bytes(const char *path) {
    cleanup(closep) int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct stat stat;
    uint64_t bytes;
    void *image;

    if (fd < 0 || fstat(fd, &stat) < 0 || stat.st_size <= 0)
        return 0;
    image = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (image == MAP_FAILED)
        return (uint64_t)stat.st_size;
    bytes = image_bytes(image, (size_t)stat.st_size);
    munmap(image, (size_t)stat.st_size);
    return bytes;
}

/* The body of a call that loads a module of `bytes`, and of one that loads a library. */
#define LOAD_MODULE(symbol, bytes, arguments)                                                      \
    MEMORY_TAKES(symbol, true, bytes, arguments,                                                   \
                 MEMORY_KEPT(&charge, r, TABLE_MODULE, module, memory_context(), cuModuleUnload))
#define LOAD_LIBRARY(symbol, bytes, arguments)                                                     \
    MEMORY_TAKES(symbol, true, bytes, arguments,                                                   \
                 MEMORY_KEPT(&charge, r, TABLE_LIBRARY, library, NULL, cuLibraryUnload))

CUresult cuModuleLoad(CUmodule *module, const char *fname) {
    LOAD_MODULE(cuModuleLoad, file_bytes(fname), (module, fname));
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    LOAD_MODULE(cuModuleLoadData, image ? image_bytes(image, IMAGE_UNKNOWN_LENGTH) : 0,
                (module, image));
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                            CUjit_option *options, void **optionValues) {
    LOAD_MODULE(cuModuleLoadDataEx, image ? image_bytes(image, IMAGE_UNKNOWN_LENGTH) : 0,
                (module, image, numOptions, options, optionValues));
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin) {
    LOAD_MODULE(cuModuleLoadFatBinary, fatCubin ? image_bytes(fatCubin, IMAGE_UNKNOWN_LENGTH) : 0,
                (module, fatCubin));
}

MEMORY_GIVES_BACK(cuModuleUnload, CUmodule, TABLE_MODULE)

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                           void **jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption *libraryOptions, void **libraryOptionValues,
                           unsigned int numLibraryOptions) {
    LOAD_LIBRARY(cuLibraryLoadData, code ? image_bytes(code, IMAGE_UNKNOWN_LENGTH) : 0,
                 (library, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
                  libraryOptionValues, numLibraryOptions));
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                               void **jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption *libraryOptions, void **libraryOptionValues,
                               unsigned int numLibraryOptions) {
    LOAD_LIBRARY(cuLibraryLoadFromFile, file_bytes(fileName),
                 (library, fileName, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
                  libraryOptionValues, numLibraryOptions));
}

MEMORY_GIVES_BACK(cuLibraryUnload, CUlibrary, TABLE_LIBRARY)
