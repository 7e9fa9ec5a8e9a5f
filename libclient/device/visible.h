/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Visible: which of the devices that the driver shows this process is to use, given a list in the
 * form of CUDA_VISIBLE_DEVICES. Its numbers count what the driver shows, so that the list narrows
 * further what the environment has narrowed.
 *
 * The environment itself is left alone: it belongs to the whole process, is not safe to change
 * while other threads read it, is inherited by children, and has no effect once the driver is
 * initialised. A list cannot add devices that the driver does not show, such as the second MIG
 * device of a box.
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
