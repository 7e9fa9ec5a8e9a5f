/* SPDX-License-Identifier: Apache-2.0 */
/* Every field of every message: what is valid passes, one step beyond does not. */
#include "daemon/hand/message_check.h"

#include <signal.h>
#include <string.h>

#include "tests/support/suite.h"

static union hand_message message;
static enum hand_role role;
static uint32_t asked; /* 0: a question */

static bool passes(void) {
    union hand_message copy = message;
    size_t size = hand_size(message.head.kind);

    return asked ? message_check_reply(&copy, size, asked)
                 : message_check_question(&copy, size, role);
}

/* A message of this kind, of zeros. */
static void begin(uint32_t kind) {
    memset(&message, 0, sizeof(message));
    message.head.kind = kind;
}

/* With `field` so it passes, or does not; afterwards it is as before. */
#define WITH(field, value, expected)                                                               \
    do {                                                                                           \
        __typeof__(field) before_;                                                                 \
                                                                                                   \
        memcpy(&before_, &(field), sizeof(field));                                                 \
        (field) = (value);                                                                         \
        ck_assert_msg(passes() == (expected), "%s = %s", #field, #value);                          \
        memcpy(&(field), &before_, sizeof(field));                                                 \
    } while (0)
#define GOOD(field, value) WITH(field, value, true)
#define BAD(field, value)  WITH(field, value, false)

/* Bytes of a bool or an enum, which have no value beyond theirs in C. */
static void with_bytes(void *field, size_t size, uint32_t value, bool expected, const char *what) {
    uint32_t before = 0;

    memcpy(&before, field, size);
    memcpy(field, &value, size);
    ck_assert_msg(passes() == expected, "%s = %u", what, value);
    memcpy(field, &before, size);
}
#define BOOL(field)                                                                                \
    do {                                                                                           \
        with_bytes(&(field), 1, 1, true, #field);                                                  \
        with_bytes(&(field), 1, 2, false, #field);                                                 \
    } while (0)
#define ENUM(field, last)                                                                          \
    do {                                                                                           \
        with_bytes(&(field), 4, last, true, #field);                                               \
        with_bytes(&(field), 4, (last) + 1, false, #field);                                        \
    } while (0)

/* A text must end; one that fills its room to the last byte does. */
static void check_text(char *text, size_t size, char first, const char *what) {
    char before[512];

    ck_assert_uint_le(size, sizeof(before));
    memcpy(before, text, size);
    memset(text, 'x', size);
    text[0] = first;
    ck_assert_msg(!passes(), "%s", what);
    text[size - 1] = 0;
    ck_assert_msg(passes(), "%s", what);
    memcpy(text, before, size);
}
#define TEXT(field) check_text(field, sizeof(field), 'x', #field)
#define PATH(field) check_text(field, sizeof(field), '/', #field)

static void check_device(struct sample_device *device) {
    ck_assert(passes());
    ENUM(device->id.kind, GPUID_MIG_PATH);
    ENUM(device->parent.kind, GPUID_MIG_PATH);
    BOOL(device->is_mig);
    BOOL(device->mig_enabled);
    BOOL(device->runs_mps);
    GOOD(device->pci.device, 31);
    BAD(device->pci.device, 32);
    GOOD(device->pci.function, 7);
    BAD(device->pci.function, 8);
    TEXT(device->name);
    TEXT(device->trouble);
    ENUM(device->health, SAMPLE_FAILED);
    GOOD(device->readings.has, (UINT64_C(1) << READING_COUNT) - 1);
    BAD(device->readings.has, UINT64_C(1) << READING_COUNT);
    GOOD(device->readings.minor, (1 << 20) - 1);
    BAD(device->readings.minor, 1 << 20);
    GOOD(device->n_links, SAMPLE_LINKS_MAX);
    BAD(device->n_links, SAMPLE_LINKS_MAX + 1);
    device->links[1].remote.kind = GPUID_MIG_PATH; /* not among the links */
    device->n_links = 2;
    ENUM(device->links[0].remote.kind, GPUID_MIG_PATH);
    ENUM(device->links[1].remote.kind, GPUID_MIG_PATH);
    ENUM(device->links[0].path, SAMPLE_PATH_SYSTEM);
    ENUM(device->links[1].path, SAMPLE_PATH_SYSTEM);
    with_bytes(&device->links[2].path, 4, 77, true, "a link beyond");
}

START_TEST(questions_for_the_reader) {
    asked = 0;
    role = HAND_ROLE_READER;
    begin(HAND_KNOWN);
    check_device(&message.device.device);
    begin(HAND_CLOSE);
    ck_assert(passes());
    ENUM(message.close.gpu.kind, GPUID_MIG_PATH);
    GOOD(message.close.closed, 1);
    BAD(message.close.closed, 2);
    begin(HAND_SAMPLE);
    ck_assert(passes());
    begin(HAND_USED);
    ck_assert(!passes()); /* pid 0 */
    message.used.pid = 1;
    ck_assert(passes());
    BAD(message.used.pid, -1);
    ENUM(message.used.device.kind, GPUID_MIG_PATH);
}
END_TEST

START_TEST(questions_for_the_hand) {
    asked = 0;
    role = HAND_ROLE_HAND;
    begin(HAND_DESCRIBE);
    ck_assert(passes());
    GOOD(message.describe.n, HAND_DESCRIBE_MAX);
    BAD(message.describe.n, HAND_DESCRIBE_MAX + 1);
    message.describe.n = 2;
    GOOD(message.describe.pids[1], 5);
    BAD(message.describe.pids[0], -1);
    BAD(message.describe.pids[1], -1);
    GOOD(message.describe.pids[2], -1);

    begin(HAND_CONFINE);
    ck_assert(!passes()); /* pid 0 */
    message.confine.confine.pid = 1;
    ck_assert(passes());
    BAD(message.confine.confine.pid, -1);
    BOOL(message.confine.confine.want_scope);
    BOOL(message.confine.confine.want_limit);
    GOOD(message.confine.confine.n_devices, HAND_DEVICES_MAX);
    BAD(message.confine.confine.n_devices, HAND_DEVICES_MAX + 1);
    message.confine.confine.n_devices = 2;
    ENUM(message.confine.confine.devices[0].id.kind, GPUID_MIG_PATH);
    ENUM(message.confine.confine.devices[1].id.kind, GPUID_MIG_PATH);
    with_bytes(&message.confine.confine.devices[2].id.kind, 4, 77, true, "a device beyond");
    BOOL(message.confine.nodes[1].has_minor);
    BOOL(message.confine.nodes[1].is_mig);
    GOOD(message.confine.nodes[1].minor, (1 << 20) - 1);
    BAD(message.confine.nodes[1].minor, 1 << 20);

    begin(HAND_SIGNAL);
    ck_assert(passes());
    GOOD(message.signal.signal.signal, SIGRTMAX);
    BAD(message.signal.signal.signal, SIGRTMAX + 1);
    BAD(message.signal.signal.signal, -1);
    BOOL(message.signal.signal.as_user);
    GOOD(message.signal.signal.pid, 5);
    BAD(message.signal.signal.pid, -1);
    TEXT(message.signal.signal.cgroup);
    message.signal.signal.cgroup[0] = '/';
    ck_assert(passes());
    BAD(message.signal.signal.pid, 5); /* one of both */

    begin(HAND_FIND);
    ck_assert(passes());
    GOOD(message.find.find.has_token, 1);
    BAD(message.find.find.has_token, 2);
    BAD(message.find.find.pid, -1);
    begin(HAND_PROBE);
    ck_assert(passes());
    GOOD(message.probe.has_gpu, 1);
    BAD(message.probe.has_gpu, 2);
    ENUM(message.probe.gpu.kind, GPUID_MIG_PATH);
    begin(HAND_LOCK);
    ck_assert(passes());
    GOOD(message.lock.locked, 1);
    BAD(message.lock.locked, 2);
}
END_TEST

START_TEST(questions_have_a_size_and_someone_they_are_for) {
    static const uint32_t of_reader[] = { HAND_KNOWN, HAND_CLOSE, HAND_SAMPLE, HAND_USED };
    static const uint32_t of_hand[] = { HAND_DESCRIBE, HAND_CONFINE, HAND_SIGNAL,
                                        HAND_PROBE,    HAND_LOCK,    HAND_FIND };
    static const uint32_t of_none[] = { 0, HAND_DEVICE, HAND_PROCESS, HAND_EVENT, HAND_ANSWER, 99 };

    asked = 0;
    for (unsigned i = 0; i < 2; i++) {
        role = i ? HAND_ROLE_READER : HAND_ROLE_HAND;
        begin(HAND_HELLO);
        ck_assert(passes());
        GOOD(message.hello.driver, DRIVER_SIM);
        BAD(message.hello.driver, DRIVER_SIM + 1);
        ck_assert(!message_check_question(&message, sizeof(message.hello) - 1, role));
        ck_assert(!message_check_question(&message, sizeof(message.hello) + 1, role));
        ck_assert(!message_check_question(&message, sizeof(message.head) - 1, role));
        for (size_t j = 0; j < ELEMENTSOF(of_none); j++) {
            begin(of_none[j]);
            ck_assert(!passes());
            ck_assert(!message_check_question(&message, 0, role));
        }
    }
    role = HAND_ROLE_HAND;
    for (size_t i = 0; i < ELEMENTSOF(of_reader); i++) {
        begin(of_reader[i]);
        message.used.pid = 1;
        ck_assert(!passes());
    }
    role = HAND_ROLE_READER;
    for (size_t i = 0; i < ELEMENTSOF(of_hand); i++) {
        begin(of_hand[i]);
        message.confine.confine.pid = 1;
        ck_assert(!passes());
    }
}
END_TEST

START_TEST(rows_answer_what_was_asked) {
    asked = HAND_SAMPLE;
    begin(HAND_DEVICE);
    check_device(&message.device.device);
    asked = HAND_DESCRIBE;
    ck_assert(!passes());

    begin(HAND_PROCESS);
    ck_assert(passes());
    asked = HAND_SIGNAL;
    ck_assert(!passes());
    asked = HAND_SAMPLE;
    ck_assert(passes());
    BAD(message.process.process.pid, -1);
    BAD(message.process.process.namespace_pid, -1);
    ENUM(message.process.process.device.kind, GPUID_MIG_PATH);
    GOOD(message.process.process.kinds, 31);
    BAD(message.process.process.kinds, 32);
    BOOL(message.process.process.has_uid);
    BOOL(message.process.process.has_used);
    BOOL(message.process.process.has_busy);
    ENUM(message.process.process.owner, N_CGROUP_OWNERS - 1);
    TEXT(message.process.process.command);
    TEXT(message.process.process.name);
    TEXT(message.process.process.container);
    PATH(message.process.process.cgroup);
    GOOD(message.process.process.cgroup[0], '/');
    BAD(message.process.process.cgroup[0], 'x');

    begin(HAND_EVENT);
    ck_assert(passes());
    ENUM(message.event.event.kind, SAMPLE_EVENT_OTHER);
    ENUM(message.event.event.device.kind, GPUID_MIG_PATH);
    ck_assert(message_check_reply(&message, sizeof(message.event), 0)); /* at any time */
    ck_assert(!message_check_reply(&message, sizeof(message.event) - 1, 0));
    ck_assert(!message_check_reply(&message, sizeof(message.head) - 1, 0));

    begin(HAND_SAMPLE); /* no answer at all */
    ck_assert(!passes());
    begin(0);
    ck_assert(!message_check_reply(&message, 0, HAND_SAMPLE));
}
END_TEST

START_TEST(answers_fit_their_questions) {
    struct hand_answer_row *row = &message.answer;

    begin(HAND_ANSWER);
    ck_assert(!message_check_reply(&message, sizeof(*row), 0)); /* nothing was asked */
    asked = HAND_HELLO;
    ck_assert(passes());
    GOOD(row->r, -4095);
    BAD(row->r, -4096);
    BAD(row->r, 1);
    TEXT(row->text);
    asked = HAND_CLOSE; /* no more than that is read */
    memset(&row->sampled, 0xff, sizeof(row->sampled));
    ck_assert(passes());

    begin(HAND_ANSWER);
    asked = HAND_SAMPLE;
    ck_assert(passes());
    GOOD(row->sampled.is_simulated, 1);
    BAD(row->sampled.is_simulated, 2);
    GOOD(row->sampled.cut, 1);
    BAD(row->sampled.cut, 2);
    TEXT(row->sampled.driver_version);
    TEXT(row->sampled.list_trouble);
    row->r = -1; /* what did not work has nothing else to say */
    GOOD(row->sampled.cut, 2);

    begin(HAND_ANSWER);
    asked = HAND_USED;
    GOOD(row->used.is_listed, 1);
    BAD(row->used.is_listed, 2);

    asked = HAND_CONFINE;
    ck_assert(passes());
    TEXT(row->confined.scope);
    PATH(row->confined.cgroup);
    BAD(row->confined.cgroup[0], 'x');
    GOOD(row->confined.tiers, 6);
    BAD(row->confined.tiers, 1);
    BAD(row->confined.tiers, 8);
    GOOD(row->confined.n_details, HAND_DETAILS_MAX);
    BAD(row->confined.n_details, HAND_DETAILS_MAX + 1);
    row->confined.n_details = 2;
    TEXT(row->confined.details[0]);
    TEXT(row->confined.details[1]);
    memset(row->confined.details[2], 'x', sizeof(row->confined.details[2]));
    ck_assert(passes());

    begin(HAND_ANSWER);
    asked = HAND_SIGNAL;
    BOOL(row->signalled.has_used);
    asked = HAND_FIND;
    ck_assert(passes());
    row->found.n_processes = HAND_FOUND_MAX + 1;
    for (size_t i = 0; i < HAND_FOUND_MAX; i++)
        row->found.processes[i].pid = 1;
    ck_assert(!passes());
    row->found.n_processes = HAND_FOUND_MAX;
    ck_assert(passes());
    BAD(row->found.processes[0].pid, 0);
    BAD(row->found.processes[HAND_FOUND_MAX - 1].pid, -1);
    row->found.n_processes = 1;
    GOOD(row->found.processes[1].pid, 0);

    begin(HAND_ANSWER);
    asked = HAND_PROBE;
    ck_assert(passes());
    for (size_t i = 0; i < ELEMENTSOF(row->probes.tiers); i++) {
        BOOL(row->probes.tiers[i].proven);
        TEXT(row->probes.tiers[i].detail);
    }
}
END_TEST

/* What people see is printable afterwards. */
#define CLEANED(field)                                                                             \
    do {                                                                                           \
        strcpy(field, "a\033b");                                                                   \
        ck_assert(message_check_reply(&message, hand_size(message.head.kind), asked));             \
        ck_assert_msg(!strchr(field, '\033') && (field)[0] == 'a', "%s", #field);                  \
        (field)[0] = 0;                                                                            \
    } while (0)

START_TEST(texts_are_cleaned) {
    asked = HAND_SAMPLE;
    begin(HAND_DEVICE);
    CLEANED(message.device.device.name);
    CLEANED(message.device.device.trouble);
    begin(HAND_PROCESS);
    CLEANED(message.process.process.command);
    CLEANED(message.process.process.name);
    CLEANED(message.process.process.container);
    begin(HAND_ANSWER);
    CLEANED(message.answer.text);
    CLEANED(message.answer.sampled.driver_version);
    CLEANED(message.answer.sampled.list_trouble);
    begin(HAND_ANSWER);
    asked = HAND_CONFINE;
    message.answer.confined.n_details = 2;
    CLEANED(message.answer.confined.scope);
    CLEANED(message.answer.confined.details[0]);
    CLEANED(message.answer.confined.details[1]);
    begin(HAND_ANSWER);
    asked = HAND_PROBE;
    CLEANED(message.answer.probes.tiers[5].detail);
}
END_TEST

SUITE("message-check", questions_for_the_reader, questions_for_the_hand,
      questions_have_a_size_and_someone_they_are_for, rows_answer_what_was_asked,
      answers_fit_their_questions, texts_are_cleaned)
