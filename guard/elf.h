/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Elf: symbols of loaded objects, found without dlsym().
 *
 * The guard stands in front of dlsym() itself and of libcuda's names, so asking the dynamic linker
 * by name would find the guard again. Here the object's own hash table is read instead, as the
 * dynamic linker mapped it. Takes no lock of ours and allocates nothing; any thread.
 */
#include <stdbool.h>
#include <stddef.h>

/* An object of this process's own link-map list. */
struct elf_object {
    const char *path;   /* as the dynamic linker knows it; "" for the program */
    const char *soname; /* DT_SONAME; NULL: none */
    const void *base;   /* what its addresses are relative to */
    const void *dynamic;
};

/* Call `visit` for every loaded object until it returns true. True if one call did. */
bool elf_each(bool (*visit)(const struct elf_object *object, void *user), void *user);

/* Whether `object` has this soname, whatever its file is called. */
bool elf_is(const struct elf_object *object, const char *soname);

/* The address of a function or object that `object` itself defines, of any version; NULL: none. */
void *elf_symbol(const struct elf_object *object, const char *name);

/* Find the object that contains `address`. False: none does. */
bool elf_object_of(const void *address, struct elf_object *ret);
