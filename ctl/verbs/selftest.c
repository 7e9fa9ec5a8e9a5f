/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/verbs/selftest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/units.h"
#include "ctl/installed.h"
#include "ctl/selftest/row.h"
#include "ctl/selftest/transcript.h"
#include "ctl/view/show.h"
#include "wire/client.h"

#define WHOLE_USEC (280 * UINT64_C(1000000)) /* below the five minutes that are promised */
#define PART_USEC  (90 * UINT64_C(1000000))
#define CALL_USEC  (10 * UINT64_C(1000000))
#define PAGE_BYTES ((uint64_t)2 << 20)
#define ROOM_BYTES ((uint64_t)128 << 20) /* of a lease beside its context */
#define LOOKS      20
#define LEASES     5 /* few: grants may be rationed */
#define GROWTHS    16
#define DEVICES    4 /* that get a lease each: more take too long */

struct selftest {
    const struct gpuctl *ctl;
    struct transcript transcript;
    uint64_t deadline_usec;
    unsigned counts[3]; /* by enum row_result */
    char helper[INSTALLED_PATH_SIZE];
    char prefix[32]; /* of rows: the device that they are about */
};

static void show(struct selftest *test, const struct row *row) {
    static const char *const words[] = { "pass", "FAIL", "skip" };
    static const enum term_style styles[] = { STYLE_GOOD, STYLE_BAD, STYLE_DIM };
    const struct term *term = &test->ctl->term;
    cleanup(freep) char *line = NULL;

    test->counts[row->result]++;
    if (asprintf(&line, "%s%s: %s", test->prefix, row->name, row->text) < 0)
        line = NULL;
    if (term->is_tty)
        fputs("\r\033[K", term->out);
    term_item(term, styles[row->result], 6, words[row->result], line ? line : "out of memory");
    if (*row->remedy)
        term_item(term, STYLE_DIM, 8, term->utf8 ? "      → " : "      > ", row->remedy);
    fflush(term->out);
    transcript_write(&test->transcript, "%s  %s\n", words[row->result], line ? line : row->name);
}

static void say(struct selftest *test, enum row_result result, const char *name, const char *remedy,
                const char *format, ...) __attribute__((format(printf, 5, 6)));
static void say(struct selftest *test, enum row_result result, const char *name, const char *remedy,
                const char *format, ...) {
    char text[ROW_TEXT_SIZE];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    show(test, &(struct row){ result, name, text, remedy ? remedy : "" });
}

/* What runs now, on a terminal; the next row takes its place. */
static void announce(const struct selftest *test, const char *what) {
    const struct term *term = &test->ctl->term;

    if (!term->is_tty)
        return;
    fprintf(term->out, "\r\033[K%s …", what);
    fflush(term->out);
}

/* ---- Parts that are processes ---- */

/* Show the rows of a part until it ends; its last words that are no row. -ETIMEDOUT. */
static int read_rows(struct selftest *test, int fd, char last[static ROW_TEXT_SIZE]) {
    const uint64_t now = clock_usec(CLOCK_MONOTONIC);
    const uint64_t until = MIN(test->deadline_usec, now + PART_USEC);
    cleanup(freep) char *text = malloc(1 << 16);
    size_t n = 0;

    *last = '\0';
    while (text) {
        struct pollfd ready = { fd, POLLIN, 0 };
        const uint64_t at = clock_usec(CLOCK_MONOTONIC);
        char *end;
        ssize_t got;

        if (at >= until)
            return -ETIMEDOUT;
        if (poll(&ready, 1, (int)((until - at) / 1000) + 1) <= 0)
            continue;
        got = read(fd, text + n, (1 << 16) - n);
        if (got <= 0)
            return 0;
        n += (size_t)got;
        while ((end = memchr(text, '\n', n))) {
            const size_t length = (size_t)(end - text) + 1;
            struct row row;

            *end = '\0';
            snprintf(last, ROW_TEXT_SIZE, "%s", text);
            if (row_read(&row, text)) {
                show(test, &row);
                *last = '\0';
            }
            memmove(text, text + length, n - length);
            n -= length;
        }
        if (n == 1 << 16) /* too long for a line of ours */
            n = 0;
    }
    return -ENOMEM;
}

static int start(pid_t *ret, const char *const *argv, int out) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int r = posix_spawn_file_actions_init(&actions);

    if (r)
        return -r;
    r = posix_spawnattr_init(&attributes);
    if (r) {
        posix_spawn_file_actions_destroy(&actions);
        return -r;
    }
    /* A group of its own: one signal ends the job, too. */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
    r = posix_spawn(ret, argv[0], &actions, &attributes, (char **)argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return -r;
}

/* Run a part and show its rows. One that ends badly is a row, too. */
static void run_part(struct selftest *test, const char *name, const char *remedy,
                     const char *const *argv) {
    char last[ROW_TEXT_SIZE];
    int pipes[2], status = 0, r;
    pid_t pid;

    announce(test, name);
    if (pipe2(pipes, O_CLOEXEC) < 0) {
        say(test, ROW_FAILED, name, "try again", "cannot make a pipe: %s", strerror(errno));
        return;
    }
    r = start(&pid, argv, pipes[1]);
    close(pipes[1]);
    if (r < 0)
        say(test, ROW_FAILED, name, "install gpuctl completely", "cannot run %s: %s", argv[0],
            strerror(-r));
    else {
        r = read_rows(test, pipes[0], last);
        if (r < 0)
            kill(-pid, SIGKILL);
        if (r == -ETIMEDOUT) /* perhaps in the kernel, where no signal ends it: leave it behind */
            say(test, ROW_FAILED, name, "the driver hangs: look at the kernel's log",
                "no answer in time");
        else if (r < 0)
            say(test, ROW_FAILED, name, "try again", "%s", strerror(-r));
        else {
            while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
            if (status != 0)
                say(test, ROW_FAILED, name, remedy, "%s",
                    *last ? last : "it ended without saying why");
        }
    }
    close(pipes[0]);
}

static void run_helper(struct selftest *test, const char *name, const char *what) {
    const char *argv[] = { test->helper, what, test->ctl->driver, NULL };

    run_part(test, name, "a CUDA program must run here first", argv);
}

/* ---- Calls to allotd ---- */

static void say_times(struct selftest *test, const char *name, uint64_t *nsec, size_t n) {
    char middle[ROW_TIME_SIZE], slowest[ROW_TIME_SIZE];

    row_time(row_median(nsec, n), middle);
    say(test, ROW_PASSED, name, NULL, "%s, at most %s of %zu", middle,
        row_time(nsec[n - 1], slowest), n);
}

static bool try_looks(struct selftest *test, struct client *client) {
    struct allot_error err = {};
    union wire_reply reply;
    uint64_t took[LOOKS];

    for (size_t i = 0; i < LOOKS; i++) {
        const uint64_t from = clock_nsec(CLOCK_MONOTONIC);

        if (client_call(client, WIRE_METHOD_GET_BOX, NULL, CALL_USEC, &reply, NULL, &err) < 0) {
            say(test, ROW_FAILED, "latency: GetBox", "journalctl -u allotd", "%s", err.text);
            return false;
        }
        took[i] = clock_nsec(CLOCK_MONOTONIC) - from;
    }
    say_times(test, "latency: GetBox", took, LOOKS);
    return true;
}

/* A lease that the guard is not asked for: gpuctl keeps to its share, as liballot does. */
static int acquire(struct client *client, const char *device, uint64_t bytes, uint64_t *ret_lease,
                   char **ret_token, struct failure *failure, struct allot_error *err) {
    const struct wire_amount amount = { .mode = LEASE_FIXED, .bytes = wire_some(bytes) };
    const struct wire_request request = {
        .name = "gpuctl-selftest",
        .amount = &amount,
        .devices = &device,
        .n_devices = 1,
        .wait = wire_some(false),
    };
    union wire_reply reply;
    int r = client_call(client, WIRE_METHOD_ACQUIRE, &(struct wire_acquire){ &request }, CALL_USEC,
                        &reply, failure, err);

    if (r < 0)
        return r;
    *ret_lease = reply.acquire.grant->lease;
    *ret_token = reply.acquire.grant->token ? strdup(reply.acquire.grant->token) : NULL;
    return 0;
}

static void release(struct client *client, uint64_t lease) {
    client_call(client, WIRE_METHOD_RELEASE, &(struct wire_release){ .lease = lease }, CALL_USEC,
                NULL, NULL, NULL);
}

static void try_growth(struct selftest *test, struct client *client, const char *device,
                       uint64_t lease, const char *token, uint64_t limit_bytes) {
    const struct wire_attach attach = { .lease = lease, .token = token, .tier = wire_some(4) };
    struct wire_grow grow = {
        .lease = lease, .device = device, .bytes = PAGE_BYTES, .wait = wire_some(false)
    };
    struct failure failure = {};
    struct allot_error err = {};
    union wire_reply reply;
    uint64_t took[GROWTHS];
    int r = client_call(client, WIRE_METHOD_ATTACH, &attach, CALL_USEC, &reply, &failure, &err);

    for (size_t i = 0; i < GROWTHS && r == 0; i++) {
        const uint64_t from = clock_nsec(CLOCK_MONOTONIC);

        r = client_call(client, WIRE_METHOD_GROW, &grow, CALL_USEC, &reply, &failure, &err);
        took[i] = clock_nsec(CLOCK_MONOTONIC) - from;
    }
    if (r < 0) {
        say(test, ROW_FAILED, "latency: growth", "journalctl -u allotd", "%s", err.text);
        return;
    }
    say_times(test, "latency: growth", took, GROWTHS);
    grow.bytes = limit_bytes;
    r = client_call(client, WIRE_METHOD_GROW, &grow, CALL_USEC, &reply, &failure, &err);
    if (r < 0 && failure.code == FAILURE_NO_MEMORY)
        say(test, ROW_PASSED, "tier 4: growth beyond the limit", NULL, "is refused");
    else
        say(test, ROW_FAILED, "tier 4: growth beyond the limit", "send the transcript", "%s",
            r < 0 ? err.text : "was granted");
}

static void try_leases(struct selftest *test, struct client *client,
                       const struct wire_device *device) {
    cleanup(freep) char *uuid = strdup(device->uuid);
    const uint64_t bytes = device->context_bytes + ROOM_BYTES;
    uint64_t took[LEASES], lease = 0;
    struct failure failure = {};
    struct allot_error err = {};

    for (size_t i = 0; uuid && i < LEASES; i++) {
        cleanup(freep) char *token = NULL;
        const uint64_t from = clock_nsec(CLOCK_MONOTONIC);
        const int r = acquire(client, uuid, bytes, &lease, &token, &failure, &err);

        if (r < 0) {
            const bool is_denied = failure.code == FAILURE_DENIED;

            say(test, is_denied ? ROW_SKIPPED : ROW_FAILED, "latency: request to grant",
                is_denied ? NULL : "free memory on this card, and try again", "%s", err.text);
            return;
        }
        took[i] = clock_nsec(CLOCK_MONOTONIC) - from;
        if (i + 1 == LEASES)
            try_growth(test, client, uuid, lease, token, bytes);
        release(client, lease);
    }
    say_times(test, "latency: request to grant", took, LEASES);
}

/* A job of one device under the guard: gpuctl run, as everybody has it. */
static void try_job(struct selftest *test, const struct wire_device *device) {
    char amount[32];
    const char *argv[] = { "/proc/self/exe",
                           "run",
                           "--quiet",
                           "--wait=60s",
                           "--name",
                           "gpuctl-selftest",
                           "--devices",
                           device->uuid,
                           "--mem",
                           amount,
                           "--",
                           test->helper,
                           "lease",
                           test->ctl->driver,
                           NULL };

    snprintf(amount, sizeof(amount), "%" PRIu64 "B",
             (device->context_bytes + ROOM_BYTES) / PAGE_BYTES * PAGE_BYTES);
    snprintf(test->prefix, sizeof(test->prefix), "GPU %" PRIu64 ", ", device->index);
    if (test->ctl->socket)
        setenv("ALLOT_SOCKET", test->ctl->socket, true);
    run_part(test, "job", "\"gpuctl explain\" says why; free memory on this card, and try again",
             argv);
    *test->prefix = '\0';
}

static void try_daemon(struct selftest *test) {
    cleanup(client_freep) struct client *client = NULL, *calls = NULL;
    const struct wire_box *box;
    struct allot_error err = {};
    union wire_reply reply;
    unsigned n_tried = 0;

    if (client_new(&client, test->ctl->socket, &err) < 0 || client_connect(client, &err) < 0 ||
        client_call(client, WIRE_METHOD_GET_BOX, NULL, CALL_USEC, &reply, NULL, &err) < 0) {
        say(test, ROW_SKIPPED, "allotd", NULL, "leases and tiers are not tried: %s", err.text);
        run_helper(test, "memory without a lease", "memory");
        return;
    }
    box = reply.get_box.box;
    if (transcript_hide_box(&test->transcript, box) < 0)
        return say(test, ROW_FAILED, "allotd", NULL, "out of memory");
    say(test, ROW_PASSED, "allotd", NULL, "%s, mode %s", box->version,
        box->mode == WIRE_BOX_LOCKED ? "locked" : "open");
    for (size_t i = 0; i < box->n_tiers; i++)
        say(test, ROW_PASSED, "tier", NULL, "%" PRIu64 " %s: %s%s%s", box->tiers[i].number,
            box->tiers[i].name, box->tiers[i].proven ? "proven" : "absent",
            *box->tiers[i].detail ? ", " : "", box->tiers[i].detail);
    /* On a second connection: the box is the first one's until its next call. */
    if (client_new(&calls, test->ctl->socket, &err) < 0 || client_connect(calls, &err) < 0)
        return say(test, ROW_FAILED, "allotd", NULL, "%s", err.text);
    if (!try_looks(test, calls))
        return;
    for (size_t i = 0; i < box->n_devices && n_tried < DEVICES; i++) {
        const struct wire_device *d = &box->devices[i];

        if (d->mig_enabled && d->kind == WIRE_DEVICE_GPU)
            continue;
        if (d->state != WIRE_DEVICE_READY) {
            say(test, ROW_SKIPPED, "device", NULL, "GPU %" PRIu64 " is not ready", d->index);
            continue;
        }
        if (n_tried++ == 0)
            try_leases(test, calls, d);
        try_job(test, d);
    }
    if (n_tried == 0)
        say(test, ROW_FAILED, "job", "gpuctl status says why", "no device is ready");
}

int selftest_run(const struct gpuctl *ctl, const char *transcript) {
    struct selftest test = { .ctl = ctl,
                             .deadline_usec = clock_usec(CLOCK_MONOTONIC) + WHOLE_USEC };
    const uint64_t from = clock_usec(CLOCK_MONOTONIC);
    struct allot_error err = {};
    char took[SHOW_SIZE];
    struct utsname kernel;
    int r;

    if (!installed_find(test.helper, "gpuctl-selftest", GPUCTL_SELFTEST))
        return gpuctl_complain(EXIT_FAILED,
                               "%s is missing: it belongs to the same package as gpuctl",
                               GPUCTL_SELFTEST);
    if (transcript_open(&test.transcript, transcript, &err) < 0) {
        transcript_close(&test.transcript);
        return gpuctl_complain(EXIT_FAILED, "%s", err.text);
    }
    term_paragraph(
        &ctl->term, STYLE_DIM, 0,
        "This takes less than five minutes and a few hundred MiB on each card, and does not "
        "disturb other programs.");
    fflush(ctl->term.out);
    uname(&kernel);
    transcript_write(&test.transcript, "gpuctl %s self-test, %s %s %s, as %s\n\n", ALLOT_VERSION,
                     kernel.sysname, kernel.release, kernel.machine,
                     geteuid() == 0 ? "root" : "a user");
    run_helper(&test, "NVML", "nvml");
    run_helper(&test, "visibility", "visible");
    try_daemon(&test);

    show_age(0, clock_usec(CLOCK_MONOTONIC) - from, took);
    transcript_write(&test.transcript, "\n%u passed, %u failed, %u skipped, in %s\n",
                     test.counts[ROW_PASSED], test.counts[ROW_FAILED], test.counts[ROW_SKIPPED],
                     took);
    printf("%u passed, %u failed, %u skipped, in %s.\n", test.counts[ROW_PASSED],
           test.counts[ROW_FAILED], test.counts[ROW_SKIPPED], took);
    r = transcript_close(&test.transcript);
    if (r < 0)
        return gpuctl_complain(EXIT_FAILED, "the transcript could not be written: %s",
                               strerror(-r));
    if (transcript)
        term_paragraph(
            &ctl->term, STYLE_PLAIN, 0,
            "The transcript names no user, host or job, and no card by its UUID. Read it "
            "before you send it.");
    return test.counts[ROW_FAILED] ? EXIT_UNSOUND : EXIT_OK;
}
