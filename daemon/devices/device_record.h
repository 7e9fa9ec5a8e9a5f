/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Device record: what is known of a device beyond its readings, and kept over a restart: why it is
 * drained, what a context costs on it, how many errors an administrator has accepted, and where it
 * was when it was lost.
 *
 * Owned by the manager, by UUID; event-loop thread only.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/gpuid.h"
#include "base/map.h"
#include "daemon/broker/device_facts.h"
#include "daemon/broker/record.h"
#include "daemon/broker/sample.h"
#include "daemon/devices/context_seen.h"

struct manager;

/* Zeroed memory is a valid empty one. */
struct device_record_list {
    struct map by_uuid; /* UUID → struct device_record */
};

void device_record_list_done(struct device_record_list *records);

struct device_record {
    char uuid[GPUID_TEXT_SIZE]; /* its key */
    struct record_device record;
    struct context_seen contexts;
    uint64_t usual_context; /* what a context takes on such a device; 0: its kind is not known */
    unsigned n_accepts; /* readings whose ECC errors are taken for those that it was resumed with */
    bool is_new;        /* appeared in the sample in hand */
    bool is_of_other_boot;
    bool has_returned; /* was lost and came back since health drained it */
};

struct device_record *device_record_find(struct manager *manager, const struct gpuid *id);
struct device_record *device_record_get(struct manager *manager,
                                        const struct gpuid *id); /* makes it; NULL: no memory */

/* It changed: to the state. */
void device_record_keep(struct manager *manager, const struct device_record *known);

/* These many ECC errors are known: only more of them are news, now and after a restart. */
void device_record_accept_errors(struct manager *manager, struct device_record *known, uint64_t n);

/* Record where and what a GPU is, for a daemon that starts while it is lost. */
void device_record_note_place(struct manager *manager, struct device_record *known,
                              const struct device_facts *device);

/* Restore what the previous daemon recorded about a device. It counts from the first sample on: a
 * GPU that existed in this boot and that the sample lacks is lost. */
int device_record_restore(struct manager *manager, const struct record_device *record,
                          bool is_rebooted);

/* The first sample: GPUs of the records that it does not have are lost. */
void device_record_miss_devices(struct manager *manager, const struct sample *sample);

/* Drain or resume an existing device on an administrator's order; or drain it for its health. */
int device_record_drain(struct manager *manager, const struct gpuid *id, const char *reason);
int device_record_resume(struct manager *manager, const struct gpuid *id);
void device_record_drain_by_health(struct manager *manager, struct device_record *known,
                                   const char *reason);
