/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/daemon/broker/broker_fixture.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "daemon/broker/internal.h"

/* A line of the transcript. */
#define WRITE(fixture, ...)                                                                        \
    do {                                                                                           \
        if ((fixture)->transcript)                                                                 \
            fprintf((fixture)->transcript, __VA_ARGS__);                                           \
    } while (0)

/* In the sink: Check itself allocates for an assertion that holds, and tests of failing allocations
 * would meet that. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ck_abort_msg("not true: %s", #condition);                                              \
    } while (0)

static void decided(void *userdata, void *cookie, const struct verdict *verdict) {
    struct broker_fixture *fixture = userdata;

    EXPECT(fixture->n_told < FIXTURE_TOLD_MAX);
    fixture->told[fixture->n_told].tag = (uint64_t)(uintptr_t)cookie;
    fixture->told[fixture->n_told++].verdict = *verdict;
    WRITE(fixture, "tag %llu is told:", (unsigned long long)(uintptr_t)cookie);
    fixture_write_verdict(fixture, verdict);
}

static void moved(void *userdata, void *cookie, uint32_t place, const char *reason) {
    struct broker_fixture *fixture = userdata;

    fixture->n_moved++;
    fixture->place = place;
    snprintf(fixture->reason, sizeof(fixture->reason), "%s", reason);
    WRITE(fixture, "tag %llu moves to %u: %s\n", (unsigned long long)(uintptr_t)cookie, place,
          reason);
}

static void noticed(void *userdata, const struct holder *holder, const struct notice *notice) {
    struct broker_fixture *fixture = userdata;

    EXPECT(holder->is_attached);
    fixture->n_notices++;
    fixture->notice = notice->kind;
    fixture->notice_bytes = notice->bytes;
    WRITE(fixture, "notice %d to %d of lease %llu: %llu bytes: %s\n", (int)notice->kind,
          (int)holder->process.pid, (unsigned long long)holder->lease->id,
          (unsigned long long)notice->bytes, notice->text);
}

static void happened(void *userdata, const struct broker_event *event) {
    struct broker_fixture *fixture = userdata;

    EXPECT(event->text[0]);
    snprintf(fixture->event, sizeof(fixture->event), "%s", event->kind);
    fixture->n_denials += event->is_verdict && event->verdict == VERDICT_DENY;
    WRITE(fixture, "event %s, lease %llu: %s\n", event->kind, (unsigned long long)event->lease,
          event->text);
}

static void recorded(void *userdata, const struct record *record) {
    struct broker_fixture *fixture = userdata;

    fixture->n_records++;
    if (fixture->record)
        fixture->record(fixture, record);
    if (fixture->transcript) {
        static uint8_t bytes[RECORD_SIZE_MAX];
        size_t n = record_encode(record, bytes);

        WRITE(fixture, "record %d, %08x\n", (int)record->kind, crc32c(0, bytes, n));
    }
}

static void evicted(void *userdata, const struct lease *lease) {
    struct broker_fixture *fixture = userdata;

    fixture->n_evicted++;
    WRITE(fixture, "lease %llu is evicted\n", (unsigned long long)lease->id);
}

static void orphaned(void *userdata, const struct lease *lease) {
    struct broker_fixture *fixture = userdata;

    EXPECT(lease->is_orphaned);
    fixture->n_orphaned++;
    fixture->orphan = lease->id;
    WRITE(fixture, "lease %llu is orphaned\n", (unsigned long long)lease->id);
}

/* The bill of a lease for a device, or an unused one. */
static struct fixture_bill *find_bill(struct broker_fixture *fixture, uint64_t lease,
                                      const struct gpuid *device) {
    for (size_t i = 0; i < FIXTURE_BILLS_MAX; i++)
        if (fixture->bills[i].lease == lease &&
            (!device || gpuid_equal(&fixture->bills[i].device, device)))
            return &fixture->bills[i];
    return NULL;
}

static void charged(void *userdata, const struct lease *lease, const struct gpuid *device,
                    uint64_t held_bytes, uint64_t guaranteed_bytes) {
    struct broker_fixture *fixture = userdata;
    struct fixture_bill *bill = find_bill(fixture, lease->id, device);
    char name[GPUID_TEXT_SIZE];

    if (!bill)
        bill = find_bill(fixture, 0, NULL);
    EXPECT(bill);
    *bill = (struct fixture_bill){ held_bytes || guaranteed_bytes ? lease->id : 0, *device,
                                   held_bytes, guaranteed_bytes };
    WRITE(fixture, "lease %llu is charged on %s: holds %llu, is guaranteed %llu\n",
          (unsigned long long)lease->id, gpuid_format(device, name), (unsigned long long)held_bytes,
          (unsigned long long)guaranteed_bytes);
}

/* What is set, by daemon/broker/verdict.h. */
void fixture_write_verdict(struct broker_fixture *fixture, const struct verdict *verdict) {
    char name[GPUID_TEXT_SIZE];

    if (verdict->kind == VERDICT_GRANT)
        WRITE(fixture, " granted, lease %llu", (unsigned long long)verdict->lease);
    if (verdict->kind == VERDICT_GRANT && !verdict->reason[0])
        WRITE(fixture, ", holds %llu of %llu", (unsigned long long)verdict->held_bytes,
              (unsigned long long)verdict->limit_bytes);
    if (verdict->kind == VERDICT_WAIT)
        WRITE(fixture, " waits at %u, waiter %llu", verdict->place,
              (unsigned long long)verdict->waiter);
    if (verdict->kind == VERDICT_DENY)
        WRITE(fixture, " denied, refusal %d", (int)verdict->refusal);
    if (verdict->kind == VERDICT_DENY && verdict->has_device)
        WRITE(fixture, ", %llu left on %s", (unsigned long long)verdict->free_bytes,
              gpuid_format(&verdict->device, name));
    WRITE(fixture, ": %s\n", verdict->reason);
    for (uint32_t i = 0; verdict->kind == VERDICT_DENY && verdict->refusal == REFUSAL_DEADLOCK &&
                         i < verdict->n_holders;
         i++)
        WRITE(fixture, "  %s\n", verdict->holders[i]);
}

void fixture_write_explanation(struct broker_fixture *fixture, const struct explanation *said) {
    char name[GPUID_TEXT_SIZE];

    WRITE(fixture, "explained:");
    fixture_write_verdict(fixture, &said->verdict);
    for (uint32_t i = 0; i < said->n_devices; i++)
        WRITE(fixture, "  on %s\n", gpuid_format(&said->devices[i], name));
    for (uint32_t i = 0; i < said->n_details; i++)
        WRITE(fixture, "  %s\n", said->details[i]);
}

void fixture_write_state(struct broker_fixture *fixture) {
    struct broker_waiter waiter;
    const struct book *book;

    if (!fixture->transcript)
        return;
    for (size_t pos = 0; (book = fixture_next_book(fixture, &pos));)
        WRITE(fixture, "%s: %llu usable, %llu leased, %llu held, %llu left, %llu over, %u leases\n",
              book->name, (unsigned long long)book->usable_bytes,
              (unsigned long long)book->leased_bytes, (unsigned long long)book->held_bytes,
              (unsigned long long)books_free_bytes(book),
              (unsigned long long)books_overcommitted_bytes(book), book->n_shares);
    for (uint32_t i = 0; broker_waiter_at(fixture->broker, i, &waiter); i++)
        WRITE(fixture, "waits: %u. %d of %u, lease %llu, priority %d, until %llu: %s: %s\n",
              waiter.place, (int)waiter.process.pid, (unsigned)waiter.uid,
              (unsigned long long)waiter.lease, waiter.priority,
              (unsigned long long)waiter.timeout_usec, waiter.asked, waiter.reason);
    WRITE(fixture, "next at %llu\n", (unsigned long long)broker_deadline(fixture->broker));
}

struct gpuid fixture_gpu(unsigned i) {
    struct gpuid id = { .kind = GPUID_GPU };

    memset(id.uuid, 0x10, sizeof(id.uuid));
    id.uuid[0] = (uint8_t)i;
    return id;
}

struct gpuid fixture_mig(unsigned gpu, unsigned place) {
    struct gpuid id = { .kind = GPUID_MIG };

    memset(id.uuid, 0x20, sizeof(id.uuid));
    id.uuid[0] = (uint8_t)gpu;
    id.uuid[1] = (uint8_t)place;
    return id;
}

const char *fixture_name(unsigned i) {
    static char names[4][GPUID_TEXT_SIZE];
    static unsigned at;
    struct gpuid id = fixture_gpu(i);

    return gpuid_format(&id, names[at++ % 4]);
}

struct device_facts fixture_make(unsigned i, uint64_t gib) {
    struct device_facts device = { .state = DEVICE_READY, .is_present = true };

    device.seen.id = device.seen.parent = fixture_gpu(i);
    device.seen.index = i;
    device.seen.pci.bus = (uint8_t)i;
    device.seen.total_bytes = gib * GIB;
    snprintf(device.seen.name, sizeof(device.seen.name), "paper");
    return device;
}

struct device_facts fixture_make_mig(unsigned gpu, unsigned place, uint64_t gib) {
    struct device_facts device = fixture_make(gpu, gib);

    device.seen.id = fixture_mig(gpu, place);
    device.seen.is_mig = true;
    device.seen.place = place;
    device.seen.gpu_instance = place + 1;
    return device;
}

void fixture_device(struct broker_fixture *fixture, const struct device_facts *device) {
    ck_assert_int_eq(broker_device_set(fixture->broker, device, 0, fixture->now), 0);
    fixture_check(fixture);
}

void fixture_devices(struct broker_fixture *fixture, unsigned n, uint64_t gib) {
    for (unsigned i = 0; i < n; i++) {
        struct device_facts device = fixture_make(i, gib);

        fixture_device(fixture, &device);
    }
}

void fixture_restart(struct broker_fixture *fixture) {
    struct broker_sink sink = {
        .userdata = fixture,
        .decided = decided,
        .moved = moved,
        .notice = noticed,
        .event = happened,
        .record = recorded,
        .charged = charged,
        .evict = evicted,
        .orphaned = orphaned,
    };

    broker_free(fixture->broker);
    fixture->broker = NULL;
    memset(fixture->bills, 0, sizeof(fixture->bills));
    ck_assert_int_eq(broker_new(&fixture->broker, &fixture->policy, &sink), 0);
}

struct broker_fixture *fixture_new(unsigned n, uint64_t gib) {
    struct broker_fixture *fixture = calloc(1, sizeof(*fixture));

    ck_assert_ptr_nonnull(fixture);
    policy_init(&fixture->policy);
    fixture->now.usec = 1000 * SECS;
    fixture_restart(fixture);
    fixture_devices(fixture, n, gib);
    return fixture;
}

struct broker_fixture *fixture_free(struct broker_fixture *fixture) {
    if (!fixture)
        return NULL;
    broker_free(fixture->broker);
    policy_done(&fixture->policy);
    free(fixture);
    return NULL;
}

struct broker_peer fixture_peer(pid_t pid, uid_t uid) {
    return (struct broker_peer){
        .process = { .pid = pid, .start = 7 },
        .uid = uid,
        .gid = uid,
    };
}

struct request fixture_request(void) {
    return (struct request){ .timeout_usec = UNITS_FOREVER, .time_limit_usec = UNITS_FOREVER };
}

struct request fixture_fixed(uint32_t n_gpus, uint64_t gib) {
    struct request request = fixture_request();

    request.n_gpus = n_gpus;
    request.has_amount = true;
    request.amount = AMOUNT_GROW;
    request.amount.mode = LEASE_FIXED;
    request.amount.bytes = gib * GIB;
    return request;
}

struct request fixture_grow(uint32_t n_gpus, uint64_t min_gib, uint64_t max_gib) {
    struct request request = fixture_request();

    request.n_gpus = n_gpus;
    request.has_amount = true;
    request.amount = AMOUNT_GROW;
    if (min_gib)
        request.amount.min_bytes = min_gib * GIB;
    if (max_gib)
        request.amount.max_bytes = max_gib * GIB;
    return request;
}

struct request fixture_share(uint32_t n_gpus, uint32_t permyriad) {
    struct request request = fixture_grow(n_gpus, 0, 0);

    request.amount.mode = LEASE_FRACTION;
    request.amount.permyriad = permyriad;
    return request;
}

struct request fixture_exclusive(uint32_t n_gpus) {
    struct request request = fixture_grow(n_gpus, 0, 0);

    request.amount.mode = LEASE_EXCLUSIVE;
    return request;
}

/* What is billed is what is held: at every moment, so over any time. */
static void check_bills(struct broker_fixture *fixture) {
    const struct lease *lease;
    unsigned n_due = 0, n_billed = 0;

    for (size_t pos = 0; (lease = broker_next_lease(fixture->broker, &pos));)
        for (uint32_t i = 0; i < lease->n_shares; i++) {
            const struct share *share = &lease->shares[i];
            const struct fixture_bill *bill =
                find_bill(fixture, lease->id, &share->book->device.seen.id);

            if (share->held_bytes == 0 && share->guaranteed_bytes == 0)
                continue;
            n_due++;
            ck_assert_msg(bill && bill->held_bytes == share->held_bytes &&
                              bill->guaranteed_bytes == share->guaranteed_bytes,
                          "lease %llu holds %llu bytes and is billed for %llu",
                          (unsigned long long)lease->id, (unsigned long long)share->held_bytes,
                          (unsigned long long)(bill ? bill->held_bytes : 0));
        }
    for (size_t i = 0; i < FIXTURE_BILLS_MAX; i++)
        n_billed += fixture->bills[i].lease != 0;
    ck_assert_msg(n_due == n_billed, "%u bills, and %u shares", n_billed, n_due);
}

void fixture_check(struct broker_fixture *fixture) {
    struct allot_error err = { 0 };

    ck_assert_msg(broker_check_books(fixture->broker, &err) == 0, "%s", err.text);
    check_bills(fixture);
}

struct verdict fixture_ask(struct broker_fixture *fixture, pid_t pid, uid_t uid,
                           const struct request *request, uint64_t tag) {
    struct broker_peer peer = fixture_peer(pid, uid);
    struct verdict verdict = { 0 };

    peer.spent_byte_seconds = fixture->spent_byte_seconds;
    ck_assert_int_eq(broker_submit(fixture->broker, &peer, request, (void *)(uintptr_t)tag,
                                   fixture->now, &verdict),
                     0);
    ck_assert_str_ne(verdict.reason, "");
    fixture_write_verdict(fixture, &verdict);
    fixture_check(fixture);
    return verdict;
}

uint64_t fixture_get(struct broker_fixture *fixture, pid_t pid, uid_t uid, struct request request) {
    struct verdict verdict = fixture_ask(fixture, pid, uid, &request, 0);

    ck_assert_msg(verdict.kind == VERDICT_GRANT, "%s", verdict.reason);
    return verdict.lease;
}

struct verdict fixture_attach(struct broker_fixture *fixture, pid_t pid, uid_t uid,
                              uint64_t lease) {
    struct broker_peer peer = fixture_peer(pid, uid);
    struct broker_attach attach = { .lease = lease };
    struct verdict verdict = { 0 };

    peer.spent_byte_seconds = fixture->spent_byte_seconds;
    ck_assert_int_eq(broker_attach(fixture->broker, &peer, &attach, fixture->now, &verdict), 0);
    fixture_write_verdict(fixture, &verdict);
    fixture_check(fixture);
    return verdict;
}

struct verdict fixture_grow_by(struct broker_fixture *fixture, pid_t pid, uint64_t lease,
                               unsigned gpu, uint64_t gib, bool wait, uint64_t tag) {
    struct process_id process = { .pid = pid, .start = 7 };
    struct broker_growth growth = {
        .lease = lease,
        .device = fixture_gpu(gpu),
        .bytes = gib * GIB,
        .wait = wait,
        .timeout_usec = UNITS_FOREVER,
    };
    struct verdict verdict = { 0 };

    ck_assert_int_eq(broker_grow(fixture->broker, &process, &growth, (void *)(uintptr_t)tag,
                                 fixture->now, &verdict),
                     0);
    fixture_write_verdict(fixture, &verdict);
    fixture_check(fixture);
    return verdict;
}

struct verdict fixture_shrink_by(struct broker_fixture *fixture, pid_t pid, uint64_t lease,
                                 unsigned gpu, uint64_t gib) {
    struct process_id process = { .pid = pid, .start = 7 };
    struct gpuid device = fixture_gpu(gpu);
    struct verdict verdict = { 0 };

    broker_shrink(fixture->broker, &process, lease, &device, gib * GIB, fixture->now, &verdict);
    fixture_write_verdict(fixture, &verdict);
    fixture_check(fixture);
    return verdict;
}

void fixture_release(struct broker_fixture *fixture, uid_t uid, uint64_t lease) {
    struct broker_peer peer = fixture_peer(1, uid);
    struct verdict verdict = { 0 };

    broker_release(fixture->broker, &peer, lease, fixture->now, &verdict);
    ck_assert_int_eq(verdict.kind, VERDICT_GRANT);
    fixture_check(fixture);
    fixture_turn(fixture);
}

void fixture_gone(struct broker_fixture *fixture, pid_t pid) {
    struct process_id process = { .pid = pid, .start = 7 };

    broker_process_gone(fixture->broker, &process, fixture->now);
    fixture_check(fixture);
    fixture_turn(fixture);
}

void fixture_turn(struct broker_fixture *fixture) {
    const struct process_id survivor = { .pid = fixture->survivor, .start = 7 };
    uid_t uid;

    for (size_t pos = 0; broker_next_spender(fixture->broker, &pos, &uid);)
        broker_spent_set(fixture->broker, uid, fixture->spent_byte_seconds);
    if (fixture->orphan && fixture->survivor >= 0) {
        broker_inherit(fixture->broker, fixture->orphan, fixture->survivor ? &survivor : NULL,
                       fixture->now);
        fixture->orphan = 0;
        fixture_check(fixture);
    }
    ck_assert_int_eq(broker_turn(fixture->broker, fixture->now), 0);
    fixture_check(fixture);
}

void fixture_pass(struct broker_fixture *fixture, uint64_t usec) {
    fixture->now.usec += usec;
    fixture_turn(fixture);
}

const struct book *fixture_next_book(const struct broker_fixture *fixture, size_t *pos) {
    return *pos < fixture->broker->n_books ? fixture->broker->books[(*pos)++] : NULL;
}

void fixture_next_ids(const struct broker_fixture *fixture, struct record_meta *ret) {
    ret->next_lease = fixture->broker->next_lease;
    ret->next_waiter = fixture->broker->next_waiter;
    ret->next_order = fixture->broker->next_arrival;
}

void fixture_sample(struct broker_fixture *fixture, const struct fixture_row *rows, size_t n_rows) {
    struct sample sample = { .taken_usec = fixture->now.usec };
    uint64_t *leases = calloc(n_rows + 1, sizeof(*leases));
    const struct book *book;

    sample.devices = calloc(BOOKS_MAX, sizeof(*sample.devices));
    sample.processes = calloc(n_rows + 1, sizeof(*sample.processes));
    for (size_t pos = 0; (book = fixture_next_book(fixture, &pos));) {
        sample.devices[sample.n_devices] = book->device.seen;
        sample.devices[sample.n_devices++].health = SAMPLE_OK;
    }
    for (size_t i = 0; i < n_rows; i++) {
        struct sample_process *row = &sample.processes[sample.n_processes];

        if (rows[i].used_gib == 0)
            continue;
        sample.n_processes++;
        row->pid = rows[i].pid;
        row->start = 7;
        row->device = fixture_gpu(rows[i].gpu);
        row->has_used = row->has_busy = true;
        row->used_bytes = rows[i].used_gib * GIB;
        row->busy = rows[i].is_busy;
        row->has_uid = rows[i].uid != 0;
        row->uid = rows[i].uid;
        snprintf(row->cgroup, sizeof(row->cgroup), "%s", rows[i].cgroup ? rows[i].cgroup : "");
        leases[sample.n_processes - 1] = rows[i].lease;
    }
    ck_assert_int_eq(broker_sample(fixture->broker, &sample, leases, NULL, fixture->now), 0);
    free(leases);
    free(sample.devices);
    free(sample.processes);
    fixture_check(fixture);
    fixture_turn(fixture);
}

uint64_t fixture_left(const struct broker_fixture *fixture, unsigned gpu) {
    struct gpuid id = fixture_gpu(gpu);

    return books_free_bytes(broker_book(fixture->broker, &id)) / GIB;
}

const struct verdict *fixture_told(const struct broker_fixture *fixture, uint64_t tag) {
    for (uint32_t i = fixture->n_told; i-- > 0;)
        if (fixture->told[i].tag == tag)
            return &fixture->told[i].verdict;
    return NULL;
}

void fixture_dump(struct broker_fixture *fixture,
                  void (*fn)(void *userdata, const struct record *record), void *userdata) {
    struct broker *broker = fixture->broker;
    const struct broker_sink sink = broker->sink;
    struct lease *lease;
    struct holder *holder;
    struct releasing *releasing;
    struct recovered_waiter *recovered;

    broker->sink.record = fn;
    broker->sink.userdata = userdata;
    for (size_t pos = 0; (lease = map_next(&broker->leases, &pos));) {
        emit_lease(broker, lease);
        holder = lease->owner ? holder_find(lease, &lease->owner->process) : NULL;
        if (lease->owner && !(holder && (holder->is_attached || holder->is_absent)) &&
            !releasing_find(broker, lease->id, &lease->owner->process))
            emit_owner(broker, lease);
        list_foreach (holder, &lease->holders, in_lease)
            emit_holder(broker, holder);
    }
    list_foreach (releasing, &broker->releasing, in_broker)
        emit_releasing(broker, releasing);
    for (unsigned which = 0; which < 2; which++) {
        struct rank_tree_node *root = which ? broker->requests : broker->growths;

        for (struct rank_tree_node *node = rank_tree_first(root); node; node = rank_tree_next(node))
            emit_waiter(broker, rank_tree_entry(node, struct waiter, in_queue));
    }
    list_foreach (recovered, &broker->recovered, in_broker) {
        struct record record = { .kind = RECORD_WAITER, .waiter = recovered->record };

        fn(userdata, &record);
    }
    broker->sink = sink;
}
