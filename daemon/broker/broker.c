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
    broker->schedule = schedule_new();
    if (!broker->schedule) {
        free(broker);
        return -ENOMEM;
    }
    broker->policy = policy;
    if (sink)
        broker->sink = *sink;
    list_init(&broker->releasing);
    list_init(&broker->recovered);
    list_init(&broker->aliases);
    list_init(&broker->asleep);
    list_init(&broker->recalls);
    list_init(&broker->unheard);
    list_init(&broker->declared);
    list_init(&broker->hold_wait);
    broker->next_lease = broker->next_waiter = broker->next_arrival = 1;
    broker->next_expiry_usec = broker->next_sweep_usec = UINT64_MAX;
    broker->next_reserve_usec = UINT64_MAX;
    *ret = broker;
    return 0;
}

struct broker *broker_free(struct broker *broker) {
    struct rank_tree_node *node;
    struct lease *lease;
    struct releasing *releasing, *next_releasing;
    struct recovered_waiter *recovered, *next_recovered;
    struct alias *alias, *next_alias;

    if (!broker)
        return NULL;
    broker->sink = (struct broker_sink){ 0 };
    while ((node = rank_tree_first(broker->growths)) || (node = rank_tree_first(broker->requests)))
        queue_leave(broker, rank_tree_entry(node, struct waiter, in_queue));
    for (size_t pos = 0; (lease = map_next(&broker->leases, &pos));)
        lease_gone(broker, lease, "");
    list_foreach_safe (releasing, next_releasing, &broker->releasing, in_broker) {
        releasing_free(broker, releasing);
    }
    list_foreach_safe (recovered, next_recovered, &broker->recovered, in_broker) {
        free(recovered);
    }
    list_foreach_safe (alias, next_alias, &broker->aliases, in_broker) {
        free(alias);
    }
    for (size_t i = 0; i < broker->n_books; i++)
        free(broker->books[i]);
    map_done(&broker->leases);
    map_done(&broker->procs);
    map_done(&broker->users);
    map_done(&broker->waiters);
    map_done(&broker->cgroups);
    free(broker->schedule);
    free(broker->unclaimed);
    free(broker);
    return NULL;
}

/* ---- Devices -----------------------------------------------------------------------------------
 */

struct book *broker_find_book(const struct broker *broker, const struct gpuid *id) {
    for (size_t i = 0; i < broker->n_books; i++)
        if (gpuid_equal(&broker->books[i]->device.seen.id, id))
            return broker->books[i];
    return NULL;
}

struct book *broker_get_book(struct broker *broker, const struct gpuid *id) {
    struct book *book = broker_find_book(broker, id);

    if (book || broker->n_books == BOOKS_MAX)
        return book;
    book = calloc(1, sizeof(*book));
    if (!book)
        return NULL;
    book->slot = (unsigned)broker->n_books;
    list_init(&book->shares);
    broker->bound[book->slot].place = (struct queue_place){ true, INT64_MAX, UINT64_MAX };
    broker->bound[book->slot].room_bytes = UINT64_MAX;
    book->device.seen.id = *id;
    book->device.state = DEVICE_LOST;
    snprintf(book->device.reason, sizeof(book->device.reason), "not seen since the daemon started");
    gpuid_format(id, book->name);
    broker->books[broker->n_books++] = book;
    return book;
}

static void book_measure(const struct broker *broker, struct book *book) {
    const struct sample_device *seen = &book->device.seen;
    struct policy_identity identity = visibility_identity(book);
    uint64_t kept = policy_reserve(broker->policy, &identity, seen->total_bytes);
    uint64_t reserved = units_add(seen->reserved_bytes, kept);

    book->usable_bytes =
        reserved < seen->total_bytes ? books_round_down(seen->total_bytes - reserved) : 0;
    book->reserved_bytes = seen->total_bytes - book->usable_bytes;
    book->require = policy_require(broker->policy, &identity);
}

static void emit_to_holders(struct broker *broker, const struct book *book, enum notice_kind kind) {
    struct lease *lease;
    char text[DEVICE_REASON_SIZE + 128];

    snprintf(text, sizeof(text), "%s %s: %s", book->name,
             kind == NOTICE_LOST ? "is lost" : "is being drained",
             book->device.reason[0] ? book->device.reason : "no reason was given");
    for (size_t pos = 0; (lease = map_next(&broker->leases, &pos));)
        if (lease_share(lease, &book->device.seen.id, NULL))
            emit_notice(broker, lease, kind, &book->device.seen.id, text);
}

int broker_device_set(struct broker *broker, const struct device_facts *device,
                      uint64_t context_bytes, struct moment now) {
    struct book *book = broker_get_book(broker, &device->seen.id);
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
        emit_to_holders(broker, book, NOTICE_DRAINING);
    else if (before != device->state && device->state == DEVICE_LOST)
        emit_to_holders(broker, book, NOTICE_LOST);
    return queue_review(broker);
}

void broker_context_set(struct broker *broker, const struct gpuid *device, uint64_t bytes) {
    struct book *book = broker_find_book(broker, device);

    if (book)
        book->learned_bytes = books_round_up(bytes);
}

int broker_policy_set(struct broker *broker, const struct policy *policy, struct moment now) {
    struct user *user;
    struct waiter *waiter;

    broker->now_usec = now.usec;
    broker->policy = policy;
    broker->next_reserve_usec = now.usec;
    for (size_t i = 0; i < broker->n_books; i++)
        book_measure(broker, broker->books[i]);
    broker->has_spending = false;
    for (size_t pos = 0; (user = map_next(&broker->users, &pos));)
        user_judge(broker, user);
    /* The new step of priority may change the order. */
    for (size_t pos = 0; (waiter = map_next(&broker->waiters, &pos));)
        if (queue_key(broker, waiter->since_usec, waiter->priority) != waiter->in_queue.key)
            queue_reorder(broker, waiter, waiter->priority);
    /* Growth, too, may be within the quota now. */
    for (size_t pos = 0; (user = map_next(&broker->users, &pos));)
        queue_unpark_user(broker, user);
    return queue_review(broker);
}

/* ---- Reading -----------------------------------------------------------------------------------
 */

struct lease *broker_lease_of_peer(const struct broker *broker, uint64_t id, uid_t uid) {
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
    const struct lease *lease = broker_lease_of_peer(broker, id, uid);

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
    return broker_find_book(broker, device);
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

uint32_t broker_n_waiters(const struct broker *broker) {
    return rank_tree_count(broker->growths) + rank_tree_count(broker->requests);
}

bool broker_waiter_at(const struct broker *broker, uint32_t i, struct broker_waiter *ret) {
    uint32_t n_growths = rank_tree_count(broker->growths);
    struct rank_tree_node *node = i < n_growths ? rank_tree_at(broker->growths, i)
                                                : rank_tree_at(broker->requests, i - n_growths);
    const struct waiter *waiter = rank_tree_entry(node, struct waiter, in_queue);

    if (!waiter)
        return false;
    ret->id = waiter->id;
    ret->place = i + 1;
    ret->process = waiter->proc->process;
    ret->uid = waiter->user->uid;
    ret->is_growth = waiter->holder != NULL;
    ret->lease = waiter->holder ? waiter->holder->lease->id : 0;
    ret->priority = waiter->priority;
    ret->since_usec = waiter->since_usec;
    ret->timeout_usec = waiter->timeout_usec;
    ret->name = waiter->name;
    ret->asked = waiter->asked;
    acquire_reason(broker, waiter, ret->reason, sizeof(ret->reason));
    return true;
}
