/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sample goes through both helpers:
 *
 *     timer ─▶ reader: devices, and pids on them ─▶ hand: what these processes are ─▶ sampled()
 *
 * It waits behind the calls that wait already. The hand is asked even where no process is on a
 * device, so that one that is stuck or gone is noticed. A signal that has waited for SIGNAL_USEC
 * goes through the fallback.
 */
#include "daemon/hand/hand.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/units.h"
#include "daemon/hand/helper.h"
#include "daemon/hand/signal_fallback.h"
#include "daemon/hand/wire.h"

#define PERIOD_USEC   (UINT64_C(1) * 1000 * 1000)
#define TIMEOUT_USEC  (UINT64_C(10) * 1000 * 1000)
#define STALE_USEC    (UINT64_C(2) * 1000 * 1000)
#define SIGNAL_USEC   (UINT64_C(200) * 1000) /* a signal waits so long for a hand that is busy */
#define ACCURACY_USEC (UINT64_C(50) * 1000)

struct hand {
    sd_event *event;
    struct hand_watcher watcher;
    uint64_t period_usec, stale_usec;

    struct helper reader, hand;
    sd_event_source *period, *overdue, *hurry;
    struct signal_fallback fallback;
    struct list hurried; /* calls that `fallback` has */

    bool was_told_stale, was_overdue; /* the second: … and only that, not why */
    uint64_t taken_usec;              /* of the last sample; 0: never */

    bool sample_due;
    struct sample *building; /* the reader sends its rows, or … */
    bool is_describing;      /* … the hand says what its processes are */
    uint64_t listed_usec;    /* the reader had listed them by then */
    size_t n_described, n_asked;
    size_t n_devices_room, n_processes_room;

    size_t n_known;
    struct sample_device *known; /* GPUs and instances of the last sample, for successors */
    uint32_t n_listed;           /* as in struct hand_sampled, of the last sample */
    char list_trouble[160];
    size_t n_closed;
    struct gpuid closed[SAMPLE_DEVICES_MAX];
};

/* ---- Stale readings -----------------------------------------------------------------------------
 */

static void tell_stale(struct hand *hand, const char *reason) {
    if (hand->was_told_stale && !hand->was_overdue)
        return;
    hand->was_told_stale = true;
    hand->was_overdue = false;
    hand->watcher.stale(hand->watcher.userdata, hand->taken_usec, reason);
}

static void expect_sample(struct hand *hand, uint64_t usec) {
    sd_event_source_set_time_relative(hand->overdue, usec + hand->stale_usec);
    sd_event_source_set_enabled(hand->overdue, SD_EVENT_ONESHOT);
}

static int overdue_passed(sd_event_source *source, uint64_t usec, void *userdata) {
    struct hand *hand = userdata;
    char reason[96], text[UNITS_TEXT_SIZE];

    if (hand->was_told_stale)
        return 0;
    snprintf(reason, sizeof(reason), "%s does not answer: a reading is overdue by %s",
             hand->is_describing ? "allot-hand" : "the driver",
             units_format_usec(hand->stale_usec, text));
    tell_stale(hand, reason);
    hand->was_overdue = true;
    return 0;
}

/* A sample that was on its way is not to be had any more: begin another one. */
static void drop_sample(struct hand *hand) {
    hand->building = sample_free(hand->building);
    hand->is_describing = false;
    hand->sample_due = true;
}

static void reader_lost(struct hand *hand, const char *reason) {
    if (!hand->is_describing)
        drop_sample(hand);
    tell_stale(hand, reason);
}

static void hand_lost(struct hand *hand, const char *reason) {
    if (hand->is_describing)
        drop_sample(hand);
    tell_stale(hand, reason);
    helper_ask_next(&hand->reader);
}

/* ---- Samples ------------------------------------------------------------------------------------
 */

/* What a successor is told: best effort, it can find out by itself what is not closed. */
static void remember(struct hand *hand, const struct sample *sample) {
    struct sample_device *known;

    if (!sample->n_devices)
        return;
    known = realloc(hand->known, sample->n_devices * sizeof(*known));
    if (!known)
        return;
    memcpy(known, sample->devices, sample->n_devices * sizeof(*known));
    hand->known = known;
    hand->n_known = sample->n_devices;
}

static const struct sample_device *find_known(const struct hand *hand, const struct gpuid *id) {
    for (size_t i = 0; i < hand->n_known; i++)
        if (gpuid_equal(&hand->known[i].id, id))
            return &hand->known[i];
    return NULL;
}

static void deliver(struct hand *hand) {
    cleanup(sample_freep) struct sample *sample = TAKE(hand->building);

    hand->is_describing = false;
    hand->taken_usec = sample->taken_usec;
    remember(hand, sample);
    hand->was_told_stale = hand->was_overdue = false;
    expect_sample(hand, hand->period_usec);
    hand->watcher.sampled(hand->watcher.userdata, sample);
    helper_ask_next(&hand->reader);
}

/* What the hand says of the process of a row. The pid may have gone to another one meanwhile. */
static void describe(struct hand *hand, const struct sample_process *said) {
    const uint32_t by_name = SAMPLE_MPS_SERVER | SAMPLE_DISPLAY;
    const uint64_t tick_usec = 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
    struct sample_process *process;

    if (hand->n_described >= hand->n_asked)
        return;
    process = &hand->building->processes[hand->n_described++];
    if (said->pid != process->pid || !said->start || said->start > hand->listed_usec / tick_usec)
        return;
    process->start = said->start;
    process->namespace_pid = said->namespace_pid;
    process->has_uid = said->has_uid;
    process->uid = said->uid;
    process->owner = said->owner;
    process->kinds |= said->kinds & by_name;
    memcpy(process->command, said->command, sizeof(process->command));
    memcpy(process->name, said->name, sizeof(process->name));
    memcpy(process->container, said->container, sizeof(process->container));
    memcpy(process->cgroup, said->cgroup, sizeof(process->cgroup));
    for (size_t i = 0; process->kinds & SAMPLE_MPS_SERVER && i < hand->building->n_devices; i++)
        if (gpuid_equal(&hand->building->devices[i].id, &process->device))
            hand->building->devices[i].runs_mps = true;
}

static void on_described(struct helper_call *call, struct hand_answer_row *row);

/* Ask for the next processes, or be done. */
static void ask_description(struct hand *hand) {
    const struct sample *sample = hand->building;
    struct helper_call *call = helper_call_new(hand, HAND_DESCRIBE, on_described);
    size_t n = MIN(sample->n_processes - hand->n_asked, (size_t)HAND_DESCRIBE_MAX);

    if (!call) {
        drop_sample(hand); /* the next period tries again */
        return;
    }
    call->is_for_this = true;
    call->message.describe.n = (uint32_t)n;
    for (size_t i = 0; i < n; i++)
        call->message.describe.pids[i] = sample->processes[hand->n_asked + i].pid;
    hand->n_asked += n;
    helper_submit(&hand->hand, call);
}

static void on_described(struct helper_call *call, struct hand_answer_row *row) {
    struct hand *hand = call->hand;

    if (row->r < 0) {
        drop_sample(hand);
        tell_stale(hand, row->text);
        return;
    }
    hand->n_described = hand->n_asked; /* of those it left out nothing is known */
    if (hand->n_asked < hand->building->n_processes)
        ask_description(hand);
    else
        deliver(hand);
}

static void on_sampled(struct helper_call *call, struct hand_answer_row *row) {
    struct hand *hand = call->hand;
    struct sample *sample = hand->building;

    if (row->r < 0) {
        hand->building = sample_free(sample);
        tell_stale(hand, row->text);
        return;
    }
    if (!sample)
        return;
    sample->taken_usec = row->sampled.taken_usec;
    sample->is_simulated = row->sampled.is_simulated;
    sample->cuda_version = row->sampled.cuda_version;
    sample->cut |= row->sampled.cut != 0;
    memcpy(sample->driver_version, row->sampled.driver_version, sizeof(sample->driver_version));
    hand->n_listed = row->sampled.n_listed;
    memcpy(hand->list_trouble, row->sampled.list_trouble, sizeof(hand->list_trouble));
    hand->listed_usec = clock_usec(CLOCK_BOOTTIME);
    hand->is_describing = true;
    hand->n_described = hand->n_asked = 0;
    ask_description(hand);
}

/* The reader has nothing else to do. */
static void reader_idle(struct hand *hand) {
    struct helper_call *call;

    if (!hand->sample_due || hand->is_describing)
        return;
    call = helper_call_new(hand, HAND_SAMPLE, on_sampled);
    if (!call)
        return; /* the next period tries again */
    call->is_for_this = true;
    hand->sample_due = false;
    hand->n_devices_room = hand->n_processes_room = 0;
    hand->building = calloc(1, sizeof(*hand->building));
    helper_submit(&hand->reader, call);
}

/* A row of the reader's: it has only NVML's word for a process. */
static void add_process(struct hand *hand, const struct sample_process *said) {
    const struct sample_process process = {
        .pid = said->pid,
        .device = said->device,
        .kinds = said->kinds & (SAMPLE_COMPUTE | SAMPLE_GRAPHICS | SAMPLE_MPS_CLIENT),
        .has_used = said->has_used,
        .used_bytes = said->used_bytes,
        .has_busy = said->has_busy,
        .busy = said->busy,
    };

    sample_add_process(hand->building, &hand->n_processes_room, &process);
}

static void reader_told(struct hand *hand, union hand_message *message) {
    switch (message->head.kind) {
    case HAND_DEVICE:
        message->device.device.runs_mps = false; /* the hand says that */
        sample_add_device(hand->building, &hand->n_devices_room, &message->device.device);
        break;
    case HAND_PROCESS:
        add_process(hand, &message->process.process);
        break;
    case HAND_EVENT:
        hand->watcher.happened(hand->watcher.userdata, &message->event.event);
        hand_sample(hand); /* what it did to the device */
        break;
    }
}

static void hand_told(struct hand *hand, union hand_message *message) {
    if (message->head.kind == HAND_PROCESS && hand->is_describing)
        describe(hand, &message->process.process);
}

void hand_sample(struct hand *hand) {
    hand->sample_due = true;
    helper_ask_next(&hand->reader);
}

void hand_set_period(struct hand *hand, uint64_t period_usec, uint64_t stale_usec) {
    if (period_usec == hand->period_usec && stale_usec == hand->stale_usec)
        return;
    hand->period_usec = period_usec;
    hand->stale_usec = stale_usec;
    sd_event_source_set_time_relative(hand->period, period_usec);
    expect_sample(hand, period_usec);
}

static int period_passed(sd_event_source *source, uint64_t usec, void *userdata) {
    struct hand *hand = userdata;

    sd_event_source_set_time_relative(source, hand->period_usec);
    hand_sample(hand);
    return 0;
}

/* ---- Signals that do not wait -------------------------------------------------------------------
 */

static void hurried(void *userdata, int r, const struct hand_answer *answer,
                    const struct allot_error *err) {
    struct helper_call *call = userdata;
    hand_fn done = call->done;

    userdata = call->userdata;
    helper_call_free(call);
    done(userdata, r, answer, err);
}

/* Whatever blocks the hand, these signals do not need it. */
static int hurry_passed(sd_event_source *source, uint64_t usec, void *userdata) {
    struct hand *hand = userdata;
    struct helper_call *call, *following;

    list_foreach_safe (call, following, &hand->hand.waiting, in_helper) {
        if (call->message.head.kind != HAND_SIGNAL || call->seen.has_used)
            continue;
        /* No second hand can be had: then they wait for this one. */
        if (signal_fallback_send(&hand->fallback, &call->message.signal.signal, hurried, call) < 0)
            break;
        list_remove(&call->in_helper);
        list_append(&hand->hurried, &call->in_helper);
    }
    return 0;
}

/* ---- New helpers --------------------------------------------------------------------------------
 */

/* What a new reader is told first. */
static int reader_connected(struct hand *hand) {
    struct helper_call *call;

    for (size_t i = 0; i < hand->n_known; i++) {
        call = helper_call_new(hand, HAND_KNOWN, NULL);
        if (!call)
            return -ENOMEM;
        call->message.device.device = hand->known[i];
        helper_greet(&hand->reader, call);
    }
    for (size_t i = 0; i < hand->n_closed; i++) {
        call = helper_call_new(hand, HAND_CLOSE, NULL);
        if (!call)
            return -ENOMEM;
        call->message.close.gpu = hand->closed[i];
        call->message.close.closed = 1;
        helper_greet(&hand->reader, call);
    }
    hand->sample_due = true;
    return 0;
}

static int add_timer(struct hand *hand, sd_event_source **ret, sd_event_time_handler_t passed) {
    int r = sd_event_add_time_relative(hand->event, ret, CLOCK_BOOTTIME, hand->period_usec,
                                       ACCURACY_USEC, passed, hand);

    return r < 0 ? r : sd_event_source_set_enabled(*ret, SD_EVENT_OFF);
}

static int connect_helpers(struct hand *hand, const struct hand_options *options,
                           struct allot_error *err) {
    const struct helper_watcher of_hand = { .hand = hand, .told = hand_told, .lost = hand_lost };
    const struct helper_watcher of_reader = {
        .hand = hand,
        .connected = reader_connected,
        .told = reader_told,
        .lost = reader_lost,
        .idle = reader_idle,
    };
    int r = helper_init(&hand->hand, HAND_ROLE_HAND, options, &of_hand, err);

    if (r == 0)
        r = helper_init(&hand->reader, HAND_ROLE_READER, options, &of_reader, err);
    return r;
}

int hand_new(struct hand **ret, const struct hand_options *options, struct allot_error *err) {
    cleanup(hand_freep) struct hand *hand = calloc(1, sizeof(*hand));
    struct hand_options complete = *options;
    int r;

    if (!hand)
        return error_set(err, -ENOMEM, "out of memory");
    if (!complete.timeout_usec)
        complete.timeout_usec = TIMEOUT_USEC;
    hand->event = sd_event_ref(options->event);
    hand->watcher = options->watcher;
    hand->period_usec = options->period_usec ? options->period_usec : PERIOD_USEC;
    hand->stale_usec = options->stale_usec ? options->stale_usec : STALE_USEC;
    list_init(&hand->hurried);
    r = signal_fallback_init(&hand->fallback, &complete, complete.timeout_usec);
    if (r < 0)
        return error_set(err, r, "out of memory");
    r = add_timer(hand, &hand->overdue, overdue_passed);
    if (r >= 0)
        r = add_timer(hand, &hand->hurry, hurry_passed);
    if (r >= 0)
        r = add_timer(hand, &hand->period, period_passed);
    if (r >= 0)
        r = sd_event_source_set_enabled(hand->period, SD_EVENT_ON);
    if (r < 0)
        return error_set(err, r, "cannot make a timer: %s", strerror(-r));
    r = connect_helpers(hand, &complete, err);
    if (r < 0)
        return r;
    expect_sample(hand, 0);
    *ret = TAKE(hand);
    return 0;
}

struct hand *hand_free(struct hand *hand) {
    struct helper_call *call;

    if (!hand)
        return NULL;
    helper_done(&hand->reader);
    helper_done(&hand->hand);
    while (hand->hurried.next && (call = list_first(&hand->hurried, struct helper_call, in_helper)))
        helper_call_free(call);
    signal_fallback_done(&hand->fallback);
    sample_free(hand->building);
    sd_event_source_disable_unref(hand->period);
    sd_event_source_disable_unref(hand->overdue);
    sd_event_source_disable_unref(hand->hurry);
    sd_event_unref(hand->event);
    free(hand->known);
    free(hand);
    return NULL;
}

uint64_t hand_stale_since(const struct hand *hand) {
    return !hand->was_told_stale ? 0 : hand->taken_usec ? hand->taken_usec : 1;
}

unsigned hand_n_replaced(const struct hand *hand) {
    return hand->hand.n_replaced;
}

unsigned hand_n_readers_replaced(const struct hand *hand) {
    return hand->reader.n_replaced;
}

/* ---- What others ask ----------------------------------------------------------------------------
 */

/* For successors. */
static void note_closed(struct hand *hand, const struct gpuid *gpu, bool closed) {
    for (size_t i = 0; i < hand->n_closed; i++)
        if (gpuid_equal(&hand->closed[i], gpu)) {
            if (!closed)
                hand->closed[i] = hand->closed[--hand->n_closed];
            return;
        }
    if (closed && hand->n_closed < ELEMENTSOF(hand->closed))
        hand->closed[hand->n_closed++] = *gpu;
}

/* Tier 5 is both: the hand's signals, and a reader that lists what processes use. */
static void judge_watch(const struct hand *hand, struct hand_probes *probes) {
    if (hand->n_listed == 0) {
        probes->tiers[5].proven = false;
        snprintf(probes->tiers[5].detail, sizeof(probes->tiers[5].detail),
                 "NVML does not say what processes use: %s",
                 hand->list_trouble[0] ? hand->list_trouble : "there is no device");
    } else if (probes->tiers[5].proven)
        snprintf(probes->tiers[5].detail, sizeof(probes->tiers[5].detail),
                 "NVML lists processes of %u devices, and a signal ended a test process",
                 hand->n_listed);
}

static void give(const struct helper_call *call, int r, const struct hand_answer *answer,
                 const char *text) {
    struct allot_error err = { .code = r };

    snprintf(err.text, sizeof(err.text), "%s", text);
    call->done(call->userdata, r, r < 0 ? NULL : answer, &err);
}

static void on_answer(struct helper_call *call, struct hand_answer_row *row) {
    struct hand *hand = call->hand;
    struct hand_answer answer;

    memset(&answer, 0, sizeof(answer));
    switch (call->message.head.kind) {
    case HAND_CONFINE:
        answer.confined = row->confined;
        break;
    case HAND_SIGNAL:
        answer.signalled = row->signalled;
        if (call->seen.has_used) {
            answer.signalled.has_used = true;
            answer.signalled.used_bytes = call->seen.used_bytes;
        }
        break;
    case HAND_FIND:
        answer.found = row->found;
        break;
    case HAND_PROBE:
        answer.probes = row->probes;
        judge_watch(hand, &answer.probes);
        break;
    case HAND_CLOSE:
        if (row->r == 0) {
            note_closed(hand, &call->message.close.gpu, call->message.close.closed);
            hand->sample_due = true; /* events are listened to again with the next sample */
        }
        break;
    }
    give(call, row->r, &answer, row->text);
}

/* Make the call of `helper`; `done` gets what `answered` makes of its answer. */
static int submit(struct helper *helper, struct helper_call *call, hand_fn done, void *userdata) {
    if (!call)
        return -ENOMEM;
    call->done = done;
    call->userdata = userdata;
    helper_submit(helper, call);
    return 0;
}

int hand_confine(struct hand *hand, const struct hand_confine *confine, hand_fn done,
                 void *userdata) {
    struct helper_call *call = helper_call_new(hand, HAND_CONFINE, on_answer);

    if (!call)
        return -ENOMEM;
    call->message.confine.confine = *confine;
    for (uint32_t i = 0; i < MIN(confine->n_devices, (uint32_t)HAND_DEVICES_MAX); i++) {
        const struct sample_device *device = find_known(hand, &confine->devices[i].id);

        if (device)
            call->message.confine.nodes[i] = (struct hand_node){
                .has_minor = READINGS_HAVE(&device->readings, minor),
                .minor = (uint32_t)device->readings.minor,
                .is_mig = device->is_mig,
                .gpu_instance = device->gpu_instance,
                .compute_instance = device->compute_instance,
            };
    }
    return submit(&hand->hand, call, done, userdata);
}

int hand_signal(struct hand *hand, const struct hand_signal *signal, hand_fn done, void *userdata) {
    struct helper_call *call = helper_call_new(hand, HAND_SIGNAL, on_answer);

    if (!call)
        return -ENOMEM;
    call->message.signal.signal = *signal;
    if (helper_is_busy(&hand->hand)) {
        sd_event_source_set_time_relative(hand->hurry, SIGNAL_USEC);
        sd_event_source_set_enabled(hand->hurry, SD_EVENT_ONESHOT);
    }
    return submit(&hand->hand, call, done, userdata);
}

/* The reader has looked: signal the process, or say why not. */
static void on_used(struct helper_call *call, struct hand_answer_row *row) {
    struct hand_answer answer;
    struct helper_call *next;

    memset(&answer, 0, sizeof(answer));
    if (row->r == 0 && row->used.is_listed) {
        answer.signalled.has_used = true;
        answer.signalled.used_bytes = row->used.used_bytes;
    }
    if (row->r < 0 || !row->used.is_listed || row->used.used_bytes <= call->excess.over_bytes) {
        give(call, row->r, &answer, row->text);
        return;
    }
    next = helper_call_new(call->hand, HAND_SIGNAL, on_answer);
    if (!next) {
        give(call, -ENOMEM, NULL, "out of memory");
        return;
    }
    next->message.signal.signal = call->signal;
    next->seen = answer.signalled;
    submit(&call->hand->hand, next, call->done, call->userdata);
}

int hand_signal_over(struct hand *hand, const struct hand_signal *signal,
                     const struct hand_excess *excess, hand_fn done, void *userdata) {
    struct helper_call *call = helper_call_new(hand, HAND_USED, on_used);

    if (!call)
        return -ENOMEM;
    call->signal = *signal;
    call->excess = *excess;
    call->message.used.device = excess->device;
    call->message.used.pid = signal->pid;
    return submit(&hand->reader, call, done, userdata);
}

int hand_find(struct hand *hand, const struct hand_find *find, hand_fn done, void *userdata) {
    struct helper_call *call = helper_call_new(hand, HAND_FIND, on_answer);

    if (call)
        call->message.find.find = *find;
    return submit(&hand->hand, call, done, userdata);
}

int hand_probe(struct hand *hand, hand_fn done, void *userdata) {
    struct helper_call *call = helper_call_new(hand, HAND_PROBE, on_answer);

    for (size_t i = 0; call && i < hand->n_known && !call->message.probe.has_gpu; i++) {
        const struct sample_device *device = &hand->known[i];

        if (device->is_mig || device->mig_enabled || device->health != SAMPLE_OK)
            continue;
        call->message.probe.has_gpu = 1;
        call->message.probe.gpu = device->id;
    }
    return submit(&hand->hand, call, done, userdata);
}

int hand_close_device(struct hand *hand, const struct gpuid *gpu, bool closed, hand_fn done,
                      void *userdata) {
    struct helper_call *call = helper_call_new(hand, HAND_CLOSE, on_answer);

    if (call) {
        call->message.close.gpu = *gpu;
        call->message.close.closed = closed;
    }
    return submit(&hand->reader, call, done, userdata);
}

int hand_lock(struct hand *hand, bool locked, hand_fn done, void *userdata) {
    struct helper_call *call = helper_call_new(hand, HAND_LOCK, on_answer);

    if (call)
        call->message.lock.locked = locked;
    return submit(&hand->hand, call, done, userdata);
}
