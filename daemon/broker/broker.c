/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The broker itself: devices, and the objects that others are found by. daemon/broker/internal.h
 * has the map of the rest.
 */
#include "daemon/broker/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/broker/visibility.h"

int broker_new(struct broker **ret, const struct policy *policy, const struct broker_sink *sink) {
    struct broker *broker = calloc(1, sizeof(*broker));

    if (!broker)
        return -ENOMEM;
    broker->round = round_new();
    if (!broker->round) {
        free(broker);
        return -ENOMEM;
    }
    broker->policy = policy;
    if (sink)
        broker->sink = *sink;
    list_init(&broker->debts);
    list_init(&broker->ghosts);
    list_init(&broker->aliases);
    list_init(&broker->asleep);
    list_init(&broker->recalls);
    list_init(&broker->unheard);
    list_init(&broker->declared);
    list_init(&broker->hooked);
    broker->next_lease = broker->next_waiter = broker->next_arrival = 1;
    broker->next_expiry_usec = broker->next_sweep_usec = UINT64_MAX;
    *ret = broker;
    return 0;
}

struct broker *broker_free(struct broker *broker) {
    struct rank_tree_node *node;
    struct lease *lease;
    struct debt *debt, *next_debt;
    struct ghost *ghost, *next_ghost;
    struct alias *alias, *next_alias;

    if (!broker)
        return NULL;
    broker->sink = (struct broker_sink){ 0 };
    while ((node = rank_tree_first(broker->growths)) || (node = rank_tree_first(broker->requests)))
        waiter_free(broker, rank_tree_entry(node, struct waiter, in_line));
    for (size_t pos = 0; (lease = map_next(&broker->leases, &pos));)
        lease_gone(broker, lease, "");
    list_foreach_safe (debt, next_debt, &broker->debts, in_broker) {
        debt_free(broker, debt);
    }
    list_foreach_safe (ghost, next_ghost, &broker->ghosts, in_broker) {
        free(ghost);
    }
    list_foreach_safe (alias, next_alias, &broker->aliases, in_broker) {
        free(alias);
    }
    for (size_t i = 0; i < broker->n_books; i++)
        free(broker->books[i]);
    map_done(&broker->leases);
    map_done(&broker->members);
    map_done(&broker->tenants);
    map_done(&broker->waiters);
    map_done(&broker->cgroups);
    free(broker->round);
    free(broker->strays);
    free(broker);
    return NULL;
}

/* ---- Processes and users -----------------------------------------------------------------------
 */

/* Pids have 22 bits, start times count ticks since boot: nothing is lost for centuries. */
static uint64_t member_key(const struct process_id *process) {
    return process->start << 22 ^ (uint64_t)process->pid;
}

struct member *member_find(const struct broker *broker, const struct process_id *process) {
    return map_find(&broker->members, member_key(process));
}

struct member *member_get(struct broker *broker, const struct process_id *process) {
    struct member *member = member_find(broker, process);

    if (member)
        return member;
    member = calloc(1, sizeof(*member));
    if (!member)
        return NULL;
    member->process = *process;
    list_init(&member->holders);
    list_init(&member->leases);
    list_init(&member->waiters);
    if (map_put(&broker->members, member_key(process), member) < 0) {
        free(member);
        return NULL;
    }
    return member;
}

void member_hook(struct broker *broker, struct member *member, bool has_more) {
    struct waiter *waiter;
    bool is_hooked = !list_is_empty(&member->waiters) &&
                     (!list_is_empty(&member->holders) || !list_is_empty(&member->leases));

    if (!is_hooked)
        list_remove(&member->in_hooked);
    else if (!list_is_linked(&member->in_hooked))
        list_append(&broker->hooked, &member->in_hooked);
    if (is_hooked && has_more)
        list_foreach (waiter, &member->waiters, in_member) {
            waiter_refresh(broker, waiter);
        }
}

void member_put(struct broker *broker, struct member *member) {
    if (!member)
        return;
    member_hook(broker, member, false);
    if (!list_is_empty(&member->holders) || !list_is_empty(&member->leases) ||
        !list_is_empty(&member->waiters))
        return;
    map_take(&broker->members, member_key(&member->process));
    free(member);
}

static void tenant_judge(struct broker *broker, struct tenant *tenant) {
    policy_rules_for(&tenant->rules, broker->policy, tenant->uid, tenant->gids, tenant->n_gids);
    broker->has_spending |= tenant->rules.quota_byte_seconds != UNITS_FOREVER;
}

struct tenant *tenant_get(struct broker *broker, uid_t uid, gid_t gid) {
    struct tenant *tenant = map_find(&broker->tenants, uid);

    if (tenant)
        return tenant;
    tenant = calloc(1, sizeof(*tenant));
    if (!tenant)
        return NULL;
    tenant->uid = uid;
    tenant->gid = gid;
    tenant->gids = malloc(sizeof(gid_t));
    list_init(&tenant->waiters);
    list_init(&tenant->parked);
    if (!tenant->gids || map_put(&broker->tenants, uid, tenant) < 0) {
        free(tenant->gids);
        free(tenant);
        return NULL;
    }
    tenant->gids[0] = gid;
    tenant->n_gids = 1;
    tenant_judge(broker, tenant);
    return tenant;
}

void tenant_put(struct broker *broker, struct tenant *tenant) {
    if (!tenant || tenant->n_leases > 0 || tenant->n_waiting > 0)
        return;
    map_take(&broker->tenants, tenant->uid);
    free(tenant->gids);
    free(tenant);
}

int tenant_groups(struct broker *broker, struct tenant *tenant, const struct broker_peer *peer) {
    size_t n = peer->n_gids + 1;
    gid_t *gids;

    if (tenant->n_gids == n && tenant->gids[0] == peer->gid &&
        (n == 1 || memcmp(tenant->gids + 1, peer->gids, (n - 1) * sizeof(gid_t)) == 0))
        return 0;
    gids = malloc(n * sizeof(gid_t));
    if (!gids)
        return -ENOMEM;
    gids[0] = peer->gid;
    if (n > 1)
        memcpy(gids + 1, peer->gids, (n - 1) * sizeof(gid_t));
    free(tenant->gids);
    tenant->gids = gids;
    tenant->n_gids = n;
    tenant->gid = peer->gid;
    tenant_judge(broker, tenant);
    return 0;
}

/* ---- Devices -----------------------------------------------------------------------------------
 */

struct book *book_find(const struct broker *broker, const struct gpuid *id) {
    for (size_t i = 0; i < broker->n_books; i++)
        if (gpuid_equal(&broker->books[i]->device.seen.id, id))
            return broker->books[i];
    return NULL;
}

struct book *book_get(struct broker *broker, const struct gpuid *id) {
    struct book *book = book_find(broker, id);

    if (book || broker->n_books == BOOKS_MAX)
        return book;
    book = calloc(1, sizeof(*book));
    if (!book)
        return NULL;
    book->slot = (unsigned)broker->n_books;
    list_init(&book->shares);
    broker->shut[book->slot].place = (struct place){ true, INT64_MAX, UINT64_MAX };
    broker->shut[book->slot].room_bytes = UINT64_MAX;
    book->device.seen.id = *id;
    book->device.state = DEVICE_LOST;
    snprintf(book->device.reason, sizeof(book->device.reason), "not seen since the daemon started");
    gpuid_format(id, book->name);
    broker->books[broker->n_books++] = book;
    return book;
}

static void book_measure(const struct broker *broker, struct book *book) {
    const struct sample_device *seen = &book->device.seen;
    struct policy_face face = book_face(book);
    uint64_t kept = policy_reserve(broker->policy, &face, seen->total_bytes), reserved;

    if (__builtin_add_overflow(seen->reserved_bytes, kept, &reserved))
        reserved = UINT64_MAX;
    book->usable_bytes =
        reserved < seen->total_bytes ? books_round_down(seen->total_bytes - reserved) : 0;
    book->reserved_bytes = seen->total_bytes - book->usable_bytes;
    book->require = policy_require(broker->policy, &face);
}

static void tell_holders(struct broker *broker, const struct book *book, enum notice_kind kind) {
    struct lease *lease;
    char text[DEVICE_REASON_SIZE + 128];

    snprintf(text, sizeof(text), "%s %s: %s", book->name,
             kind == NOTICE_LOST ? "is lost" : "is being drained",
             book->device.reason[0] ? book->device.reason : "no reason was given");
    for (size_t pos = 0; (lease = map_next(&broker->leases, &pos));)
        if (lease_share(lease, &book->device.seen.id, NULL))
            tell_notice(broker, lease, kind, &book->device.seen.id, text);
}

int broker_device_set(struct broker *broker, const struct device *device, uint64_t context_bytes,
                      struct moment now) {
    struct book *book = book_get(broker, &device->seen.id);
    enum device_state before;
    bool is_same;

    if (!book)
        return broker->n_books == BOOKS_MAX ? -E2BIG : -ENOMEM;
    broker->now_usec = now.usec;
    before = book->device.state;
    is_same = before == device->state &&
              book->device.seen.total_bytes == device->seen.total_bytes &&
              book->device.seen.reserved_bytes == device->seen.reserved_bytes &&
              book->device.seen.mig_enabled == device->seen.mig_enabled &&
              book->device.seen.index == device->seen.index &&
              book->device.seen.place == device->seen.place &&
              book->context_bytes == books_round_up(context_bytes);
    book->device = *device;
    book->context_bytes = books_round_up(context_bytes);
    book_measure(broker, book);
    if (is_same)
        return 0;

    if (before != device->state && device->state == DEVICE_DRAINING)
        tell_holders(broker, book, NOTICE_DRAINING);
    else if (before != device->state && device->state == DEVICE_LOST)
        tell_holders(broker, book, NOTICE_LOST);
    return line_review(broker);
}

int broker_policy_set(struct broker *broker, const struct policy *policy, struct moment now) {
    struct tenant *tenant;
    struct waiter *waiter;

    broker->now_usec = now.usec;
    broker->policy = policy;
    for (size_t i = 0; i < broker->n_books; i++)
        book_measure(broker, broker->books[i]);
    broker->has_spending = false;
    for (size_t pos = 0; (tenant = map_next(&broker->tenants, &pos));)
        tenant_judge(broker, tenant);
    /* A step of priority may be worth another wait. */
    for (size_t pos = 0; (waiter = map_next(&broker->waiters, &pos));)
        if (line_key(broker, waiter->since_usec, waiter->priority) != waiter->in_line.key)
            waiter_reorder(broker, waiter, waiter->priority);
    /* Growth, too, may be within the quota now. */
    for (size_t pos = 0; (tenant = map_next(&broker->tenants, &pos));)
        tenant_unpark(broker, tenant);
    return line_review(broker);
}

/* ---- Reading -----------------------------------------------------------------------------------
 */

struct lease *broker_lease(const struct broker *broker, uint64_t id) {
    return map_find(&broker->leases, id);
}

struct lease *lease_of_peer(const struct broker *broker, uint64_t id, uid_t uid) {
    struct lease *lease = broker_lease(broker, id);
    const struct alias *alias;

    if (lease && lease->uid == uid)
        return lease;
    list_foreach (alias, &broker->aliases, in_broker) {
        if (alias->called == id && alias->uid == uid)
            return broker_lease(broker, alias->lease);
    }
    return lease;
}

const struct lease *broker_lease_called(const struct broker *broker, uint64_t id, uid_t uid) {
    const struct lease *lease = lease_of_peer(broker, id, uid);

    return lease && lease->uid == uid ? lease : NULL;
}

struct holder *broker_holder(const struct broker *broker, const struct process_id *process,
                             uint64_t lease) {
    struct lease *found = broker_lease(broker, lease);
    struct holder *holder = found ? holder_find(found, process) : NULL;
    const struct alias *alias;

    if (holder)
        return holder;
    list_foreach (alias, &broker->aliases, in_broker) {
        if (alias->called != lease || !(found = broker_lease(broker, alias->lease)))
            continue;
        holder = holder_find(found, process);
        if (holder)
            return holder;
    }
    return NULL;
}

const struct book *broker_book(const struct broker *broker, const struct gpuid *device) {
    return book_find(broker, device);
}

struct lease *broker_lease_of_cgroup(const struct broker *broker, const char *cgroup) {
    char path[RECORD_PATH_SIZE];
    size_t length = strlen(cgroup);

    if (broker->cgroups.n == 0 || length == 0 || length >= sizeof(path))
        return NULL;
    memcpy(path, cgroup, length + 1);
    /* A process may be in a child of the scope's cgroup. */
    while (length > 0) {
        struct lease *lease = map_find_text(&broker->cgroups, path);

        if (lease)
            return lease;
        while (length > 0 && path[length - 1] != '/')
            length--;
        if (length > 0)
            path[--length] = '\0';
    }
    return NULL;
}

const struct lease *broker_next_lease(const struct broker *broker, size_t *pos) {
    return map_next(&broker->leases, pos);
}

const struct book *broker_next_book(const struct broker *broker, size_t *pos) {
    return *pos < broker->n_books ? broker->books[(*pos)++] : NULL;
}

uint32_t broker_n_waiters(const struct broker *broker) {
    return rank_tree_count(broker->growths) + rank_tree_count(broker->requests);
}

bool broker_waiter_at(const struct broker *broker, uint32_t i, struct broker_waiter *ret) {
    uint32_t n_growths = rank_tree_count(broker->growths);
    struct rank_tree_node *node = i < n_growths ? rank_tree_at(broker->growths, i)
                                                : rank_tree_at(broker->requests, i - n_growths);
    const struct waiter *waiter = rank_tree_entry(node, struct waiter, in_line);

    if (!waiter)
        return false;
    ret->id = waiter->id;
    ret->place = i + 1;
    ret->process = waiter->member->process;
    ret->uid = waiter->tenant->uid;
    ret->is_growth = waiter->holder != NULL;
    ret->lease = waiter->holder ? waiter->holder->lease->id : 0;
    ret->priority = waiter->priority;
    ret->since_usec = waiter->since_usec;
    ret->timeout_usec = waiter->timeout_usec;
    ret->name = waiter->name;
    ret->asked = waiter->asked;
    waiter_reason(broker, waiter, ret->reason, sizeof(ret->reason));
    return true;
}

int broker_visible_devices(const struct lease *lease, char *text, size_t size) {
    size_t length = 0;

    if (size > 0)
        text[0] = '\0';
    for (uint32_t i = 0; i < lease->n_shares; i++) {
        int n = snprintf(length < size ? text + length : NULL, length < size ? size - length : 0,
                         "%s%s", i ? "," : "", lease->shares[i].book->name);

        length += (size_t)n;
    }
    return (int)length;
}
