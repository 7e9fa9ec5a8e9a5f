/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record is written to the state as soon as it changes, so that a restart forgets no drain, no
 * accepted error and no lost device.
 */
#include "daemon/devices/device_record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/devices/inventory.h"
#include "daemon/broker_events.h"
#include "daemon/manager.h"

/* The driver reports an Xid at once, and counts it at the latest in the next reading but one: an
 * administrator who resumes a device in between accepts that count too. */
#define ACCEPTED_SAMPLES 2

struct device_record *device_record_find(struct manager *manager, const struct gpuid *id) {
    char uuid[GPUID_TEXT_SIZE];

    return map_find_text(&manager->device_records.by_uuid, gpuid_format(id, uuid));
}

struct device_record *device_record_get(struct manager *manager, const struct gpuid *id) {
    struct device_record *known = device_record_find(manager, id);

    if (known)
        return known;
    known = calloc(1, sizeof(*known));
    if (!known)
        return NULL;
    gpuid_format(id, known->uuid);
    known->record.id = *id;
    known->is_new = true;
    if (map_put_text(&manager->device_records.by_uuid, known->uuid, known) < 0) {
        free(known);
        return NULL;
    }
    return known;
}

void device_record_keep(struct manager *manager, const struct device_record *known) {
    struct record record = { .kind = RECORD_DEVICE, .device = known->record };

    broker_events_record(manager, &record);
}

/* This many ECC errors are known: only further ones are news, now and after a restart. */
void device_record_accept_errors(struct manager *manager, struct device_record *known, uint64_t n) {
    if (known->record.has_accepted && known->record.accepted_uncorrected == n)
        return;
    known->record.has_accepted = true;
    known->record.accepted_uncorrected = n;
    device_record_keep(manager, known);
}

int device_record_restore(struct manager *manager, const struct record_device *record,
                          bool is_rebooted) {
    struct device_record *known = device_record_get(manager, &record->id);

    if (!known)
        return -ENOMEM;
    known->record = *record;
    known->is_of_other_boot = is_rebooted;
    return 0;
}

/* Record where and what a GPU is, for a daemon that starts while it is lost. */
void device_record_note_place(struct manager *manager, struct device_record *known,
                              const struct device_facts *device) {
    const struct sample_device *seen = &device->seen;
    struct record_device *record = &known->record;
    bool is_lost = device->state == DEVICE_LOST;

    if (seen->is_mig ||
        (record->has_place && record->is_lost == is_lost &&
         pci_id_compare(&record->pci, &seen->pci) == 0 &&
         record->total_bytes == seen->total_bytes &&
         record->reserved_bytes == seen->reserved_bytes && strcmp(record->name, seen->name) == 0))
        return;
    record->has_place = true;
    record->is_lost = is_lost;
    record->pci = seen->pci;
    record->total_bytes = seen->total_bytes;
    record->reserved_bytes = seen->reserved_bytes;
    snprintf(record->name, sizeof(record->name), "%s", seen->name);
    device_record_keep(manager, known);
}

/*
 * GPUs that were recorded and that the first sample lacks: a card that falls off changes no other
 * card's number, not even while no daemon runs.
 */
void device_record_miss_devices(struct manager *manager, const struct sample *sample) {
    struct device_record *known;

    for (size_t pos = 0; (known = map_next(&manager->device_records.by_uuid, &pos));) {
        struct record_device *record = &known->record;
        const struct sample_device *row = sample_find_device(sample, &record->id);
        struct sample_device seen = {
            .id = record->id,
            .parent = record->id,
            .pci = record->pci,
            .total_bytes = record->total_bytes,
            .reserved_bytes = record->reserved_bytes,
        };

        if (!record->has_place || (row && row->health != SAMPLE_LOST))
            continue;
        /* A machine that was off may have fewer cards than it had. */
        if (known->is_of_other_boot) {
            record->has_place = record->is_lost = false;
            device_record_keep(manager, known);
            continue;
        }
        snprintf(seen.name, sizeof(seen.name), "%s", record->name);
        if (inventory_miss(manager->inventory, &seen) < 0)
            log_line(LOG_WARNING, NULL, "out of memory: %s, which is lost, is not shown",
                     known->uuid);
    }
}

int device_record_drain(struct manager *manager, const struct gpuid *id, const char *reason) {
    struct device_record *known = device_record_get(manager, id);

    if (!known)
        return -ENOMEM;
    known->record.drained = true;
    known->record.by_health = false;
    known->record.drained_usec = manager_now(manager).usec;
    snprintf(known->record.reason, sizeof(known->record.reason), "%s", reason);
    device_record_keep(manager, known);
    return inventory_drain(manager->inventory, id, DRAIN_ADMIN, reason);
}

int device_record_resume(struct manager *manager, const struct gpuid *id) {
    struct device_record *known = device_record_get(manager, id);
    const struct device_facts *device = inventory_find(manager->inventory, id);

    if (!known)
        return -ENOMEM;
    if (device && READINGS_HAVE(&device->seen.readings, ecc_uncorrected))
        device_record_accept_errors(manager, known, device->seen.readings.ecc_uncorrected);
    known->n_accepts = ACCEPTED_SAMPLES;
    known->record.drained = known->record.by_health = false;
    known->record.drained_usec = 0;
    known->record.reason[0] = 0;
    device_record_keep(manager, known);
    inventory_resume(manager->inventory, id, DRAIN_HEALTH);
    return inventory_resume(manager->inventory, id, DRAIN_ADMIN);
}

void device_record_drain_by_health(struct manager *manager, struct device_record *known,
                                   const char *reason) {
    uint64_t now = manager_now(manager).usec;

    known->has_returned = false;
    if (!known->record.drained || known->record.by_health) {
        known->record.drained = known->record.by_health = true;
        known->record.drained_usec = now;
        snprintf(known->record.reason, sizeof(known->record.reason), "%s", reason);
        device_record_keep(manager, known);
    }
    inventory_drain(manager->inventory, &known->record.id, DRAIN_HEALTH, reason);
}

void device_record_list_done(struct device_record_list *records) {
    struct device_record *known;

    for (size_t pos = 0; (known = map_next(&records->by_uuid, &pos));) {
        map_take_text(&records->by_uuid, known->uuid);
        free(known);
    }
    map_done(&records->by_uuid);
}
