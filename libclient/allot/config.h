/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_CONFIG_H
#define ALLOT_CONFIG_H
/*
 * Settings for the whole process: the defaults of later sessions for options that are 0, the
 * settings of immediate mode (now.h), and the list of devices.
 *
 *     allot_set_log_device_placement(true);
 *     allot_set_memory_growth(false);
 *     if (allot_gpu_available())
 *         …
 *
 * Any thread may call these functions at any time; existing sessions keep the settings they were
 * made with. The first session (or immediate op) opens the GPUs and leases their memory, so
 * settings about memory and visible devices must be made before it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "session.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

void allot_set_soft_placement(bool allow);     /* at first: false */
void allot_set_log_device_placement(bool log); /* at first: false */
void allot_set_inter_op_threads(unsigned n);   /* 0, at first: one per CPU */
void allot_set_intra_op_threads(unsigned n);   /* 0, at first: one per CPU */
void allot_set_memory_growth(bool grow);       /* at first: true */
void allot_set_memory_limit(uint64_t bytes);   /* of each GPU; 0, at first: no such limit */
/* At most this part of each GPU, from 0 to 1; 0, the default: no such limit. -EINVAL */
int allot_set_memory_fraction(double fraction, struct allot_error *err);
/* As `visible_devices` of session.h: "": none; NULL, at first: all that the driver shows. -ENOMEM
 */
int allot_set_visible_devices(const char *devices, struct allot_error *err);

/* Whether this process sees a GPU and the driver works. Takes no GPU memory. */
bool allot_gpu_available(void);
/*
 * The available devices, the CPU first. Returns how many there are; writes at most `n` to `ret`. If
 * the process has opened GPUs, the list has those; otherwise it has all GPUs that the process sees,
 * and a session will get the ones that its lease names. Takes no GPU memory and no lease.
 */
size_t allot_devices(struct allot_device *ret, size_t n);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
