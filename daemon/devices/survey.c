/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     hand ─sample─▶ inventory ─changes─▶ broker_device_set
 *                 ├─▶ health  ─▶ drain, resume            (charts: what is known of each device)
 *                 ├─▶ broker_sample                       (charges, releasing, unmanaged, idle)
 *                 └─▶ watch (daemon/enforce/watch_actions.c)             (who is over)
 *
 * A chart holds what the driver does not tell: why a device is drained, what a context costs on it,
 * how many errors an administrator has accepted. It is recorded, so that a restart forgets no
 * drain.
 */
#include "daemon/devices/survey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/accounts/accounts.h"
#include "daemon/broker_events.h"
#include "daemon/devices/inventory.h"
#include "daemon/manager.h"
#include "daemon/server/methods.h"
#include "daemon/enforce/watch_actions.h"
#include "daemon/state/replay.h"
#include "daemon/state/state.h"

#define LOCK_RETRY_USEC (UINT64_C(30) * 1000 * 1000)

/* An Xid is told at once, what it counted stands in the next reading but one at the latest: whoever
 * resumes a device in between has not seen less than whoever does it later. */
#define ACCEPTED_SAMPLES 2
#define PROBES_MAX       5 /* attempts to try the tiers */
#define MIB(n)           ((uint64_t)(n) << 20)

struct chart {
    char uuid[GPUID_TEXT_SIZE]; /* its key */
    struct record_device record;
    uint64_t usual_context; /* what a context takes on such a device; 0: its kind is not known */
    unsigned n_accepts; /* readings whose ECC errors are taken for those that it was resumed with */
    bool is_new;        /* appeared in the sample in hand */
    bool is_of_other_boot;
    bool has_returned; /* was lost and came back since health drained it */
};

/* ---- Charts -----------------------------------------------------------------------------------
 */

static struct chart *find_chart(struct manager *manager, const struct gpuid *id) {
    char uuid[GPUID_TEXT_SIZE];

    return map_find_text(&manager->charts, gpuid_format(id, uuid));
}

static struct chart *get_chart(struct manager *manager, const struct gpuid *id) {
    struct chart *chart = find_chart(manager, id);

    if (chart)
        return chart;
    chart = calloc(1, sizeof(*chart));
    if (!chart)
        return NULL;
    gpuid_format(id, chart->uuid);
    chart->record.id = *id;
    chart->is_new = true;
    if (map_put_text(&manager->charts, chart->uuid, chart) < 0) {
        free(chart);
        return NULL;
    }
    return chart;
}

static void keep_chart(struct manager *manager, const struct chart *chart) {
    struct record record = { .kind = RECORD_DEVICE, .device = chart->record };

    broker_events_record(manager, &record);
}

/* So many ECC errors are known of: only more of them are news, now and after a restart. */
static void accept_errors(struct manager *manager, struct chart *chart, uint64_t n) {
    if (chart->record.has_accepted && chart->record.accepted_uncorrected == n)
        return;
    chart->record.has_accepted = true;
    chart->record.accepted_uncorrected = n;
    keep_chart(manager, chart);
}

int survey_restore(struct manager *manager, const struct record_device *record, bool is_rebooted) {
    struct chart *chart = get_chart(manager, &record->id);

    if (!chart)
        return -ENOMEM;
    chart->record = *record;
    chart->is_of_other_boot = is_rebooted;
    return 0;
}

/* Where and what a GPU is, for a life that begins while it is lost. */
static void keep_place(struct manager *manager, struct chart *chart, const struct device *device) {
    const struct sample_device *seen = &device->seen;
    struct record_device *record = &chart->record;
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
    keep_chart(manager, chart);
}

/*
 * The GPUs of the last life that the first sample of this one does not have: a card that falls off
 * moves nobody's number, not even while nobody looks.
 */
static void miss_devices(struct manager *manager, const struct sample *sample) {
    struct chart *chart;

    for (size_t pos = 0; (chart = map_next(&manager->charts, &pos));) {
        struct record_device *record = &chart->record;
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
        if (chart->is_of_other_boot) {
            record->has_place = record->is_lost = false;
            keep_chart(manager, chart);
            continue;
        }
        snprintf(seen.name, sizeof(seen.name), "%s", record->name);
        if (inventory_miss(manager->inventory, &seen) < 0)
            log_line(LOG_WARNING, NULL, "no memory for %s, which is lost: it is not shown",
                     chart->uuid);
    }
}

/* ---- What a context costs ---------------------------------------------------------------------
 */

/*
 * Nobody tells, so it is believed until it is seen: what drivers of 2024 take on devices of this
 * compute capability, and then what processes were seen to use when they began, because whoever
 * uses a device has a context on it. What kind of device it is does not change while it is drained
 * or lost and nothing of it is read.
 */
static uint64_t usual_context(const struct sample_device *device) {
    if (!(device->has & SAMPLE_HAS(capability)) || device->capability == 0)
        return 0;
    if (device->capability >= 900)
        return MIB(520);
    return device->capability >= 800 ? MIB(414) : MIB(128);
}

static uint64_t context_bytes(struct chart *chart, const struct sample_device *device) {
    uint64_t usual = usual_context(device);

    if (chart && usual)
        chart->usual_context = usual;
    else if (chart)
        usual = chart->usual_context;
    if (chart && chart->record.context_bytes)
        return chart->record.context_bytes;
    return books_round_up(usual ? usual : MIB(300));
}

/* Less than this is a process in the middle of making its context, or of leaving; more than that is
 * no context. */
#define CONTEXT_LEAST MIB(32)
#define CONTEXT_MOST  MIB(4096)

/* The row of the sample before; NULL: there was none. */
static const struct sample_process *row_before(const struct manager *manager,
                                               const struct sample_process *process) {
    for (size_t i = 0; manager->sample && i < manager->sample->n_processes; i++) {
        const struct sample_process *row = &manager->sample->processes[i];

        if (row->pid == process->pid && row->start == process->start &&
            gpuid_equal(&row->device, &process->device))
            return row;
    }
    return NULL;
}

/*
 * What a context must cost, by what a process uses; 0: that does not tell.
 *
 * At first sight, whoever uses less than a context has one for less. One that declares all that it
 * takes (by guard or arenas), its context first, and uses more than that, has one for so much more
 * than it was told to declare for it, whatever is believed by now. One that goes on using less than
 * it declares has one for less, or has declared ahead: that can take back what was measured too
 * high, not what is usual.
 */
static uint64_t measure_context(struct manager *manager, const struct chart *chart,
                                const struct sample_process *process, uint64_t believed) {
    const struct sample_process *before = row_before(manager, process);
    uint64_t used = books_round_up(process->used_bytes), declared, told, cost;

    if (!before && used < believed)
        return used;
    if (!broker_declared(manager->broker, &(struct process_id){ process->pid, process->start },
                         &process->device, &declared, &told) ||
        told == 0 || declared < told || used == declared || used + told < declared)
        return 0;
    cost = used + told - declared;
    if (used > declared)
        return !before && cost <= CONTEXT_MOST && cost != believed ? cost : 0;
    cost = MAX(cost, books_round_up(chart->usual_context));
    return before && before->used_bytes == process->used_bytes && chart->usual_context &&
                   cost < believed
               ? cost
               : 0;
}

static void measure_contexts(struct manager *manager, const struct sample *sample,
                             struct moment now) {
    for (size_t i = 0; i < sample->n_processes; i++) {
        const struct sample_process *process = &sample->processes[i];
        const struct device *device;
        struct chart *chart;
        uint64_t bytes;

        if (!process->has_used || process->kinds != SAMPLE_COMPUTE ||
            process->used_bytes < CONTEXT_LEAST)
            continue;
        device = inventory_find(manager->inventory, &process->device);
        chart = device ? find_chart(manager, &process->device) : NULL;
        bytes = chart
                    ? measure_context(manager, chart, process, context_bytes(chart, &device->seen))
                    : 0;
        if (bytes == 0)
            continue;
        chart->record.context_bytes = bytes;
        keep_chart(manager, chart);
        broker_device_set(manager->broker, device, bytes, now);
    }
}

/* ---- Devices that come and go ------------------------------------------------------------------
 */

static void on_change(void *userdata, enum inventory_change change, const struct device *device) {
    static const struct {
        const char *kind, *text;
        int level;
        enum log_message message;
    } words[] = {
        [INVENTORY_APPEARED] = { "appeared", "is there", LOG_INFO, LOG_PLAIN },
        [INVENTORY_CHANGED] = { "changed", "is another than it was", LOG_NOTICE, LOG_PLAIN },
        [INVENTORY_LOST] = { "lost", "is lost", LOG_ERR, LOG_DEVICE_LOST },
        [INVENTORY_RETURNED] = { "returned", "is back", LOG_NOTICE, LOG_RESUMED },
        [INVENTORY_DRAINED] = { "drained", "takes no new leases", LOG_WARNING, LOG_DRAINED },
        [INVENTORY_RESUMED] = { "resumed", "takes leases again", LOG_NOTICE, LOG_RESUMED },
    };
    struct manager *manager = userdata;
    struct chart *chart = get_chart(manager, &device->seen.id);
    char uuid[GPUID_TEXT_SIZE];

    if (chart &&
        (change == INVENTORY_RETURNED || (change == INVENTORY_APPEARED && chart->record.is_lost)))
        chart->has_returned = true;
    if (chart)
        keep_place(manager, chart, device);
    broker_events_report(
        manager, words[change].level,
        &(struct log_about){ .message = words[change].message, .device = &device->seen.id },
        words[change].kind, "%s (%s) %s%s%s", gpuid_format(&device->seen.id, uuid),
        device->seen.name, words[change].text, device->reason[0] ? ": " : "", device->reason);
    if (broker_device_set(manager->broker, device, context_bytes(chart, &device->seen),
                          manager_now(manager)) < 0)
        log_line(LOG_ERR, NULL, "no memory for the books of %s: it is left out", uuid);
}

int survey_drain(struct manager *manager, const struct gpuid *id, const char *reason) {
    struct chart *chart = get_chart(manager, id);

    if (!chart)
        return -ENOMEM;
    chart->record.drained = true;
    chart->record.by_health = false;
    chart->record.drained_usec = manager_now(manager).usec;
    snprintf(chart->record.reason, sizeof(chart->record.reason), "%s", reason);
    keep_chart(manager, chart);
    return inventory_drain(manager->inventory, id, DRAIN_ADMIN, reason);
}

int survey_resume(struct manager *manager, const struct gpuid *id) {
    struct chart *chart = get_chart(manager, id);
    const struct device *device = inventory_find(manager->inventory, id);

    if (!chart)
        return -ENOMEM;
    if (device && device->seen.has & SAMPLE_HAS(ecc_uncorrected))
        accept_errors(manager, chart, device->seen.ecc_uncorrected);
    chart->n_accepts = ACCEPTED_SAMPLES;
    chart->record.drained = chart->record.by_health = false;
    chart->record.drained_usec = 0;
    chart->record.reason[0] = 0;
    keep_chart(manager, chart);
    inventory_resume(manager->inventory, id, DRAIN_HEALTH);
    return inventory_resume(manager->inventory, id, DRAIN_ADMIN);
}

/* ---- Health -----------------------------------------------------------------------------------
 */

static void drain_by_health(struct manager *manager, struct chart *chart, const char *reason) {
    uint64_t now = manager_now(manager).usec;

    chart->has_returned = false;
    if (!chart->record.drained || chart->record.by_health) {
        chart->record.drained = chart->record.by_health = true;
        chart->record.drained_usec = now;
        snprintf(chart->record.reason, sizeof(chart->record.reason), "%s", reason);
        keep_chart(manager, chart);
    }
    inventory_drain(manager->inventory, &chart->record.id, DRAIN_HEALTH, reason);
}

/* The driver may say what kind of device it is only after it was entered in the books. */
static void settle_context(struct manager *manager, struct chart *chart,
                           const struct device *device, struct moment now) {
    const struct book *book = broker_book(manager->broker, &device->seen.id);
    uint64_t bytes = context_bytes(chart, &device->seen);

    if (book && book->context_bytes != bytes)
        broker_device_set(manager->broker, device, bytes, now);
}

static void check_device(struct manager *manager, const struct sample_device *seen,
                         struct moment now) {
    struct chart *chart = get_chart(manager, &seen->id);
    const struct device *device = inventory_find(manager->inventory, &seen->id);
    struct health_decision decision;

    if (!chart || !device)
        return;
    if (chart->is_new) {
        chart->is_new = false;
        /* What is there when it is seen for the first time is known; what came while nobody looked
         * is not. */
        if (seen->has & SAMPLE_HAS(ecc_uncorrected) && !chart->record.has_accepted)
            accept_errors(manager, chart, seen->ecc_uncorrected);
        if (chart->record.drained) {
            inventory_drain(manager->inventory, &seen->id,
                            chart->record.by_health ? DRAIN_HEALTH : DRAIN_ADMIN,
                            chart->record.reason);
            if (!chart->record.by_health && !seen->is_mig)
                hand_close_device(manager->hand, NULL, &seen->id, true, survey_ignore, NULL);
        }
    }
    if (seen->health != SAMPLE_OK)
        return;
    settle_context(manager, chart, device, now);
    if (chart->n_accepts > 0) {
        chart->n_accepts--;
        if (seen->has & SAMPLE_HAS(ecc_uncorrected))
            accept_errors(manager, chart, seen->ecc_uncorrected);
    }
    health_decide_reading(&manager->config->health, seen, chart->record.accepted_uncorrected,
                          &decision);
    if (decision.verdict == HEALTH_DRAIN && !(device->drains & DRAIN_HEALTH))
        drain_by_health(manager, chart, decision.reason);
    else if (decision.verdict != HEALTH_DRAIN && device->drains & DRAIN_HEALTH &&
             chart->record.by_health &&
             health_decide_recovery(&manager->config->health, device, chart->has_returned,
                                    chart->record.drained_usec, now.usec)) {
        chart->record.drained = chart->record.by_health = chart->has_returned = false;
        chart->record.reason[0] = 0;
        keep_chart(manager, chart);
        inventory_resume(manager->inventory, &seen->id, DRAIN_HEALTH);
    }
}

static void on_happened(void *userdata, const struct sample_event *event) {
    struct manager *manager = userdata;
    struct chart *chart = find_chart(manager, &event->device);
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
    if (decision.verdict == HEALTH_DRAIN && chart)
        drain_by_health(manager, chart, decision.reason);
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
    sample_free(manager->sample);
    manager->sample = TAKE(copy);
}

static void on_probed(void *userdata, int r, const struct hand_answer *answer,
                      const struct allot_error *err) {
    struct manager *manager = userdata;

    if (r < 0) {
        log_line(LOG_WARNING, &(struct log_about){ .message = LOG_TIER },
                 "the tiers of enforcement could not be tried: %s", err->text);
        /* Its hand may have been replaced meanwhile. What breaks hands is not tried for ever. */
        if (++manager->n_probes_failed < PROBES_MAX)
            manager->is_probing = false;
        return;
    }
    manager->probes = answer->probes;
    manager->has_probes = true;
    for (unsigned tier = 1; tier < ELEMENTSOF(answer->probes.tiers); tier++)
        if (tier != 3 && tier != 4)
            log_line(LOG_INFO, &(struct log_about){ .message = LOG_TIER }, "tier %u is %s: %s",
                     tier, answer->probes.tiers[tier].proven ? "proven" : "absent",
                     answer->probes.tiers[tier].detail);
}

void survey_ignore(void *userdata, int r, const struct hand_answer *answer,
                   const struct allot_error *err) {
    if (r < 0)
        log_line(LOG_WARNING, NULL, "%s", err->text);
}

static void on_locked(void *userdata, int r, const struct hand_answer *answer,
                      const struct allot_error *err) {
    struct manager *manager = userdata;
    bool wanted = manager->config->is_locked;

    manager->is_locked = wanted && r == 0;
    snprintf(manager->lock_trouble, sizeof(manager->lock_trouble), "%s", r < 0 ? err->text : "");
    if (r < 0)
        log_line(LOG_WARNING, &(struct log_about){ .message = LOG_TIER },
                 wanted ? "sessions are not locked out of the GPUs: %s"
                        : "the GPUs could not be opened to sessions again: %s",
                 err->text);
    else if (wanted)
        log_line(LOG_NOTICE, &(struct log_about){ .message = LOG_TIER },
                 "locked: the GPUs are open to leases only");
}

void survey_lock(struct manager *manager) {
    manager->lock_usec = manager_now(manager).usec;
    /* Before the first sample the hand does not know what there is to lock: it is asked then. */
    if (manager->is_probing)
        hand_lock(manager->hand, NULL, manager->config->is_locked, on_locked, manager);
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

/* A daemon that begins without a state, and jobs in scopes that only a daemon has made. */
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

static void on_sampled(void *userdata, const struct sample *sample) {
    struct manager *manager = userdata;
    struct moment now = manager_now(manager);

    if (!manager->sample)
        look_for_jobs(manager, sample);

    if (manager->stale_usec) {
        manager->stale_usec = 0;
        broker_events_report(manager, LOG_NOTICE, &(struct log_about){ 0 }, "fresh",
                             "devices are read again");
    }
    if (!manager->has_probes && !manager->is_probing) {
        manager->is_probing = true;
        hand_probe(manager->hand, NULL, on_probed, manager);
        survey_lock(manager);
    }
    /* systemd may have been too busy to answer. */
    if (manager->lock_trouble[0] && now.usec - manager->lock_usec >= LOCK_RETRY_USEC)
        survey_lock(manager);
    if (!manager->sample)
        miss_devices(manager, sample);
    if (inventory_update(manager->inventory, sample) < 0) {
        log_line(LOG_WARNING, NULL, "no memory for a sample: it is left out");
        return;
    }
    for (size_t i = 0; i < sample->n_devices; i++)
        check_device(manager, &sample->devices[i], now);
    measure_contexts(manager, sample, now);
    if (broker_sample(manager->broker, sample, now) < 0)
        log_line(LOG_WARNING, NULL, "no memory for a sample: charges stay as they were");
    keep_sample(manager, sample);
    watch_actions_apply(manager, sample, now);
    manager_settle(manager);
}

static void on_stale(void *userdata, uint64_t since_usec, const char *reason) {
    struct manager *manager = userdata;

    manager->stale_usec = since_usec ? since_usec : 1;
    snprintf(manager->stale_reason, sizeof(manager->stale_reason), "%s", reason);
    inventory_stale(manager->inventory);
    broker_events_report(manager, LOG_WARNING, &(struct log_about){ .message = LOG_HAND_STUCK },
                         "stale", "devices cannot be read: %s; what is shown of them is old",
                         reason);
    methods_stale(manager, reason);
    manager_settle(manager);
}

struct hand_watcher survey_watcher(struct manager *manager) {
    return (struct hand_watcher){ manager, on_sampled, on_happened, on_stale };
}

void survey_tick(struct manager *manager, struct moment now) {
    struct allot_error err;
    bool trouble = manager->accounts && accounts_trouble(manager->accounts, &err);

    if (trouble && !manager->accounts_trouble)
        broker_events_report(manager, LOG_WARNING,
                             &(struct log_about){ .message = LOG_ACCOUNTS_FULL }, "accounts", "%s",
                             err.text);
    manager->accounts_trouble = trouble;

    trouble = !state_is_ready(manager->state, &err);
    /* Who comes back cannot be recorded: the time for it begins when it can. */
    if (trouble && manager->books_lost)
        broker_grace_begin(manager->broker, now);
    if (trouble && !manager->state_trouble)
        broker_events_report(manager, LOG_ERR, &(struct log_about){ .message = LOG_STATE_FULL },
                             "state", "%s", err.text);
    else if (!trouble && manager->state_trouble)
        broker_events_report(manager, LOG_NOTICE, &(struct log_about){ .message = LOG_STATE_FULL },
                             "state", "there is room again to record leases: they are given again");
    manager->state_trouble = trouble;
}

/* ---- Life -------------------------------------------------------------------------------------
 */

int survey_new(struct manager *manager) {
    int r = inventory_new(&manager->inventory, on_change, manager);

    return r < 0 ? r : watch_new(&manager->watch);
}

void survey_free(struct manager *manager) {
    struct chart *chart;

    for (size_t pos = 0; (chart = map_next(&manager->charts, &pos));) {
        map_take_text(&manager->charts, chart->uuid);
        free(chart);
    }
    map_done(&manager->charts);
    watch_free(manager->watch);
    inventory_free(manager->inventory);
    sample_free(manager->sample);
}

bool survey_refuses(struct manager *manager, uint64_t lease, const struct gpuid *device) {
    return !manager->config->watch.dry_run && manager->n_over > 0 &&
           watch_refuses(manager->watch, lease, device);
}
