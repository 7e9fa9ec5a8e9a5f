/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     hand ─sample─▶ inventory ─changes─▶ broker_device_set
 *                 ├─▶ health ─▶ drain, resume   (device_record.c)
 *                 ├─▶ context_cost              (what a context takes)
 *                 ├─▶ broker_sample             (charges, releasing, unmanaged, idle)
 *                 └─▶ watch_actions             (processes over their limit)
 */
#include "daemon/sampling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/accounts/accounts.h"
#include "daemon/config/user_database.h"
#include "daemon/state/replay.h"
#include "daemon/state/state.h"
#include "daemon/devices/context_cost.h"
#include "daemon/devices/device_record.h"
#include "daemon/devices/inventory.h"
#include "daemon/enforce/job_survivors.h"
#include "daemon/enforce/tiers.h"
#include "daemon/enforce/watch_actions.h"
#include "daemon/server/methods.h"
#include "daemon/broker_events.h"
#include "daemon/manager.h"

/* ---- Devices ----------------------------------------------------------------------------------
 */

static void on_change(void *userdata, enum inventory_change change,
                      const struct device_facts *device) {
    static const struct {
        const char *kind, *text;
        int level;
        enum log_message message;
    } words[] = {
        [INVENTORY_APPEARED] = { "appeared", "is there", LOG_INFO, LOG_PLAIN },
        [INVENTORY_CHANGED] = { "changed", "has changed", LOG_NOTICE, LOG_PLAIN },
        [INVENTORY_LOST] = { "lost", "is lost", LOG_ERR, LOG_DEVICE_LOST },
        [INVENTORY_RETURNED] = { "returned", "is back", LOG_NOTICE, LOG_RESUMED },
        [INVENTORY_DRAINED] = { "drained", "takes no new leases", LOG_WARNING, LOG_DRAINED },
        [INVENTORY_RESUMED] = { "resumed", "takes leases again", LOG_NOTICE, LOG_RESUMED },
    };
    struct manager *manager = userdata;
    struct device_record *known = device_record_get(manager, &device->seen.id);
    char uuid[GPUID_TEXT_SIZE];

    if (known &&
        (change == INVENTORY_RETURNED || (change == INVENTORY_APPEARED && known->record.is_lost)))
        known->has_returned = true;
    if (known)
        device_record_note_place(manager, known, device);
    broker_events_report(
        manager, words[change].level,
        &(struct log_about){ .message = words[change].message, .device = &device->seen.id },
        words[change].kind, "%s (%s) %s%s%s", gpuid_format(&device->seen.id, uuid),
        device->seen.name, words[change].text, device->reason[0] ? ": " : "", device->reason);
    if (context_cost_enter(manager, known, device, manager_now(manager)) < 0)
        log_line(LOG_ERR, NULL, "out of memory: %s is left out", uuid);
}

static void check_device(struct manager *manager, const struct sample_device *seen,
                         struct moment now) {
    struct device_record *known = device_record_get(manager, &seen->id);
    const struct device_facts *device = inventory_find(manager->inventory, &seen->id);
    struct health_decision decision;

    if (!known || !device)
        return;
    if (known->is_new) {
        known->is_new = false;
        /*
         * Errors that a device has when it is first seen are accepted; those that it got while no
         * daemon ran are not.
         */
        if (READINGS_HAVE(&seen->readings, ecc_uncorrected) && !known->record.has_accepted)
            device_record_accept_errors(manager, known, seen->readings.ecc_uncorrected);
        if (known->record.drained) {
            inventory_drain(manager->inventory, &seen->id,
                            known->record.by_health ? DRAIN_HEALTH : DRAIN_ADMIN,
                            known->record.reason);
            if (!known->record.by_health && !seen->is_mig)
                hand_close_device(manager->hand, &seen->id, true, manager_log_failure, NULL);
        }
    }
    if (seen->health != SAMPLE_OK)
        return;
    context_cost_settle(manager, known, device, now);
    if (known->n_accepts > 0) {
        known->n_accepts--;
        if (READINGS_HAVE(&seen->readings, ecc_uncorrected))
            device_record_accept_errors(manager, known, seen->readings.ecc_uncorrected);
    }
    health_decide_reading(&manager->config->health, seen, known->record.accepted_uncorrected,
                          &decision);
    if (decision.verdict == HEALTH_DRAIN && !(device->drains & DRAIN_HEALTH))
        device_record_drain_by_health(manager, known, decision.reason);
    else if (decision.verdict != HEALTH_DRAIN && device->drains & DRAIN_HEALTH &&
             known->record.by_health &&
             health_decide_recovery(&manager->config->health, device, known->has_returned,
                                    known->record.drained_usec, now.usec)) {
        known->record.drained = known->record.by_health = known->has_returned = false;
        known->record.reason[0] = 0;
        device_record_keep(manager, known);
        inventory_resume(manager->inventory, &seen->id, DRAIN_HEALTH);
    }
}

static void on_happened(void *userdata, const struct sample_event *event) {
    struct manager *manager = userdata;
    struct device_record *known = device_record_find(manager, &event->device);
    struct health_decision decision;
    char uuid[GPUID_TEXT_SIZE];

    health_decide_event(&manager->config->health, event, &decision);
    if (event->kind == SAMPLE_EVENT_XID && manager->accounts)
        accounts_xid(manager->accounts, &event->device, event->data, decision.reason,
                     manager_real(manager));
    if (decision.verdict != HEALTH_FINE)
        broker_events_report(manager, decision.verdict == HEALTH_DRAIN ? LOG_ERR : LOG_WARNING,
                             &(struct log_about){ .message = LOG_XID, .device = &event->device },
                             "health", "%s: %s", gpuid_format(&event->device, uuid),
                             decision.reason);
    if (decision.verdict == HEALTH_DRAIN && known)
        device_record_drain_by_health(manager, known, decision.reason);
    hand_sample(manager->hand);
    manager_settle(manager);
}

/* ---- Samples ----------------------------------------------------------------------------------
 */

/* What status shows is of the last sample: kept. */
static void keep_sample(struct manager *manager, const struct sample *sample) {
    cleanup(sample_freep) struct sample *copy = calloc(1, sizeof(*copy));

    if (!copy)
        return;
    *copy = *sample;
    copy->devices = NULL; /* the inventory has them */
    copy->n_devices = 0;
    copy->processes = NULL;
    if (sample->n_processes) {
        copy->processes = malloc(sample->n_processes * sizeof(*sample->processes));
        if (!copy->processes)
            return;
        memcpy(copy->processes, sample->processes,
               sample->n_processes * sizeof(*sample->processes));
    }
    sample_free(manager->sampling.sample);
    manager->sampling.sample = TAKE(copy);
}

/* The lease in whose scope a cgroup lies, by the name that the hand gives its scopes; 0: none. */
static unsigned long long lease_of_path(const char *path) {
    for (const char *at = path; (at = strstr(at, "/allot-")); at++) {
        unsigned long long lease;
        int n = 0;

        if (sscanf(at, "/allot-%llu.scope%n", &lease, &n) == 1 && n > 0 &&
            (at[n] == 0 || at[n] == '/'))
            return lease;
    }
    return 0;
}

/* The daemon started without a state, but there are jobs in scopes that only a daemon can have
 * made. */
static void look_for_jobs(struct manager *manager, const struct sample *sample) {
    for (size_t i = 0; manager->is_fresh && i < sample->n_processes; i++) {
        unsigned long long lease = lease_of_path(sample->processes[i].cgroup);
        char what[96];

        if (!lease)
            continue;
        snprintf(what, sizeof(what), "process %d is in the scope of lease %llu",
                 (int)sample->processes[i].pid, lease);
        replay_lost(manager, what);
    }
}

/* Whom each process counts for: the owner of its uid. NULL: out of memory. */
static uid_t *owners_of(struct manager *manager, const struct sample *sample) {
    uid_t *owners = calloc(sample->n_processes + 1, sizeof(*owners));

    for (size_t i = 0; owners && i < sample->n_processes; i++)
        if (sample->processes[i].has_uid)
            owners[i] = user_database_owner(manager->user_database, sample->processes[i].uid);
    return owners;
}

static void on_sampled(void *userdata, const struct sample *sample) {
    struct manager *manager = userdata;
    struct moment now = manager_now(manager);
    cleanup(freep) uint64_t *leases = NULL;
    cleanup(freep) uid_t *owners = NULL;

    if (!manager->sampling.sample)
        look_for_jobs(manager, sample);

    if (manager->sampling.stale_usec) {
        manager->sampling.stale_usec = 0;
        broker_events_report(manager, LOG_NOTICE, &(struct log_about){ 0 }, "fresh",
                             "devices can be read again");
    }
    tiers_sampled(manager, now);
    if (!manager->sampling.sample)
        device_record_miss_devices(manager, sample);
    if (inventory_update(manager->inventory, sample) < 0) {
        log_line(LOG_WARNING, NULL, "out of memory: a sample is left out");
        return;
    }
    for (size_t i = 0; i < sample->n_devices; i++)
        check_device(manager, &sample->devices[i], now);
    context_cost_measure(manager, sample);
    leases = job_survivors_leases(manager, sample);
    owners = owners_of(manager, sample);
    if (broker_sample(manager->broker, sample, leases, owners, now) < 0)
        log_line(LOG_WARNING, NULL, "out of memory: charges stay as they were");
    keep_sample(manager, sample);
    watch_actions_apply(manager, sample, now);
    manager_settle(manager);
}

static void on_stale(void *userdata, uint64_t since_usec, const char *reason) {
    struct manager *manager = userdata;

    manager->sampling.stale_usec = since_usec ? since_usec : 1;
    snprintf(manager->sampling.stale_reason, sizeof(manager->sampling.stale_reason), "%s", reason);
    inventory_stale(manager->inventory);
    broker_events_report(manager, LOG_WARNING, &(struct log_about){ .message = LOG_HAND_STUCK },
                         "stale", "devices cannot be read: %s; the readings shown are old", reason);
    methods_stale(manager, reason);
    manager_settle(manager);
}

struct hand_watcher sampling_watcher(struct manager *manager) {
    return (struct hand_watcher){ manager, on_sampled, on_happened, on_stale };
}

void sampling_tick(struct manager *manager, struct moment now) {
    struct allot_error err;
    bool trouble = manager->accounts && accounts_trouble(manager->accounts, &err);

    if (trouble && !manager->sampling.accounts_trouble)
        broker_events_report(manager, LOG_WARNING,
                             &(struct log_about){ .message = LOG_ACCOUNTS_FULL }, "accounts", "%s",
                             err.text);
    manager->sampling.accounts_trouble = trouble;

    trouble = !state_is_ready(manager->state, &err);
    /* Holders that come back cannot be recorded now: the grace time begins when they can. */
    if (trouble && manager->books_lost)
        broker_grace_begin(manager->broker, now);
    if (trouble && !manager->sampling.state_trouble)
        broker_events_report(manager, LOG_ERR, &(struct log_about){ .message = LOG_STATE_FULL },
                             "state", "%s", err.text);
    else if (!trouble && manager->sampling.state_trouble)
        broker_events_report(manager, LOG_NOTICE, &(struct log_about){ .message = LOG_STATE_FULL },
                             "state",
                             "there is room again to record leases: allotd grants them again");
    manager->sampling.state_trouble = trouble;
}

int sampling_new(struct manager *manager) {
    return inventory_new(&manager->inventory, on_change, manager);
}

void sampling_free(struct manager *manager) {
    device_record_list_done(&manager->device_records);
    inventory_free(manager->inventory);
    sample_free(manager->sampling.sample);
}
