/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/driver/fake_driver.h"

#include <check.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

static const char *soname_of(const char *library) {
    return strcmp(library, "nvml") == 0   ? "libnvidia-ml.so.1"
           : strcmp(library, "cuda") == 0 ? "libcuda.so.1"
                                          : "libcublas.so.12"; /* the second choice */
}

void fake_driver_init(struct fake_driver *fake_driver, ...) {
    const char *library;
    va_list args;

    strcpy(fake_driver->dir, "/tmp/allot-fakes.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(fake_driver->dir));
    fake_driver->options = (struct driver_options){
        .choice = DRIVER_NVIDIA,
        .nvidia_dir = fake_driver->dir,
        .proc_dir = fake_driver->dir,
    };
    va_start(args, fake_driver);
    while ((library = va_arg(args, const char *))) {
        const char *variant = va_arg(args, const char *);
        char file[PATH_MAX], link[PATH_MAX];

        snprintf(file, sizeof(file), "%s/fake-%s-%s.so", TEST_FAKES, library, variant);
        snprintf(link, sizeof(link), "%s/%s", fake_driver->dir, soname_of(library));
        ck_assert_msg(access(file, R_OK) == 0, "%s is not built", file);
        ck_assert_int_eq(symlink(file, link), 0);
    }
    va_end(args);
}

void fake_driver_done(struct fake_driver *fake_driver) {
    DIR *dir = opendir(fake_driver->dir);
    struct dirent *entry;

    while (dir && (entry = readdir(dir)))
        unlinkat(dirfd(dir), entry->d_name, 0); /* "." and ".." do not go */
    if (dir)
        closedir(dir);
    rmdir(fake_driver->dir);
}

struct fake *fake_driver_lever(const struct fake_driver *fake_driver, const char *library) {
    char path[PATH_MAX];
    struct fake *lever;
    void *handle;

    snprintf(path, sizeof(path), "%s/%s", fake_driver->dir, soname_of(library));
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(handle, "%s", dlerror());
    lever = dlsym(handle, "fake");
    ck_assert_ptr_nonnull(lever);
    return lever;
}

void fake_driver_module(struct fake_driver *fake_driver, const char *version) {
    cleanup(fclosep) FILE *file = NULL;
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/version", fake_driver->dir);
    file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    fprintf(file,
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  Thu Dec 28 12:00:00 UTC 2023\n"
            "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
            version);
}
