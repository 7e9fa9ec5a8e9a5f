/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Fake driver: folders that look like a driver's, with the libraries of tests/fake in them.
 *
 * A test asks for the variants it wants; the folder is a temporary one and goes with
 * fake_driver_done(). The libraries are the files of the build tree by another name, so a variant
 * is loaded once however many folders have it.
 */
#include "driver/driver.h"
#include "tests/fake/fake.h"

struct fake_driver {
    char dir[64];
    struct driver_options
        options; /* for DRIVER_NVIDIA in `dir`, with no kernel module to be seen */
};

/* "nvml", "cuda" or "cublas", and "full", "bare", "sim" or "broken", in pairs, NULL at the end. */
void fake_driver_init(struct fake_driver *fake_driver, ...) __attribute__((sentinel));
void fake_driver_done(struct fake_driver *fake_driver);

/* The levers of a library that is, or will be, loaded in this process. */
struct fake *fake_driver_lever(const struct fake_driver *fake_driver, const char *library);

/* Let a kernel module of this version show itself. */
void fake_driver_module(struct fake_driver *fake_driver, const char *version);
