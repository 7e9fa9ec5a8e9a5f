/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Reader: the hand's view of NVML. Opens it when something is first asked, keeps what does not
 * change, forgets handles on request, and has a thread that waits for the driver's events.
 *
 * One thread calls; the callbacks of rows come from inside reader_sample(), events from the
 * reader's own thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/gpuid.h"
#include "daemon/hand/wire.h"
#include "driver/nvml.h"

struct reader;

/* Where rows and events go. Non-zero ends the sample with that result. */
struct reader_sink {
    void *userdata;
    int (*device)(void *userdata, const struct sample_device *device);
    int (*process)(void *userdata, const struct sample_process *process);
    void (*event)(void *userdata, const struct sample_event *event);
};

int reader_new(struct reader **ret, enum driver_choice driver, const struct reader_sink *sink);
struct reader *reader_free(struct reader *reader); /* accepts NULL, returns NULL */
DEFINE_FREEP(struct reader, reader_freep, reader_free)

/* A device that an earlier hand read: so it can be named without being opened. */
void reader_know(struct reader *reader, const struct sample_device *device);

/* Close every handle to a GPU, or use it again. -ENOENT: not one that is known. */
int reader_close(struct reader *reader, const struct gpuid *gpu, bool closed,
                 struct allot_error *err);

/* Read everything; rows go to the sink as they are read. Fails where the driver is out of reach. */
int reader_sample(struct reader *reader, struct hand_sampled *ret, struct allot_error *err);

/* NVML, opened; for limits. */
int reader_nvml(struct reader *reader, const struct nvml **ret, struct allot_error *err);

/* What was last read of a device, for its minor number and the like; NULL: not known. */
const struct sample_device *reader_find(const struct reader *reader, const struct gpuid *id);
/* The i-th known device, NULL past the end. */
const struct sample_device *reader_at(const struct reader *reader, size_t i);

/* What `pid` uses on a device now. -ENOENT: NVML does not list it. -ENODATA: it does not say. */
int reader_used(struct reader *reader, const struct gpuid *device, pid_t pid, uint64_t *ret,
                struct allot_error *err);
