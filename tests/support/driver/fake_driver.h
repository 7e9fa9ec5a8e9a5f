/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Fakes: folders that look like a driver's, with the libraries of tests/fake in them.
 *
 * A test asks for the variants it wants; the folder is a temporary one and goes with fakes_done().
 * The libraries are the files of the build tree by another name, so a variant is loaded once
 * however many folders have it.
 */
#include "driver/driver.h"
#include "tests/fake/fake.h"

struct fakes {
    char dir[64];
    struct driver_options
        options; /* for DRIVER_NVIDIA in `dir`, with no kernel module to be seen */
};

/* "nvml", "cuda" or "cublas", and "full", "bare", "sim" or "broken", in pairs, NULL at the end. */
void fakes_init(struct fakes *fakes, ...) __attribute__((sentinel));
void fakes_done(struct fakes *fakes);

/* The levers of a library that is, or will be, loaded in this process. */
struct fake *fakes_lever(const struct fakes *fakes, const char *library);

/* Let a kernel module of this version show itself. */
void fakes_module(struct fakes *fakes, const char *version);
