/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Resolve: a program that asks for one of the driver's functions by name gets the guard's.
 *
 * The guard handles dlsym and dlvsym with any handle, RTLD_DEFAULT and RTLD_NEXT included, and
 * cuGetProcAddress in both versions. Every other lookup goes to the C library as if the guard were
 * not there, with the caller's own position in the search order. So do functions of other libraries
 * that have the same names. A lookup loads nothing. Any thread.
 */
#include <stdint.h>

/* The answer to a lookup; `answered` 0: ask the C library. Fits into two registers. */
struct resolve_pick {
    void *address;
    uintptr_t answered;
};

/* A name that the guard answers. */
struct elf_object;
struct resolve_name {
    const char *soname;    /* the library that the guard stands in front of */
    void *ours;            /* the guard's function */
    _Atomic(void *) *real; /* the library's function; NULL in there: not known yet, or the library
                              has none */
    void (*adopt)(const struct elf_object *object); /* use this object as the library, unless one is
                                                       known */
};

/* `caller`: an address in the code that asks. */
struct resolve_pick resolve_dlsym(void *handle, const char *name, const char *none,
                                  const void *caller);
struct resolve_pick resolve_dlvsym(void *handle, const char *name, const char *version,
                                   const void *caller);
