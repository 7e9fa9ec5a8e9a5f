/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Visible: which of the devices that the driver shows this process is to use, by a list that is
 * written as CUDA_VISIBLE_DEVICES is. Its numbers count what the driver shows, so that the list
 * narrows further what the environment has narrowed.
 *
 * The environment itself is left alone: it is the whole process's, not safe to change while other
 * threads read it, inherited by children, and without effect once the driver is initialised. What
 * the driver does not show cannot be had by a list, such as the second MIG device of a box.
 */
#include <stddef.h>

struct allot_error;
struct cuda;

struct device_visible {
    int *numbers; /* of the devices, as the driver counts them, in the order that was asked for */
    size_t n;
    char *uuids; /* the same in words, for the lease; NULL: no list was given */
};

/*
 * `list` NULL: all. "" is none, and no error. -ENODEV for a list that names what is not there,
 * -ENOMEM.
 */
int device_visible_make(struct device_visible *ret, struct cuda *cuda, const char *list,
                        struct allot_error *err);
void device_visible_done(struct device_visible *chosen);
