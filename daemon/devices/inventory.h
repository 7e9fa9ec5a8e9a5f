/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Inventory: the devices of the box, as far as they were ever seen, and whether they can be used.
 *
 * Fed with samples, it finds out what appeared, changed, was lost and came back; with reasons to
 * drain, it says which devices take new leases. A device is known by its UUID and never forgotten:
 * a lease may still name it. No clock, no I/O; event-loop thread only.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/gpuid.h"
#include "daemon/broker/device_facts.h"

enum inventory_change {
    INVENTORY_APPEARED, /* never seen before */
    INVENTORY_CHANGED,  /* size, reserved bytes, links, place on the bus or MIG mode changed */
    INVENTORY_LOST,
    INVENTORY_RETURNED, /* was lost, and was read well RETURN_SAMPLES times in a row */
    INVENTORY_DRAINED,
    INVENTORY_RESUMED,
};

/* `device` is borrowed. Must not call back into the inventory. */
typedef void (*inventory_fn)(void *userdata, enum inventory_change change,
                             const struct device_facts *device);

struct inventory;

int inventory_new(struct inventory **ret, inventory_fn changed, void *userdata);
struct inventory *inventory_free(struct inventory *inventory); /* accepts NULL, returns NULL */
DEFINE_FREEP(struct inventory, inventory_freep, inventory_free)

/*
 * Take in a sample: changes are told in bus order, the lost ones first. A GPU that is divided
 * (MIG) is listed but never ready for leases: see device_facts_is_leasable(). -ENOMEM: nothing
 * changed.
 */
int inventory_update(struct inventory *inventory, const struct sample *sample);

/*
 * A GPU that was there before a restart and is not now: lost, in its old place on the bus. `seen`
 * says which one it is, where and how large; one that is known already stays as it is. -ENOMEM.
 */
int inventory_miss(struct inventory *inventory, const struct sample_device *seen);

/*
 * Readings are no longer current: what only a fresh sample can tell is absent from now on.
 * Identities, sizes and states stay.
 */
void inventory_stale(struct inventory *inventory);

/* Drain for `why` with a reason for people, or take that wish back. -ENOENT: no such device. */
int inventory_drain(struct inventory *inventory, const struct gpuid *id, enum device_drain why,
                    const char *reason);
int inventory_resume(struct inventory *inventory, const struct gpuid *id, enum device_drain why);

/* Devices in bus order, instances after their GPU; NULL past the end. Borrowed. */
const struct device_facts *inventory_at(const struct inventory *inventory, size_t i);
size_t inventory_count(const struct inventory *inventory);
const struct device_facts *inventory_find(const struct inventory *inventory,
                                          const struct gpuid *id);

/*
 * By what people write: a UUID or a beginning of one that is unique, a bus id (the GPU), an index
 * in bus order ("2"), or of an instance "2:0" (GPU:place). -ENOENT, -ENOTUNIQ.
 */
int inventory_resolve(const struct inventory *inventory, const char *text,
                      const struct device_facts **ret);
