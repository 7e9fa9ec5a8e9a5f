/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is a module as a program hands it to the driver: PTX, a cubin, a fatbin. What it needs
 * is read without a byte beyond it, is the same each time, and is not absurd for its size. As a
 * name, the input is looked up in every loaded object, where the guard's own walk must agree with
 * dlsym().
 */
#include <dlfcn.h>
#include <string.h>

#include "base/cleanup.h"
#include "guard/elf.h"
#include "guard/image.h"
#include "tests/fuzz/fuzz.h"

static bool find_libc(const struct elf_object *object, void *user) {
    if (!elf_is(object, "libc.so.6"))
        return false;
    *(struct elf_object *)user = *object;
    return true;
}

static void check_name(const char *name) {
    static struct elf_object libc;
    static void *handle;
    void *ours, *theirs;

    if (!handle) {
        fuzz_check(elf_each(find_libc, &libc));
        handle = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
        fuzz_check(handle && elf_symbol(&libc, "strlen") && !elf_symbol(&libc, "no such name"));
    }
    ours = elf_symbol(&libc, name);
    theirs = dlsym(handle, name);
    /* dlsym() also finds what libc's own dependencies define, and what an ifunc resolves to. */
    if (!ours) {
        struct elf_object of;

        fuzz_check(!theirs || (elf_object_of(theirs, &of) && !elf_is(&of, "libc.so.6")));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup(freep) char *image = malloc(size ? size : 1),
                        *name = strndup((const char *)data, MIN(size, (size_t)64));
    uint64_t bytes;

    fuzz_check(image && name);
    memcpy(image, data, size);
    bytes = image_bytes(image, size);
    fuzz_check(image_bytes(image, size) == bytes);
    if (*name)
        check_name(name);
    return 0;
}
