/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "daemon/accounts/accounts.h"
#include "daemon/devices/inventory.h"
#include "daemon/manager.h"
#include "daemon/config/user_database.h"
#include "daemon/state/state.h"
#include "wire/readings.h"

#define NOTICES_MAX 8

/* The state while a box is being made. */
struct making {
    struct manager *manager;
    const struct status_viewer *viewer;
    struct store *store;
    uint64_t real_usec, boot_usec; /* now, by both clocks */
    struct map leases_of;          /* process → holder */
    bool failed;
};

static void *get(struct making *making, size_t n, size_t size) {
    void *p = store_get(making->store, (n + 1) * size); /* an empty array is not absent */

    making->failed |= !p;
    return p;
}

static const char *copy(struct making *making, const char *text) {
    const char *p = *text ? store_copy(making->store, text) : NULL;

    making->failed |= *text && !p;
    return p;
}

static const char *uuid_of(struct making *making, const struct gpuid *id) {
    char *text = store_get(making->store, GPUID_TEXT_SIZE);

    making->failed |= !text;
    return text ? gpuid_format(id, text) : "";
}

static uint64_t date_of(const struct making *making, uint64_t usec) {
    return usec >= making->boot_usec
               ? making->real_usec + (usec - making->boot_usec)
               : making->real_usec - MIN(making->boot_usec - usec, making->real_usec);
}

static const char *name_of(struct making *making, uid_t uid) {
    const char *name =
        store_copy(making->store, user_database_name(making->manager->user_database, uid));

    making->failed |= !name;
    return name ? name : "";
}

/* ---- Devices -----------------------------------------------------------------------------------
 */

static void make_links(struct making *making, const struct sample_device *seen,
                       struct wire_device *ret) {
    struct wire_link *links = get(making, seen->n_links, sizeof(*links));

    for (uint32_t i = 0; links && i < seen->n_links; i++)
        links[i] = (struct wire_link){
            .device = uuid_of(making, &seen->links[i].remote),
            .kind = sample_path_name(seen->links[i].path),
            .lanes =
                seen->links[i].lanes ? wire_some(seen->links[i].lanes) : (struct wire_maybe){ 0 },
        };
    ret->links = links;
    ret->n_links = links ? seen->n_links : 0;
}

static void make_device(struct making *making, const struct device_facts *device,
                        struct wire_device *ret) {
    static const enum wire_device_state states[] = {
        [DEVICE_READY] = WIRE_DEVICE_READY,
        [DEVICE_DRAINING] = WIRE_DEVICE_DRAINING,
        [DEVICE_LOST] = WIRE_DEVICE_LOST,
    };
    const struct sample_device *seen = &device->seen;
    const struct book *book = broker_book(making->manager->broker, &seen->id);
    uint64_t stale = making->manager->sampling.stale_usec;
    char pci[PCI_ID_TEXT_SIZE];

    *ret = (struct wire_device){
        .uuid = uuid_of(making, &seen->id),
        .kind = seen->is_mig ? WIRE_DEVICE_MIG : WIRE_DEVICE_GPU,
        .parent = seen->is_mig ? uuid_of(making, &seen->parent) : NULL,
        .index = seen->index,
        .gpu_instance = seen->is_mig ? wire_some(seen->gpu_instance) : (struct wire_maybe){ 0 },
        .compute_instance =
            seen->is_mig ? wire_some(seen->compute_instance) : (struct wire_maybe){ 0 },
        .bus_id = copy(making, pci_id_format(&seen->pci, PCI_ID_NVML, pci)),
        .name = seen->name,
        .mig_enabled = seen->mig_enabled,
        .state = states[device->state],
        .reason = copy(making, device->reason),
        .total_bytes = seen->total_bytes,
        .reserved_bytes = seen->reserved_bytes,
    };
    wire_readings_fill(ret, &seen->readings);
    if (stale)
        ret->stale_usec = wire_some(making->boot_usec - MIN(stale, making->boot_usec));
    if (book) {
        ret->reserved_bytes = book->reserved_bytes;
        ret->usable_bytes = book->usable_bytes;
        ret->leased_bytes = book->leased_bytes;
        ret->guaranteed_bytes = book->guaranteed_bytes;
        ret->held_bytes = book->held_bytes;
        ret->unmanaged_bytes = book->unmanaged_bytes;
        ret->releasing_bytes = book->releasing_bytes;
        ret->overcommitted_bytes = books_overcommitted_bytes(book);
        ret->free_bytes = books_free_bytes(book);
        ret->context_bytes = book->learned_bytes ? book->learned_bytes : book->context_bytes;
    }
    make_links(making, seen, ret);
}

/* ---- Leases ------------------------------------------------------------------------------------
 */

static void make_holders(struct making *making, const struct lease *lease, struct wire_lease *ret) {
    struct wire_holder *holders = get(making, lease->n_holders, sizeof(*holders));
    struct holder *holder;
    size_t n = 0;

    list_foreach (holder, &lease->holders, in_lease) {
        uint64_t held_bytes = 0;

        if (!holders || n == lease->n_holders)
            break;
        for (uint32_t i = 0; i < lease->n_shares; i++)
            held_bytes += lease_part_held(&holder->parts[i]);
        holders[n] =
            (struct wire_holder){ .pid = (uint64_t)holder->process.pid, .held_bytes = held_bytes };
        if (holder->attached_usec)
            holders[n].attached_at = wire_some(date_of(making, holder->attached_usec));
        n++;
        map_put(&making->leases_of, process_id_key(&holder->process), holder);
    }
    ret->holders = holders;
    ret->n_holders = n;
}

static void make_lease(struct making *making, const struct lease *lease, struct wire_lease *ret) {
    struct wire_share *shares = get(making, lease->n_shares, sizeof(*shares));
    uint64_t *tiers = get(making, 8, sizeof(*tiers));
    uint32_t in_force = lease->tiers;
    const struct holder *holder;
    bool is_fresh = making->manager->sampling.sample && !making->manager->sampling.stale_usec;

    *ret = (struct wire_lease){
        .id = lease->id,
        .name = copy(making, lease->name),
        .uid = lease->uid,
        .user = name_of(making, lease->uid),
        .mode = lease->mode,
        .priority = lease_priority(lease, &making->manager->config->policy),
        .state = lease->is_ending ? WIRE_LEASE_ENDING : WIRE_LEASE_ACTIVE,
        .reason = copy(making, lease->reason),
        .created_at = date_of(making, lease->created_usec),
        .scope = copy(making, lease->scope),
        .shares = shares,
        .tiers = tiers,
    };
    if (lease->expires_usec)
        ret->expires_at = wire_some(date_of(making, lease->expires_usec));
    if (lease->idle_usec)
        ret->idle_usec = wire_some(making->boot_usec - MIN(lease->idle_usec, making->boot_usec));
    /* Around the job, and what its processes bring. */
    list_foreach (holder, &lease->holders, in_lease)
        if (holder->is_attached && holder->tier)
            in_force |= 1u << holder->tier;
    for (unsigned tier = 1; tiers && tier < 8; tier++)
        if (in_force >> tier & 1)
            tiers[ret->n_tiers++] = tier;
    for (uint32_t i = 0; shares && i < lease->n_shares; i++)
        if (lease->shares[i].book)
            shares[ret->n_shares++] = (struct wire_share){
                .device = lease->shares[i].book->name,
                .limit_bytes = lease->shares[i].limit_bytes,
                .guaranteed_bytes = lease->shares[i].guaranteed_bytes,
                .held_bytes = lease->shares[i].held_bytes,
                .context_bytes = books_context(&lease->shares[i]),
                .used_bytes =
                    is_fresh ? wire_some(lease->shares[i].seen_bytes) : (struct wire_maybe){ 0 },
            };
    make_holders(making, lease, ret);
}

static void make_leases(struct making *making, struct wire_box *box) {
    struct manager *manager = making->manager;
    const struct lease *lease;
    struct wire_lease *leases;
    size_t n = 0;

    for (size_t pos = 0; broker_next_lease(manager->broker, &pos);)
        n++;
    leases = get(making, n, sizeof(*leases));
    box->leases = leases;
    for (size_t pos = 0; leases && (lease = broker_next_lease(manager->broker, &pos));)
        make_lease(making, lease, &leases[box->n_leases++]);
}

/* ---- Processes, line, tiers, notices ------------------------------------------------------------
 */

/* The strongest tier that holds a process, 0: none does. */
static uint64_t tier_of(const struct lease *lease, const struct holder *holder) {
    for (unsigned tier = 1; tier <= 2; tier++)
        if (lease->tiers >> tier & 1)
            return tier;
    return holder && holder->tier ? holder->tier : 5;
}

static const char *command_of(const struct making *making, const struct sample_process *row) {
    const struct manager *manager = making->manager;
    const struct status_viewer *viewer = making->viewer;

    if (viewer->is_admin || (row->has_uid && (row->uid == viewer->account ||
                                              user_database_owner(manager->user_database,
                                                                  row->uid) == viewer->account)))
        return row->command;
    return manager->config->show_programs && row->name[0] ? row->name : "(not shown)";
}

/* Whether anything but the watch holds a process to its share: the driver, the guard, liballot. */
static bool is_guarded(const struct lease *lease, const struct holder *holder) {
    return lease->tiers >> 1 & 1 || (holder && holder->is_attached && holder->tier >= 3);
}

static void count_unguarded(struct wire_device *devices, size_t n, const char *uuid) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(devices[i].uuid, uuid) == 0)
            devices[i].unguarded_processes.value++;
}

/* Also counts, in `devices`, those that run without a guard. */
static void make_processes(struct making *making, struct wire_box *box,
                           struct wire_device *devices) {
    struct manager *manager = making->manager;
    const struct sample *sample = manager->sampling.sample;
    size_t n = sample && !manager->sampling.stale_usec ? sample->n_processes : 0;
    struct wire_process *processes = get(making, n, sizeof(*processes));

    box->processes = processes;
    if (sample && !manager->sampling.stale_usec)
        for (size_t i = 0; i < box->n_devices; i++)
            devices[i].unguarded_processes = wire_some(0);
    for (size_t i = 0; processes && i < n; i++) {
        const struct sample_process *row = &sample->processes[i];
        struct process_id id = { row->pid, row->start };
        struct holder *holder = map_find(&making->leases_of, process_id_key(&id));
        const struct lease *lease = holder ? holder->lease
                                    : row->cgroup[0]
                                        ? broker_lease_of_cgroup(manager->broker, row->cgroup)
                                        : NULL;
        enum watch_step step =
            watch_step_of(manager->watch_actions.watch, lease ? lease->id : 0, &id, &row->device);
        bool both = (row->kinds & SAMPLE_COMPUTE) && (row->kinds & SAMPLE_GRAPHICS);
        struct wire_process *ret = &processes[box->n_processes++];

        *ret = (struct wire_process){
            .pid = (uint64_t)row->pid,
            .command = command_of(making, row),
            .container = row->container[0] ? row->container : NULL,
            .device = uuid_of(making, &row->device),
            .kind = both                           ? WIRE_PROCESS_BOTH
                    : row->kinds & SAMPLE_GRAPHICS ? WIRE_PROCESS_GRAPHICS
                                                   : WIRE_PROCESS_COMPUTE,
        };
        if (row->namespace_pid)
            ret->namespace_pid = wire_some((uint64_t)row->namespace_pid);
        if (row->has_uid) {
            ret->uid = wire_some(row->uid);
            ret->user = name_of(making, row->uid);
        }
        if (row->has_used)
            ret->used_bytes = wire_some(row->used_bytes);
        if (lease) {
            ret->lease = wire_some(lease->id);
            ret->tier = wire_some(tier_of(lease, holder));
            if (!is_guarded(lease, holder))
                count_unguarded(devices, box->n_devices, ret->device);
        }
        if (step != WATCH_FINE)
            ret->offence = lease ? "over its limit" : "no lease";
    }
}

static void make_queue(struct making *making, struct wire_box *box) {
    struct broker *broker = making->manager->broker;
    uint32_t n = broker_n_waiters(broker);
    struct wire_waiter *queue = get(making, n, sizeof(*queue));
    struct broker_waiter waiter;

    box->queue = queue;
    for (uint32_t i = 0; queue && i < n && broker_waiter_at(broker, i, &waiter); i++) {
        struct wire_waiter *ret = &queue[box->n_queue++];

        *ret = (struct wire_waiter){
            .id = waiter.id,
            .place = waiter.place,
            .uid = waiter.uid,
            .user = name_of(making, waiter.uid),
            .name = copy(making, waiter.name),
            .what = waiter.is_growth ? WIRE_WAITS_GROWTH : WIRE_WAITS_LEASE,
            .priority = waiter.priority,
            .since_at = date_of(making, waiter.since_usec),
            .reason = store_copy(making->store, waiter.reason),
            .asked = store_copy(making->store, waiter.asked),
        };
        if (waiter.lease)
            ret->lease = wire_some(waiter.lease);
        if (waiter.timeout_usec)
            ret->timeout_at = wire_some(date_of(making, waiter.timeout_usec));
        making->failed |= !ret->reason || !ret->asked;
    }
}

static void make_tiers(struct making *making, struct wire_box *box) {
    static const char *const names[] = { "",      "driver limit", "device cgroup",
                                         "guard", "liballot",     "watch" };
    struct manager *manager = making->manager;
    struct wire_tier *tiers = get(making, 5, sizeof(*tiers));
    unsigned n_by[8] = { 0 };
    struct holder *holder;

    for (size_t pos = 0; (holder = map_next(&making->leases_of, &pos));)
        n_by[holder->tier & 7]++;
    box->tiers = tiers;
    for (unsigned tier = 1; tiers && tier <= 5; tier++) {
        struct wire_tier *ret = &tiers[box->n_tiers++];

        *ret = (struct wire_tier){ .number = tier, .name = names[tier] };
        if (tier == 3 || tier == 4) {
            char text[96];

            ret->proven = n_by[tier] > 0;
            snprintf(text, sizeof(text), "it keeps %u attached processes within their share",
                     n_by[tier]);
            ret->detail = n_by[tier] ? copy(making, text) : "no attached process reports it";
        } else {
            ret->proven = manager->tiers.has_probes && manager->tiers.probes.tiers[tier].proven;
            ret->detail = manager->tiers.has_probes ? manager->tiers.probes.tiers[tier].detail
                                                    : "not tried yet";
        }
    }
}

static void add_notice(struct making *making, const char **notices, size_t *n, const char *format,
                       ...) __attribute__((format(printf, 4, 5)));
static void add_notice(struct making *making, const char **notices, size_t *n, const char *format,
                       ...) {
    char text[512];
    va_list arguments;

    if (!notices || *n == NOTICES_MAX)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    notices[*n] = copy(making, text);
    *n += notices[*n] != NULL;
}

static void make_notices(struct making *making, struct wire_box *box) {
    struct manager *manager = making->manager;
    const char **notices = get(making, NOTICES_MAX, sizeof(*notices));
    struct allot_error err;

    box->notices = notices;
    if (manager->sampling.stale_usec)
        add_notice(making, notices, &box->n_notices, "devices cannot be read: %s",
                   manager->sampling.stale_reason);
    if (manager->tiers.lock_trouble[0])
        add_notice(making, notices, &box->n_notices, "the box is %s: %s",
                   manager->config->is_locked ? "not locked" : "still locked",
                   manager->tiers.lock_trouble);
    if (manager->books_lost)
        add_notice(making, notices, &box->n_notices,
                   "the state of the last daemon was damaged: leases are rebuilt from the "
                   "processes that come back");
    if (!state_is_ready(manager->state, &err))
        add_notice(making, notices, &box->n_notices, "nothing new is granted: %s", err.text);
    if (!manager->accounts)
        add_notice(making, notices, &box->n_notices,
                   "nothing is accounted: the database could not be opened");
    else if (accounts_trouble(manager->accounts, &err))
        add_notice(making, notices, &box->n_notices, "%s", err.text);
    for (enum require require = REQUIRE_SCOPE;
         manager->tiers.has_probes && require <= REQUIRE_DRIVER; require++) {
        unsigned tier = require == REQUIRE_SCOPE ? 2 : 1;

        if (policy_strongest(&manager->config->policy) >= require &&
            !manager->tiers.probes.tiers[tier].proven)
            add_notice(making, notices, &box->n_notices,
                       "leases with require = %s are denied, because tier %u is not proven here: "
                       "\"gpuctl doctor\" says why",
                       policy_require_name(require), tier);
    }
    if (manager->config->watch.dry_run && watch_is_any_over(manager->watch_actions.watch))
        add_notice(making, notices, &box->n_notices,
                   "processes use GPUs without a lease or beyond it, and the watch only reports "
                   "it: dry-run of [watch]");
}

const struct wire_box *status_make(struct manager *manager, const struct status_viewer *viewer,
                                   struct store *store) {
    struct making making = {
        .manager = manager,
        .viewer = viewer,
        .store = store,
        .real_usec = manager_real(manager),
        .boot_usec = manager_now(manager).usec,
    };
    struct wire_box *box = store_get(store, sizeof(*box));
    size_t n = inventory_count(manager->inventory);
    struct wire_device *devices = get(&making, n, sizeof(*devices));
    uint64_t grace = broker_grace_until(manager->broker);

    if (!box)
        return NULL;
    *box = (struct wire_box){
        .host = manager->host,
        .driver = driver_choice_name(manager->driver),
        .driver_version = manager->sampling.sample && manager->sampling.sample->driver_version[0]
                              ? manager->sampling.sample->driver_version
                              : NULL,
        .version = ALLOT_VERSION,
        .mode = manager->tiers.is_locked ? WIRE_BOX_LOCKED : WIRE_BOX_OPEN,
        .started_at = manager->started_usec,
        .devices = devices,
        .n_devices = devices ? n : 0,
    };
    if (grace)
        box->grace_usec = wire_some(grace - MIN(grace, making.boot_usec));
    for (size_t i = 0; i < box->n_devices; i++)
        make_device(&making, inventory_at(manager->inventory, i), &devices[i]);
    make_leases(&making, box);
    make_processes(&making, box, devices);
    make_queue(&making, box);
    make_tiers(&making, box);
    make_notices(&making, box);
    map_done(&making.leases_of);
    return making.failed ? NULL : box;
}
