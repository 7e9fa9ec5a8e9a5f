/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/daemon/broker/broker_fixture.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void decided(void *userdata, void *cookie, const struct verdict *verdict) {
    struct broker_fixture *fixture = userdata;

    ck_assert_uint_lt(fixture->n_told, FIXTURE_TOLD_MAX);
    fixture->told[fixture->n_told].tag = (uint64_t)(uintptr_t)cookie;
    fixture->told[fixture->n_told++].verdict = *verdict;
}

static void moved(void *userdata, void *cookie, uint32_t place, const char *reason) {
    struct broker_fixture *fixture = userdata;

    fixture->n_moved++;
    fixture->place = place;
    snprintf(fixture->reason, sizeof(fixture->reason), "%s", reason);
}

static void noticed(void *userdata, const struct holder *holder, const struct notice *notice) {
    struct broker_fixture *fixture = userdata;

    ck_assert(holder->is_attached);
    fixture->n_notices++;
    fixture->notice = notice->kind;
    fixture->notice_bytes = notice->bytes;
}

static void happened(void *userdata, const struct broker_event *event) {
    struct broker_fixture *fixture = userdata;

    ck_assert_str_ne(event->text, "");
    snprintf(fixture->event, sizeof(fixture->event), "%s", event->kind);
    fixture->n_denials += event->is_verdict && event->verdict == VERDICT_DENY;
}

static void recorded(void *userdata, const struct record *record) {
    struct broker_fixture *fixture = userdata;

    fixture->n_records++;
    if (fixture->record)
        fixture->record(fixture, record);
}

static void evicted(void *userdata, const struct lease *lease) {
    struct broker_fixture *fixture = userdata;

    fixture->n_evicted++;
}

static bool seek_survivor(void *userdata, const struct lease *lease) {
    struct broker_fixture *fixture = userdata;
    const struct process_id survivor = { .pid = fixture->survivor, .start = 7 };

    fixture->n_sought++;
    if (fixture->survivor > 0)
        broker_inherit(fixture->broker, lease->id, &survivor, fixture->now);
    return fixture->survivor != 0;
}

static uint64_t lease_of_process(void *userdata, const struct process_id *process) {
    struct broker_fixture *fixture = userdata;

    return process->pid == fixture->job_process ? fixture->job_process_lease : 0;
}

static uint64_t spent(void *userdata, uid_t uid) {
    struct broker_fixture *fixture = userdata;

    return fixture->spent_byte_seconds;
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

struct device fixture_make(unsigned i, uint64_t gib) {
    struct device device = { .state = DEVICE_READY, .is_present = true };

    device.seen.id = device.seen.parent = fixture_gpu(i);
    device.seen.index = i;
    device.seen.pci.bus = (uint8_t)i;
    device.seen.total_bytes = gib * GIB;
    snprintf(device.seen.name, sizeof(device.seen.name), "paper");
    return device;
}

struct device fixture_make_mig(unsigned gpu, unsigned place, uint64_t gib) {
    struct device device = fixture_make(gpu, gib);

    device.seen.id = fixture_mig(gpu, place);
    device.seen.is_mig = true;
    device.seen.place = place;
    device.seen.gpu_instance = place + 1;
    return device;
}

void fixture_device(struct broker_fixture *fixture, const struct device *device) {
    ck_assert_int_eq(broker_device_set(fixture->broker, device, 0, fixture->now), 0);
    fixture_check(fixture);
}

void fixture_devices(struct broker_fixture *fixture, unsigned n, uint64_t gib) {
    for (unsigned i = 0; i < n; i++) {
        struct device device = fixture_make(i, gib);

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
        .evict = evicted,
        .seek_survivor = seek_survivor,
        .lease_of_process = lease_of_process,
        .spent = spent,
    };

    broker_free(fixture->broker);
    fixture->broker = NULL;
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

void fixture_check(struct broker_fixture *fixture) {
    struct allot_error err = { 0 };

    ck_assert_msg(broker_check_books(fixture->broker, &err) == 0, "%s", err.text);
}

struct verdict fixture_ask(struct broker_fixture *fixture, pid_t pid, uid_t uid,
                           const struct request *request, uint64_t tag) {
    struct broker_peer peer = fixture_peer(pid, uid);
    struct verdict verdict = { 0 };

    ck_assert_int_eq(broker_submit(fixture->broker, &peer, request, (void *)(uintptr_t)tag,
                                   fixture->now, &verdict),
                     0);
    ck_assert_str_ne(verdict.reason, "");
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

    ck_assert_int_eq(broker_attach(fixture->broker, &peer, &attach, fixture->now, &verdict), 0);
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
    fixture_check(fixture);
    return verdict;
}

struct verdict fixture_shrink_by(struct broker_fixture *fixture, pid_t pid, uint64_t lease,
                                 unsigned gpu, uint64_t gib) {
    struct process_id process = { .pid = pid, .start = 7 };
    struct gpuid device = fixture_gpu(gpu);
    struct verdict verdict = { 0 };

    broker_shrink(fixture->broker, &process, lease, &device, gib * GIB, fixture->now, &verdict);
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
    ck_assert_int_eq(broker_turn(fixture->broker, fixture->now), 0);
    fixture_check(fixture);
}

void fixture_pass(struct broker_fixture *fixture, uint64_t usec) {
    fixture->now.usec += usec;
    fixture_turn(fixture);
}

void fixture_sample(struct broker_fixture *fixture, const struct fixture_row *rows, size_t n_rows) {
    struct sample sample = { .taken_usec = fixture->now.usec };
    const struct book *book;

    sample.devices = calloc(BOOKS_MAX, sizeof(*sample.devices));
    sample.processes = calloc(n_rows + 1, sizeof(*sample.processes));
    for (size_t pos = 0; (book = broker_next_book(fixture->broker, &pos));) {
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
    }
    ck_assert_int_eq(broker_sample(fixture->broker, &sample, fixture->now), 0);
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
