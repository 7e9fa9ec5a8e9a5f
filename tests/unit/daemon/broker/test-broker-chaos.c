/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that can happen to a daemon, in any order: requests and nonsense, processes that end,
 * readings that contradict, devices that go, policies that change, restarts. After each step the
 * books are walked (daemon/broker/invariants.c), no grant may have promised what is not there, and
 * what was recorded must be what is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "tests/support/daemon/broker/broker_fixture.h"
#include "tests/support/daemon/broker/transcript.h"
#include "tests/support/suite.h"

#define N_DEVICES   4
#define N_PIDS      24
#define N_LIVE      512
#define DEVICE_GIB  16
#define FIRST_PID   100
#define N_POLICIES  3
#define MIG_GPU     3 /* it has instances as long as it is divided */
#define N_INSTANCES 2

struct live {
    struct record record;
    bool is_there, is_dumped;
};

struct chaos {
    struct broker_fixture *fixture;
    uint64_t random;
    struct live live[N_LIVE];    /* what a log would give back */
    const struct policy *policy; /* in force */
    struct policy policies[N_POLICIES];
    uint64_t over_bytes[BOOKS_MAX];
    uint64_t n_tags, waiters[64];
    unsigned n_grants, n_waits, n_restarts;
    uint32_t epochs[N_PIDS]; /* how often the pid was used: its start time */
};

static unsigned pick(struct chaos *chaos, unsigned n) {
    return (unsigned)(random_next(&chaos->random) % n);
}

/* ---- Records -----------------------------------------------------------------------------------
 */

static bool is_same_object(const struct record *a, const struct record *b) {
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case RECORD_LEASE:
        return a->lease.id == b->lease.id;
    case RECORD_HOLDER:
        return a->holder.lease == b->holder.lease && a->holder.pid == b->holder.pid &&
               a->holder.start == b->holder.start;
    case RECORD_WAITER:
        return a->waiter.id == b->waiter.id;
    default:
        return false;
    }
}

static struct live *find_live(struct chaos *chaos, const struct record *like) {
    for (size_t i = 0; i < N_LIVE; i++)
        if (chaos->live[i].is_there && is_same_object(&chaos->live[i].record, like))
            return &chaos->live[i];
    return NULL;
}

/* As daemon/state does it. */
static void keep(struct broker_fixture *fixture, const struct record *record) {
    struct chaos *chaos = fixture->userdata;
    struct record like = { 0 };
    struct live *live;

    switch (record->kind) {
    case RECORD_LEASE_GONE:
        like.kind = RECORD_LEASE;
        like.lease.id = record->lease_gone;
        break;
    case RECORD_HOLDER_GONE:
        like.kind = RECORD_HOLDER;
        like.holder.lease = record->holder_gone.lease;
        like.holder.pid = record->holder_gone.pid;
        like.holder.start = record->holder_gone.start;
        break;
    case RECORD_WAITER_GONE:
        like.kind = RECORD_WAITER;
        like.waiter.id = record->waiter_gone;
        break;
    default:
        live = find_live(chaos, record);
        for (size_t i = 0; !live && i < N_LIVE; i++)
            if (!chaos->live[i].is_there)
                live = &chaos->live[i];
        ck_assert_ptr_nonnull(live);
        live->record = *record;
        live->is_there = true;
        return;
    }
    live = find_live(chaos, &like);
    if (live)
        live->is_there = false;
}

/* Readings are not recorded: how idle, and how much is still being released. */
static void normalise(struct record *record) {
    if (record->kind == RECORD_LEASE)
        record->lease.idle_usec = 0;
    if (record->kind == RECORD_HOLDER && record->holder.releasing_usec)
        for (uint32_t i = 0; i < record->holder.n_held; i++)
            record->holder.held[i].held_bytes = 0;
}

static void compare_record(void *userdata, const struct record *record) {
    static uint8_t ours[RECORD_SIZE_MAX], theirs[RECORD_SIZE_MAX];
    struct live *live = find_live(userdata, record);
    struct record a = *record, b;
    size_t n;

    ck_assert_msg(live != NULL, "a record of kind %d is missing", (int)record->kind);
    live->is_dumped = true;
    b = live->record;
    normalise(&a);
    normalise(&b);
    n = record_encode(&a, ours);
    ck_assert_uint_eq(n, record_encode(&b, theirs));
    ck_assert_msg(memcmp(ours, theirs, n) == 0, "a record of kind %d is old", (int)record->kind);
}

static void compare_records(struct chaos *chaos) {
    for (size_t i = 0; i < N_LIVE; i++)
        chaos->live[i].is_dumped = false;
    fixture_dump(chaos->fixture, compare_record, chaos);
    for (size_t i = 0; i < N_LIVE; i++) {
        const struct record *record = &chaos->live[i].record;

        ck_assert_msg(!chaos->live[i].is_there || chaos->live[i].is_dumped,
                      "a record of kind %d should be gone (lease %llu, process %d.%llu, %s)",
                      (int)record->kind, (unsigned long long)record->holder.lease,
                      (int)record->holder.pid, (unsigned long long)record->holder.start,
                      record->holder.releasing_usec ? "releasing" : "alive");
    }
}

/* ---- Steps -------------------------------------------------------------------------------------
 */

static struct process_id process_of(struct chaos *chaos, unsigned i) {
    return (struct process_id){ .pid = (pid_t)(FIRST_PID + i), .start = 7 + chaos->epochs[i] };
}

/* Each process belongs to one of four users. */
static struct broker_peer peer_of(struct chaos *chaos, unsigned i) {
    struct broker_peer peer = fixture_peer(0, 1000 + i % 4);

    peer.process = process_of(chaos, i);
    return peer;
}

static const struct lease *pick_lease(struct chaos *chaos) {
    const struct lease *lease, *chosen = NULL;
    unsigned n = 0;

    for (size_t pos = 0; (lease = broker_next_lease(chaos->fixture->broker, &pos));)
        if (pick(chaos, ++n) == 0)
            chosen = lease;
    return chosen;
}

static const struct holder *pick_holder(struct chaos *chaos) {
    const struct lease *lease = pick_lease(chaos);
    const struct holder *holder, *chosen = NULL;
    unsigned n = 0;

    if (!lease)
        return NULL;
    list_foreach (holder, &lease->holders, in_lease) {
        if (pick(chaos, ++n) == 0)
            chosen = holder;
    }
    return chosen;
}

static void count(struct chaos *chaos, const struct verdict *verdict) {
    chaos->n_grants += verdict->kind == VERDICT_GRANT;
    chaos->n_waits += verdict->kind == VERDICT_WAIT;
    if (verdict->kind == VERDICT_WAIT)
        chaos->waiters[pick(chaos, ELEMENTSOF(chaos->waiters))] = verdict->waiter;
    if (verdict->kind == VERDICT_DENY)
        ck_assert_str_ne(verdict->reason, "");
    fixture_write_verdict(chaos->fixture, verdict);
}

static void make_request(struct chaos *chaos, struct request *request, const char **names) {
    static const char *const known[] = {
        "0", "1", "2", "3", "3:0", "3:1", "9", "GPU-0", "00:01.0"
    };
    static const char *const visible[] = { "0,1", "", "2", "1,0,9,2", "MIG-", "0,0" };

    *request = fixture_request();
    request->has_amount = pick(chaos, 8) > 0;
    request->amount = AMOUNT_GROW;
    request->amount.mode = (enum lease_mode)(1 + pick(chaos, 4));
    request->amount.permyriad = pick(chaos, 3) ? pick(chaos, 12) * 1000 : POLICY_NO_SHARE;
    if (pick(chaos, 2)) {
        request->amount.bytes = pick(chaos, DEVICE_GIB + 1) * GIB;
        request->amount.bytes += pick(chaos, 3);
    }
    if (pick(chaos, 2))
        request->amount.min_bytes = pick(chaos, 5) * GIB;
    if (pick(chaos, 2))
        request->amount.max_bytes = pick(chaos, DEVICE_GIB) * GIB;
    request->n_gpus = pick(chaos, 4);
    if (pick(chaos, 3) == 0) {
        request->n_gpus = 0;
        request->n_devices = 1 + pick(chaos, 3);
        for (size_t i = 0; i < request->n_devices; i++)
            names[i] = known[pick(chaos, ELEMENTSOF(known))];
        request->devices = names;
    }
    if (pick(chaos, 5) == 0)
        request->visible_devices = visible[pick(chaos, ELEMENTSOF(visible))];
    request->has_choose = true;
    request->choose = (enum choice)(1 + pick(chaos, 3));
    request->has_priority = pick(chaos, 2);
    request->priority = (int32_t)pick(chaos, 12) - 6;
    request->no_wait = pick(chaos, 4) == 0;
    if (pick(chaos, 3) == 0)
        request->timeout_usec = pick(chaos, 100) * SECS;
    if (pick(chaos, 5) == 0)
        request->time_limit_usec = pick(chaos, 100) * SECS;
    request->name = "chaos";
}

static void ask(struct chaos *chaos, bool explains) {
    struct broker_peer peer = peer_of(chaos, pick(chaos, N_PIDS));
    static struct explanation said;
    struct verdict verdict = { 0 };
    struct request request;
    const char *names[4];

    make_request(chaos, &request, names);
    if (explains) {
        ck_assert_int_eq(
            broker_explain(chaos->fixture->broker, &peer, &request, chaos->fixture->now, &said), 0);
        ck_assert_str_ne(said.verdict.reason, "");
        fixture_write_explanation(chaos->fixture, &said);
        return;
    }
    ck_assert_int_eq(broker_submit(chaos->fixture->broker, &peer, &request,
                                   (void *)(uintptr_t)++chaos->n_tags, chaos->fixture->now,
                                   &verdict),
                     0);
    count(chaos, &verdict);
}

static void attach(struct chaos *chaos) {
    const struct lease *lease = pick_lease(chaos);
    unsigned i = pick(chaos, N_PIDS);
    struct broker_peer peer;
    struct broker_attach attach = { .credits = pick(chaos, 2), .tier = 3 };
    struct verdict verdict = { 0 };

    if (!lease)
        return;
    if (pick(chaos, 8))
        i = i / 4 * 4 + (lease->uid - 1000) % 4; /* one of the same user */
    peer = peer_of(chaos, i);
    attach.lease = lease->id;
    ck_assert_int_eq(
        broker_attach(chaos->fixture->broker, &peer, &attach, chaos->fixture->now, &verdict), 0);
    count(chaos, &verdict);
}

static void grow(struct chaos *chaos) {
    const struct holder *holder = pick_holder(chaos);
    struct broker_growth growth;
    struct verdict verdict = { 0 };
    struct process_id process;
    const struct share *share;

    if (!holder)
        return;
    process = holder->process;
    share = &holder->lease->shares[pick(chaos, holder->lease->n_shares)];
    growth = (struct broker_growth){
        .lease = holder->lease->id,
        .device = share->book->device.seen.id,
        .bytes = pick(chaos, 4) ? pick(chaos, 6) * GIB : pick(chaos, 1 << 30),
    };
    growth.wait = pick(chaos, 2);
    growth.timeout_usec = pick(chaos, 2) ? pick(chaos, 100) * SECS : UNITS_FOREVER;
    ck_assert_int_eq(broker_grow(chaos->fixture->broker, &process, &growth,
                                 (void *)(uintptr_t)++chaos->n_tags, chaos->fixture->now, &verdict),
                     0);
    count(chaos, &verdict);
}

static void shrink(struct chaos *chaos) {
    const struct holder *holder = pick_holder(chaos);
    struct process_id process;
    struct verdict verdict = { 0 };
    struct gpuid device;

    if (!holder)
        return;
    process = holder->process;
    device = holder->lease->shares[pick(chaos, holder->lease->n_shares)].book->device.seen.id;
    broker_shrink(chaos->fixture->broker, &process, holder->lease->id, &device,
                  pick(chaos, 5) * GIB, chaos->fixture->now, &verdict);
    count(chaos, &verdict);
}

static void end(struct chaos *chaos) {
    const struct lease *lease = pick_lease(chaos);
    const struct holder *holder = pick_holder(chaos);
    struct broker_peer peer = peer_of(chaos, pick(chaos, N_PIDS));
    struct process_id process;
    struct verdict verdict = { 0 };
    unsigned i;

    switch (pick(chaos, 6)) {
    case 0:
        if (lease) {
            peer.is_admin = pick(chaos, 2);
            broker_release(chaos->fixture->broker, &peer, lease->id, chaos->fixture->now, &verdict);
            fixture_write_verdict(chaos->fixture, &verdict);
        }
        break;
    case 1:
        if (lease)
            broker_end(chaos->fixture->broker, lease->id, "chaos", chaos->fixture->now);
        break;
    case 2:
        if (lease)
            broker_vacated(chaos->fixture->broker, lease->id, chaos->fixture->now);
        break;
    case 3:
        if (holder) {
            process = holder->process;
            broker_detach(chaos->fixture->broker, &process, holder->lease->id, chaos->fixture->now);
        }
        break;
    default:
        i = pick(chaos, N_PIDS);
        process = process_of(chaos, i);
        broker_process_gone(chaos->fixture->broker, &process, chaos->fixture->now);
        chaos->epochs[i]++;
        break;
    }
}

static void confine(struct chaos *chaos) {
    const struct lease *lease = pick_lease(chaos);
    char cgroup[96], scope[64];

    if (!lease)
        return;
    snprintf(scope, sizeof(scope), "allot-%llu.scope", (unsigned long long)lease->id);
    snprintf(cgroup, sizeof(cgroup), "/user.slice/%s", scope);
    ck_assert_int_eq(broker_confined(chaos->fixture->broker, lease->id, scope,
                                     pick(chaos, 3) ? cgroup : NULL, 6, chaos->fixture->now),
                     0);
}

/* Processes use what they like, in scopes or not; some readings are missing. */
static void sample(struct chaos *chaos) {
    static struct sample_device devices[BOOKS_MAX];
    static struct sample_process rows[64];
    struct sample sample = {
        .taken_usec = chaos->fixture->now.usec - pick(chaos, 2) * 1000,
        .devices = devices,
        .processes = rows,
    };
    const struct book *book;
    const struct lease *lease;

    for (size_t pos = 0; (book = fixture_next_book(chaos->fixture, &pos));) {
        struct sample_device *device = &devices[sample.n_devices++];

        *device = book->device.seen;
        device->health = pick(chaos, 10) ? SAMPLE_OK : SAMPLE_FAILED;
        device->readings.has = pick(chaos, 3) ? READINGS_BIT(used_bytes) : 0;
        device->readings.used_bytes = pick(chaos, DEVICE_GIB) * GIB;
    }
    while (sample.n_processes < pick(chaos, 20)) {
        struct sample_process *row = &rows[sample.n_processes++];
        unsigned i = pick(chaos, N_PIDS);
        struct process_id process = process_of(chaos, i);

        memset(row, 0, sizeof(*row));
        row->pid = process.pid;
        row->start = pick(chaos, 6) ? process.start : 0;
        row->device = fixture_gpu(pick(chaos, N_DEVICES));
        row->has_used = pick(chaos, 8) > 0;
        row->used_bytes = pick(chaos, 7) * GIB;
        row->used_bytes += pick(chaos, 5000);
        row->has_busy = pick(chaos, 4) > 0;
        row->busy = pick(chaos, 2);
        lease = pick(chaos, 2) ? pick_lease(chaos) : NULL;
        if (lease)
            snprintf(row->cgroup, sizeof(row->cgroup), "/user.slice/allot-%llu.scope/x",
                     (unsigned long long)lease->id);
    }
    ck_assert_int_eq(
        broker_sample(chaos->fixture->broker, &sample, NULL, NULL, chaos->fixture->now), 0);
}

static void device(struct chaos *chaos) {
    unsigned i = pick(chaos, N_DEVICES + N_INSTANCES);
    struct device_facts device = i < N_DEVICES
                                     ? fixture_make(i, DEVICE_GIB)
                                     : fixture_make_mig(MIG_GPU, i - N_DEVICES, DEVICE_GIB / 2);

    if (pick(chaos, 2))
        device.state = (enum device_state)pick(chaos, 3);
    if (pick(chaos, 6) == 0) {
        device.seen.total_bytes = (4 + pick(chaos, DEVICE_GIB)) * GIB;
        device.seen.total_bytes += pick(chaos, 100000);
    }
    if (i == MIG_GPU)
        device.seen.mig_enabled = pick(chaos, 2);
    device.seen.reserved_bytes = pick(chaos, 3) * 300000000ull;
    ck_assert_int_eq(broker_device_set(chaos->fixture->broker, &device,
                                       pick(chaos, 2) * 400000000ull, chaos->fixture->now),
                     0);
}

static void restart(struct chaos *chaos) {
    struct broker_fixture *fixture = chaos->fixture;
    struct record_meta meta = { 0 };
    static const enum record_kind order[] = { RECORD_LEASE, RECORD_HOLDER, RECORD_WAITER };
    struct record record = { .kind = RECORD_META };
    static struct live before[N_LIVE];

    compare_records(chaos);
    fixture_next_ids(fixture, &meta);
    record.meta = meta;
    memcpy(before, chaos->live, sizeof(before));
    memset(chaos->live, 0, sizeof(chaos->live));
    fixture->record = NULL;
    fixture_restart(fixture);
    ck_assert_int_eq(broker_restore(fixture->broker, &record, fixture->now), 0);
    for (size_t k = 0; k < ELEMENTSOF(order); k++)
        for (size_t i = 0; i < N_LIVE; i++)
            if (before[i].is_there && before[i].record.kind == order[k])
                ck_assert_int_eq(broker_restore(fixture->broker, &before[i].record, fixture->now),
                                 0);
    memcpy(chaos->live, before, sizeof(before));
    fixture->record = keep;
    fixture_check(fixture);
    compare_records(chaos);
    fixture_devices(fixture, N_DEVICES, DEVICE_GIB);
    if (pick(chaos, 4) == 0)
        broker_books_lost(fixture->broker);
    broker_grace_begin(fixture->broker, fixture->now);
    chaos->n_restarts++;
}

/* A process comes back with what it says it has. */
static void come_back(struct chaos *chaos) {
    struct broker_peer peer = peer_of(chaos, pick(chaos, N_PIDS));
    const struct lease *lease = pick_lease(chaos);
    struct broker_held held[2];
    struct broker_attach attach = { .held = held };
    struct verdict verdict = { 0 };

    attach.lease = lease && pick(chaos, 3) ? lease->id : pick(chaos, 400);
    attach.n_held = pick(chaos, 3);
    for (size_t i = 0; i < ELEMENTSOF(held); i++) {
        held[i].device = fixture_gpu(pick(chaos, N_DEVICES));
        held[i].bytes = pick(chaos, 6) * GIB;
    }
    ck_assert_int_eq(
        broker_attach(chaos->fixture->broker, &peer, &attach, chaos->fixture->now, &verdict), 0);
    count(chaos, &verdict);
}

/* ---- The walk ----------------------------------------------------------------------------------
 */

static void make_policies(struct chaos *chaos) {
    struct policy_device *device = calloc(1, sizeof(*device));
    struct policy_rules *rules = &chaos->policies[1].defaults;

    for (unsigned i = 0; i < N_POLICIES; i++)
        policy_init(&chaos->policies[i]);
    rules->has = POLICY_HAS(quota_bytes) | POLICY_HAS(quota_devices) | POLICY_HAS(max_leases) |
                 POLICY_HAS(quota_permyriad) | POLICY_HAS(priority_max) | POLICY_HAS(max_waiting) |
                 POLICY_HAS(idle_tell_usec) | POLICY_HAS(idle_drop_usec) |
                 POLICY_HAS(idle_end_usec) | POLICY_HAS(lease_usec);
    rules->quota_bytes = 20 * GIB;
    rules->quota_devices = 2;
    rules->quota_permyriad = 7000;
    rules->max_leases = 3;
    rules->max_waiting = 5;
    rules->priority_max = 5;
    rules->idle_tell_usec = 5 * SECS;
    rules->idle_drop_usec = 10 * SECS;
    rules->idle_end_usec = 60 * SECS;
    rules->lease_usec = 500 * SECS;
    device->devices.all = true;
    device->has_reserve = true;
    device->reserve = (struct units_amount){ .is_share = true, .permyriad = 1000 };
    device->hours = calloc(1, sizeof(*device->hours));
    device->n_hours = 1;
    device->hours[0] = (struct policy_hours){ .from_minute = 3, .to_minute = 6 };
    chaos->policies[2].devices = device;
    chaos->policies[2].n_devices = 1;
}

static void note_over(struct chaos *chaos) {
    const struct book *book;

    for (size_t pos = 0; (book = fixture_next_book(chaos->fixture, &pos));)
        chaos->over_bytes[book->slot] = books_overcommitted_bytes(book);
}

static void check_over(struct chaos *chaos, unsigned what) {
    const struct book *book;

    for (size_t pos = 0; (book = fixture_next_book(chaos->fixture, &pos));)
        ck_assert_msg(books_overcommitted_bytes(book) <= chaos->over_bytes[book->slot],
                      "%s was promised more than it has by a step of kind %u", book->name, what);
}

/* The same rules once more, for the whole queue: the turn overlooked no waiter. */
static void look_again(struct chaos *chaos) {
    struct broker_fixture *fixture = chaos->fixture;

    fixture->n_told = 0;
    ck_assert_int_eq(broker_policy_set(fixture->broker, chaos->policy, fixture->now), 0);
    fixture_turn(fixture);
    for (uint32_t i = 0; i < fixture->n_told; i++)
        ck_assert_msg(fixture->told[i].verdict.kind != VERDICT_GRANT, "waiter of tag %llu: %s",
                      (unsigned long long)fixture->told[i].tag, fixture->told[i].verdict.reason);
}

/* A chapter of the transcript is so many steps. */
#define CHAPTER 50

static void walk(uint64_t seed, unsigned steps, struct transcript *transcript) {
    struct chaos *chaos = calloc(1, sizeof(*chaos));
    struct broker_fixture *fixture = chaos->fixture = fixture_new(N_DEVICES, DEVICE_GIB);

    chaos->random = seed;
    fixture->userdata = chaos;
    fixture->record = keep;
    make_policies(chaos);
    chaos->policy = &fixture->policy;
    if (transcript)
        transcript_follow(transcript, fixture);
    for (unsigned step = 0; step < steps; step++) {
        unsigned what = pick(chaos, 100);
        bool may_overcommit = false, in_grace;

        fixture->now.usec += pick(chaos, 3) * SECS;
        fixture->now.week_minute = (uint16_t)(fixture->now.usec / (60 * SECS) % 10);
        note_over(chaos);
        if (what < 25) {
            ask(chaos, what < 3);
        } else if (what < 36) {
            attach(chaos);
        } else if (what < 58) {
            grow(chaos);
        } else if (what < 66) {
            shrink(chaos);
        } else if (what < 76) {
            end(chaos);
            may_overcommit = true; /* what it held lingers beside what its lease is guaranteed */
        } else if (what < 79) {
            confine(chaos);
        } else if (what < 88) {
            sample(chaos);
            may_overcommit = true;
        } else if (what < 92) {
            device(chaos);
            may_overcommit = true;
        } else if (what < 93) {
            chaos->policy = &chaos->policies[pick(chaos, N_POLICIES)];
            ck_assert_int_eq(broker_policy_set(fixture->broker, chaos->policy, fixture->now), 0);
            may_overcommit = true;
        } else if (what < 95) {
            broker_cancel(fixture->broker, chaos->waiters[pick(chaos, 64)], fixture->now);
        } else if (what < 99) {
            come_back(chaos);
            may_overcommit = true; /* it has what it has */
        } else if (pick(chaos, 3) == 0) {
            restart(chaos);
            chaos->policy = &fixture->policy;
            may_overcommit = true;
        }
        fixture_check(fixture);
        if (!may_overcommit)
            check_over(chaos, what);
        note_over(chaos);
        in_grace = broker_grace_until(fixture->broker) != 0;
        fixture_turn(fixture);
        if (!in_grace)
            check_over(chaos, 100);
        ck_assert_uint_gt(broker_deadline(fixture->broker), fixture->now.usec);
        compare_records(chaos);
        if (!in_grace)
            look_again(chaos);
        fixture->n_told = 0;
        if (transcript) {
            fixture_write_state(fixture);
            if (step % CHAPTER == CHAPTER - 1)
                transcript_end_chapter(transcript, seed, step + 1);
        }
    }
    printf("seed %#llx: %u granted, %u waited, %u restarts\n", (unsigned long long)seed,
           chaos->n_grants, chaos->n_waits, chaos->n_restarts);
    ck_assert_uint_gt(chaos->n_grants, steps / 50);
    ck_assert_uint_gt(chaos->n_waits, steps / 300);
    fixture_free(fixture);
    for (unsigned i = 0; i < N_POLICIES; i++)
        policy_done(&chaos->policies[i]);
    free(chaos);
}

START_TEST(whatever_happens_the_books_balance) {
    const char *seed = getenv("ALLOT_TEST_SEED"), *is_long = getenv("ALLOT_TEST_LONG");
    uint64_t first = seed && *seed ? strtoull(seed, NULL, 0) : 0xc405;

    for (uint64_t i = 0; i < 5; i++)
        walk(first + i, is_long && *is_long ? 6000 : 800, NULL);
}
END_TEST

/* Every answer, notice, event, record and place in the queue. */
START_TEST(the_broker_tells_what_it_told_when_the_walk_was_last_read) {
    struct transcript *transcript = transcript_new();

    for (uint64_t i = 0; i < 5; i++)
        walk(0xc405 + i, 800, transcript);
    transcript_compare(transcript, TEST_GOLDEN "/broker-chaos.txt");
}
END_TEST

SUITE_TIMEOUT("broker-chaos", 300, whatever_happens_the_books_balance,
              the_broker_tells_what_it_told_when_the_walk_was_last_read)
