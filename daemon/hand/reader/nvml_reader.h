/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * NVML reader: allot-reader's view of NVML. Opens it when something is first asked, keeps what does
 * not change, forgets handles on request, and has a thread that waits for the driver's events.
 *
 * One thread calls; the callbacks of rows come from inside nvml_reader_sample(), events from the
 * reader's own thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/gpuid.h"
#include "daemon/hand/wire.h"
#include "driver/nvml.h"

struct nvml_reader;

/* Where rows and events go. Non-zero ends the sample with that result. */
struct nvml_reader_sink {
    void *userdata;
    int (*device)(void *userdata, const struct sample_device *device);
    int (*process)(void *userdata, const struct sample_process *process);
    void (*event)(void *userdata, const struct sample_event *event);
};

int nvml_reader_new(struct nvml_reader **ret, enum driver_choice driver,
                    const struct nvml_reader_sink *sink);
struct nvml_reader *nvml_reader_free(struct nvml_reader *reader); /* accepts NULL, returns NULL */
DEFINE_FREEP(struct nvml_reader, nvml_reader_freep, nvml_reader_free)

/* A device that an earlier reader read: so it can be named without being opened. */
void nvml_reader_know(struct nvml_reader *reader, const struct sample_device *device);

/* Close every handle to a GPU, or use it again. -ENOENT: not one that is known. */
int nvml_reader_close(struct nvml_reader *reader, const struct gpuid *gpu, bool closed,
                      struct allot_error *err);

/* Read everything; rows go to the sink as they are read. Fails where the driver is out of reach. */
int nvml_reader_sample(struct nvml_reader *reader, struct hand_sampled *ret,
                       struct allot_error *err);

/* What `pid` uses on a device now. -ENOENT: NVML does not list it. -ENODATA: it does not say. */
int nvml_reader_used(struct nvml_reader *reader, const struct gpuid *device, pid_t pid,
                     uint64_t *ret, struct allot_error *err);
