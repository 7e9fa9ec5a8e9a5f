/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <string.h>

#include "guard/elf.h"
#include "tests/support/suite.h"

struct find {
    const char *soname;
    struct elf_object object;
};

static bool is_it(const struct elf_object *object, void *user) {
    struct find *find = user;

    if (!object->soname || strcmp(object->soname, find->soname) != 0)
        return false;
    find->object = *object;
    return true;
}

START_TEST(a_symbol_is_where_the_dynamic_linker_finds_it) {
    static const char *const names[] = { "malloc", "qsort", "environ", "getpid" };
    struct find libc = { .soname = "libc.so.6" };

    ck_assert(elf_each(is_it, &libc));
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        void *handle = dlopen("libc.so.6", RTLD_NOLOAD | RTLD_LAZY);

        ck_assert_ptr_eq(elf_symbol(&libc.object, names[i]), dlsym(handle, names[i]));
        dlclose(handle);
    }
    ck_assert_ptr_null(elf_symbol(&libc.object, "cuMemAlloc_v2"));
    ck_assert_ptr_null(elf_symbol(&libc.object, ""));
}
END_TEST

START_TEST(functions_that_are_chosen_at_run_time_are_called_to_choose) {
    struct find libc = { .soname = "libc.so.6" };
    char text[] = "abc";
    void *address;
    size_t (*length)(const char *);

    ck_assert(elf_each(is_it, &libc));
    address = elf_symbol(&libc.object, "strlen");
    ck_assert_ptr_nonnull(address);
    memcpy(&length, &address, sizeof(length));
    ck_assert_uint_eq(length(text), 3);
}
END_TEST

static int mine;

START_TEST(an_address_leads_to_its_object) {
    struct elf_object object;
    void *libc = dlsym(RTLD_DEFAULT, "getpid");

    ck_assert(elf_object_of(libc, &object));
    ck_assert_str_eq(object.soname, "libc.so.6");
    ck_assert(elf_object_of(&mine, &object));
    ck_assert_ptr_null(object.soname);
    ck_assert(!elf_object_of((void *)16, &object));
}
END_TEST

static bool never(const struct elf_object *object, void *user) {
    *(unsigned *)user += 1;
    ck_assert_ptr_nonnull(object->path);
    /* Also of the kernel's own object, whose section is read-only. */
    elf_symbol(object, "no such symbol");
    elf_symbol(object, "__vdso_time");
    return false;
}

START_TEST(every_object_is_visited) {
    unsigned n = 0;

    ck_assert(!elf_each(never, &n));
    ck_assert_uint_gt(n, 2);
}
END_TEST

SUITE("guard-elf", a_symbol_is_where_the_dynamic_linker_finds_it,
      functions_that_are_chosen_at_run_time_are_called_to_choose, an_address_leads_to_its_object,
      every_object_is_visited)
