/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Resolve: whoever asks for one of the driver's functions by name gets the guard's.
 *
 * Ways in: dlsym and dlvsym with any handle, RTLD_DEFAULT and RTLD_NEXT included, and
 * cuGetProcAddress in both versions. Everything else that is asked for is none of the guard's
 * business and goes to the C library as if the guard were not there, the caller's own place in the
 * search order included. Any thread.
 */
#include <stdint.h>

/* What a program is to get for a name; `answered` 0: ask the C library. In two registers. */
struct resolve_pick {
    void *address;
    uintptr_t answered;
};

struct resolve_pick resolve_dlsym(void *handle, const char *name);
struct resolve_pick resolve_dlvsym(void *handle, const char *name, const char *version);
