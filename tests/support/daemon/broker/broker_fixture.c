/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/daemon/broker/broker_fixture.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void decided(void *userdata, void *cookie, const struct verdict *verdict) {
    struct desk *desk = userdata;

    ck_assert_uint_lt(desk->n_told, DESK_TOLD_MAX);
    desk->told[desk->n_told].tag = (uint64_t)(uintptr_t)cookie;
    desk->told[desk->n_told++].verdict = *verdict;
}

static void moved(void *userdata, void *cookie, uint32_t place, const char *reason) {
    struct desk *desk = userdata;

    desk->n_moved++;
    desk->place = place;
    snprintf(desk->reason, sizeof(desk->reason), "%s", reason);
}

static void noticed(void *userdata, const struct holder *holder, const struct notice *notice) {
    struct desk *desk = userdata;

    ck_assert(holder->is_attached);
    desk->n_notices++;
    desk->notice = notice->kind;
    desk->notice_bytes = notice->bytes;
}

static void happened(void *userdata, const struct broker_event *event) {
    struct desk *desk = userdata;

    ck_assert_str_ne(event->text, "");
    snprintf(desk->event, sizeof(desk->event), "%s", event->kind);
    desk->n_denials += event->is_verdict && event->verdict == VERDICT_DENY;
}

static void recorded(void *userdata, const struct record *record) {
    struct desk *desk = userdata;

    desk->n_records++;
    if (desk->record)
        desk->record(desk, record);
}

static void evicted(void *userdata, const struct lease *lease) {
    struct desk *desk = userdata;

    desk->n_evicted++;
}

static bool seek_survivor(void *userdata, const struct lease *lease) {
    struct desk *desk = userdata;
    const struct process_id survivor = { .pid = desk->survivor, .start = 7 };

    desk->n_sought++;
    if (desk->survivor > 0)
        broker_inherit(desk->broker, lease->id, &survivor, desk->now);
    return desk->survivor != 0;
}

static uint64_t lease_of_process(void *userdata, const struct process_id *process) {
    struct desk *desk = userdata;

    return process->pid == desk->job_process ? desk->job_process_lease : 0;
}

static uint64_t spent(void *userdata, uid_t uid) {
    struct desk *desk = userdata;

    return desk->spent_byte_seconds;
}

struct gpuid desk_gpu(unsigned i) {
    struct gpuid id = { .kind = GPUID_GPU };

    memset(id.uuid, 0x10, sizeof(id.uuid));
    id.uuid[0] = (uint8_t)i;
    return id;
}

struct gpuid desk_mig(unsigned gpu, unsigned place) {
    struct gpuid id = { .kind = GPUID_MIG };

    memset(id.uuid, 0x20, sizeof(id.uuid));
    id.uuid[0] = (uint8_t)gpu;
    id.uuid[1] = (uint8_t)place;
    return id;
}

const char *desk_name(unsigned i) {
    static char names[4][GPUID_TEXT_SIZE];
    static unsigned at;
    struct gpuid id = desk_gpu(i);

    return gpuid_format(&id, names[at++ % 4]);
}

struct device desk_make(unsigned i, uint64_t gib) {
    struct device device = { .state = DEVICE_READY, .is_present = true };

    device.seen.id = device.seen.parent = desk_gpu(i);
    device.seen.index = i;
    device.seen.pci.bus = (uint8_t)i;
    device.seen.total_bytes = gib * GIB;
    snprintf(device.seen.name, sizeof(device.seen.name), "paper");
    return device;
}

struct device desk_make_mig(unsigned gpu, unsigned place, uint64_t gib) {
    struct device device = desk_make(gpu, gib);

    device.seen.id = desk_mig(gpu, place);
    device.seen.is_mig = true;
    device.seen.place = place;
    device.seen.gpu_instance = place + 1;
    return device;
}

void desk_device(struct desk *desk, const struct device *device) {
    ck_assert_int_eq(broker_device_set(desk->broker, device, 0, desk->now), 0);
    desk_check(desk);
}

void desk_devices(struct desk *desk, unsigned n, uint64_t gib) {
    for (unsigned i = 0; i < n; i++) {
        struct device device = desk_make(i, gib);

        desk_device(desk, &device);
    }
}

void desk_restart(struct desk *desk) {
    struct broker_sink sink = {
        .userdata = desk,
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

    broker_free(desk->broker);
    desk->broker = NULL;
    ck_assert_int_eq(broker_new(&desk->broker, &desk->policy, &sink), 0);
}

struct desk *desk_new(unsigned n, uint64_t gib) {
    struct desk *desk = calloc(1, sizeof(*desk));

    ck_assert_ptr_nonnull(desk);
    policy_init(&desk->policy);
    desk->now.usec = 1000 * SECS;
    desk_restart(desk);
    desk_devices(desk, n, gib);
    return desk;
}

struct desk *desk_free(struct desk *desk) {
    if (!desk)
        return NULL;
    broker_free(desk->broker);
    policy_done(&desk->policy);
    free(desk);
    return NULL;
}

struct broker_peer desk_peer(pid_t pid, uid_t uid) {
    return (struct broker_peer){
        .process = { .pid = pid, .start = 7 },
        .uid = uid,
        .gid = uid,
    };
}

struct request desk_request(void) {
    return (struct request){ .timeout_usec = UNITS_FOREVER, .time_limit_usec = UNITS_FOREVER };
}

struct request desk_fixed(uint32_t n_gpus, uint64_t gib) {
    struct request request = desk_request();

    request.n_gpus = n_gpus;
    request.has_amount = true;
    request.amount = AMOUNT_GROW;
    request.amount.mode = LEASE_FIXED;
    request.amount.bytes = gib * GIB;
    return request;
}

struct request desk_grow(uint32_t n_gpus, uint64_t min_gib, uint64_t max_gib) {
    struct request request = desk_request();

    request.n_gpus = n_gpus;
    request.has_amount = true;
    request.amount = AMOUNT_GROW;
    if (min_gib)
        request.amount.min_bytes = min_gib * GIB;
    if (max_gib)
        request.amount.max_bytes = max_gib * GIB;
    return request;
}

struct request desk_share(uint32_t n_gpus, uint32_t permyriad) {
    struct request request = desk_grow(n_gpus, 0, 0);

    request.amount.mode = LEASE_FRACTION;
    request.amount.permyriad = permyriad;
    return request;
}

struct request desk_exclusive(uint32_t n_gpus) {
    struct request request = desk_grow(n_gpus, 0, 0);

    request.amount.mode = LEASE_EXCLUSIVE;
    return request;
}

void desk_check(struct desk *desk) {
    struct allot_error err = { 0 };

    ck_assert_msg(broker_check_books(desk->broker, &err) == 0, "%s", err.text);
}

struct verdict desk_ask(struct desk *desk, pid_t pid, uid_t uid, const struct request *request,
                        uint64_t tag) {
    struct broker_peer peer = desk_peer(pid, uid);
    struct verdict verdict = { 0 };

    ck_assert_int_eq(
        broker_submit(desk->broker, &peer, request, (void *)(uintptr_t)tag, desk->now, &verdict),
        0);
    ck_assert_str_ne(verdict.reason, "");
    desk_check(desk);
    return verdict;
}

uint64_t desk_get(struct desk *desk, pid_t pid, uid_t uid, struct request request) {
    struct verdict verdict = desk_ask(desk, pid, uid, &request, 0);

    ck_assert_msg(verdict.kind == VERDICT_GRANT, "%s", verdict.reason);
    return verdict.lease;
}

struct verdict desk_attach(struct desk *desk, pid_t pid, uid_t uid, uint64_t lease) {
    struct broker_peer peer = desk_peer(pid, uid);
    struct broker_attach attach = { .lease = lease };
    struct verdict verdict = { 0 };

    ck_assert_int_eq(broker_attach(desk->broker, &peer, &attach, desk->now, &verdict), 0);
    desk_check(desk);
    return verdict;
}

struct verdict desk_grow_by(struct desk *desk, pid_t pid, uint64_t lease, unsigned gpu,
                            uint64_t gib, bool wait, uint64_t tag) {
    struct process_id process = { .pid = pid, .start = 7 };
    struct broker_growth growth = {
        .lease = lease,
        .device = desk_gpu(gpu),
        .bytes = gib * GIB,
        .wait = wait,
        .timeout_usec = UNITS_FOREVER,
    };
    struct verdict verdict = { 0 };

    ck_assert_int_eq(
        broker_grow(desk->broker, &process, &growth, (void *)(uintptr_t)tag, desk->now, &verdict),
        0);
    desk_check(desk);
    return verdict;
}

struct verdict desk_shrink_by(struct desk *desk, pid_t pid, uint64_t lease, unsigned gpu,
                              uint64_t gib) {
    struct process_id process = { .pid = pid, .start = 7 };
    struct gpuid device = desk_gpu(gpu);
    struct verdict verdict = { 0 };

    broker_shrink(desk->broker, &process, lease, &device, gib * GIB, desk->now, &verdict);
    desk_check(desk);
    return verdict;
}

void desk_release(struct desk *desk, uid_t uid, uint64_t lease) {
    struct broker_peer peer = desk_peer(1, uid);
    struct verdict verdict = { 0 };

    broker_release(desk->broker, &peer, lease, desk->now, &verdict);
    ck_assert_int_eq(verdict.kind, VERDICT_GRANT);
    desk_check(desk);
    desk_turn(desk);
}

void desk_gone(struct desk *desk, pid_t pid) {
    struct process_id process = { .pid = pid, .start = 7 };

    broker_process_gone(desk->broker, &process, desk->now);
    desk_check(desk);
    desk_turn(desk);
}

void desk_turn(struct desk *desk) {
    ck_assert_int_eq(broker_turn(desk->broker, desk->now), 0);
    desk_check(desk);
}

void desk_pass(struct desk *desk, uint64_t usec) {
    desk->now.usec += usec;
    desk_turn(desk);
}

void desk_sample(struct desk *desk, const struct desk_row *rows, size_t n_rows) {
    struct sample sample = { .taken_usec = desk->now.usec };
    const struct book *book;

    sample.devices = calloc(BOOKS_MAX, sizeof(*sample.devices));
    sample.processes = calloc(n_rows + 1, sizeof(*sample.processes));
    for (size_t pos = 0; (book = broker_next_book(desk->broker, &pos));) {
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
        row->device = desk_gpu(rows[i].gpu);
        row->has_used = row->has_busy = true;
        row->used_bytes = rows[i].used_gib * GIB;
        row->busy = rows[i].is_busy;
        row->has_uid = rows[i].uid != 0;
        row->uid = rows[i].uid;
        snprintf(row->cgroup, sizeof(row->cgroup), "%s", rows[i].cgroup ? rows[i].cgroup : "");
    }
    ck_assert_int_eq(broker_sample(desk->broker, &sample, desk->now), 0);
    free(sample.devices);
    free(sample.processes);
    desk_check(desk);
    desk_turn(desk);
}

uint64_t desk_left(const struct desk *desk, unsigned gpu) {
    struct gpuid id = desk_gpu(gpu);

    return books_free_bytes(broker_book(desk->broker, &id)) / GIB;
}

const struct verdict *desk_told(const struct desk *desk, uint64_t tag) {
    for (uint32_t i = desk->n_told; i-- > 0;)
        if (desk->told[i].tag == tag)
            return &desk->told[i].verdict;
    return NULL;
}
