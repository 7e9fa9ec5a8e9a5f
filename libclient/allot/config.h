/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_CONFIG_H
#define ALLOT_CONFIG_H
/*
 * What holds for the whole process: what sessions that are made later take where their options say
 * nothing (are 0), what immediate mode goes by (now.h), and which devices there are.
 *
 *     allot_set_log_device_placement(true);
 *     allot_set_memory_growth(false);
 *     if (allot_gpu_available())
 *         …
 *
 * Any thread, at any time; sessions that are there already keep what they were made with. GPUs are
 * opened, and their memory leased, by the first session (or immediate op): what is said about
 * memory and visible devices counts if it is said before.
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
void allot_set_memory_limit(uint64_t bytes);   /* of each GPU; 0, at first: not limited so */
/* At most this part of each GPU, from 0 to 1; 0, at first: not limited so. -EINVAL */
int allot_set_memory_fraction(double fraction, struct allot_error *err);
/* As `visible_devices` of session.h: "": none; NULL, at first: all that the driver shows. -ENOMEM
 */
int allot_set_visible_devices(const char *devices, struct allot_error *err);

/* Whether this process sees a GPU, with a driver that works. Costs no memory of any. */
bool allot_gpu_available(void);
/*
 * The devices that there are, the CPU first: how many; at most `n` are written to `ret`. While the
 * process has GPUs open, those; before that all that it sees, of which a session gets the ones that
 * its lease names. No memory of theirs is taken, and no lease.
 */
size_t allot_devices(struct allot_device *ret, size_t n);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
