/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allot-hand: the privileged process. One question at a time from allotd, over the one socket it
 * was started with; it ends with the connection. What it does and does not: daemon/hand/hand.h.
 *
 * A question that takes longer than QUESTION_SECONDS ends the process, unless it is stuck in the
 * kernel: allotd has given it up long before.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/hand/exec/lock.h"
#include "daemon/hand/exec/probe.h"
#include "daemon/hand/exec/nvml_reader.h"
#include "daemon/hand/exec/scope.h"
#include "daemon/hand/exec/signal.h"
#include "daemon/hand/wire.h"

#define QUESTION_SECONDS 120

struct work {
    int socket;
    struct nvml_reader *reader; /* NULL until HELLO */
    uint64_t serial;            /* of the question at hand */
};

static int send_message(const struct work *work, const void *message, size_t size) {
    return send(work->socket, message, size, MSG_NOSIGNAL) == (ssize_t)size ? 0 : -EPIPE;
}

static int send_device(void *userdata, const struct sample_device *device) {
    struct work *work = userdata;
    struct hand_device_row row;

    memset(&row, 0, sizeof(row)); /* padding too: nothing of our memory goes out */
    row.head = (struct hand_head){ .kind = HAND_DEVICE, .serial = work->serial };
    row.device = *device;
    return send_message(work, &row, sizeof(row));
}

static int send_process(void *userdata, const struct sample_process *process) {
    struct work *work = userdata;
    struct hand_process_row row;

    memset(&row, 0, sizeof(row));
    row.head = (struct hand_head){ .kind = HAND_PROCESS, .serial = work->serial };
    row.process = *process;
    return send_message(work, &row, sizeof(row));
}

/* From the listener's thread: the socket is all that is shared, and a message is sent in one. */
static void send_event(void *userdata, const struct sample_event *event) {
    struct work *work = userdata;
    struct hand_event_row row;

    memset(&row, 0, sizeof(row));
    row.head.kind = HAND_EVENT;
    row.event = *event;
    send_message(work, &row, sizeof(row));
}

static int greet(struct work *work, const struct hand_hello *hello, struct allot_error *err) {
    struct nvml_reader_sink sink = {
        .userdata = work,
        .device = send_device,
        .process = send_process,
        .event = send_event,
    };

    if (work->reader)
        return error_set(err, -EPROTO, "HELLO comes once");
    if (hello->abi != HAND_ABI)
        return error_set(err, -EPROTO,
                         "allotd and allot-hand are of different builds: restart allotd");
    if (hello->driver > DRIVER_SIM)
        return error_set(err, -EPROTO, "there is no driver %u", hello->driver);
    return nvml_reader_new(&work->reader, (enum driver_choice)hello->driver, &sink);
}

/* A bool that came over a socket may hold anything. */
static bool is_bool(const bool *value) {
    unsigned char byte;

    memcpy(&byte, value, sizeof(byte));
    return byte <= 1;
}

/* Do what is asked and fill the answer. */
static int answer(struct work *work, union hand_message *question, struct hand_answer_row *ret,
                  struct allot_error *err) {
    if (question->head.kind == HAND_HELLO)
        return greet(work, &question->hello, err);
    switch (question->head.kind) {
    case HAND_KNOWN:
        nvml_reader_know(work->reader, &question->device.device);
        return 0;
    case HAND_CLOSE:
        return nvml_reader_close(work->reader, &question->close.gpu, question->close.closed != 0,
                                 err);
    case HAND_SAMPLE:
        return nvml_reader_sample(work->reader, &ret->sampled, err);
    case HAND_CONFINE:
        if (question->confine.confine.n_devices > HAND_DEVICES_MAX ||
            !is_bool(&question->confine.confine.want_scope) ||
            !is_bool(&question->confine.confine.want_limit))
            return error_set(err, -EPROTO, "a question that makes no sense");
        return scope_confine(work->reader, &question->confine.confine, &ret->confined, err);
    case HAND_SIGNAL:
        question->signal.signal.cgroup[sizeof(question->signal.signal.cgroup) - 1] = 0;
        if (!is_bool(&question->signal.signal.only_over) ||
            !is_bool(&question->signal.signal.as_user))
            return error_set(err, -EPROTO, "a question that makes no sense");
        return signal_send(work->reader, &question->signal.signal, &ret->signalled, err);
    case HAND_PROBE:
        probe_all(work->reader, &ret->probes);
        return 0;
    case HAND_LOCK:
        return lock_set(work->reader, question->lock.locked != 0, err);
    default:
        return error_set(err, -EPROTO, "no question of kind %u", question->head.kind);
    }
}

/* One message; 0 to go on, 1 when allotd is gone. */
static int serve(struct work *work) {
    union hand_message question;
    struct hand_answer_row row;
    struct allot_error err = { 0 };
    ssize_t n;
    int r;

    n = recv(work->socket, &question, sizeof(question), MSG_TRUNC);
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    if (n == 0)
        return 1;
    if ((size_t)n < sizeof(question.head) || (size_t)n != hand_size(question.head.kind) ||
        question.head.kind >= HAND_DEVICE || !work->reader != (question.head.kind == HAND_HELLO))
        return -EPROTO;
    work->serial = question.head.serial;
    memset(&row, 0, sizeof(row));
    alarm(QUESTION_SECONDS);
    r = answer(work, &question, &row, &err);
    alarm(0);
    row.head = (struct hand_head){ .kind = HAND_ANSWER, .serial = work->serial };
    row.r = r;
    if (r < 0)
        memcpy(row.text, err.text, sizeof(row.text));
    r = send_message(work, &row, sizeof(row));
    return r < 0 || row.r == -EPROTO ? 1 : 0;
}

static int usage(FILE *f) {
    fprintf(f,
            "usage: allot-hand\n\n"
            "The privileged part of allotd, which starts it: by allot-hand.socket, or by itself\n"
            "on a private box. It does nothing without allotd; see allotd(8).\n");
    return f == stdout ? EXIT_SUCCESS : 2;
}

/* The socket that systemd or allotd gave us. -EINVAL: there is none. */
static int find_socket(void) {
    int fd = sd_listen_fds(1) == 1 ? SD_LISTEN_FDS_START : HAND_FD;

    return sd_is_socket(fd, AF_UNIX, SOCK_SEQPACKET, 0) > 0 ? fd : -EINVAL;
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        { "help", no_argument, NULL, 'h' },
        { "version", no_argument, NULL, 'V' },
        { "driver", required_argument, NULL, 'd' },
        { "try-memory", required_argument, NULL, 't' },
        { 0 },
    };
    enum driver_choice driver = DRIVER_AUTO;
    struct work work = { 0 };
    sigset_t none;
    int c, r;

    while ((c = getopt_long(argc, argv, "h", options, NULL)) >= 0)
        switch (c) {
        case 'h':
            return usage(stdout);
        case 'V':
            puts("allot-hand " ALLOT_VERSION);
            return EXIT_SUCCESS;
        case 'd':
            if (driver_choice_parse(&driver, optarg) < 0)
                return usage(stderr);
            break;
        case 't':
            return probe_try_memory(driver, optarg);
        default:
            return usage(stderr);
        }
    if (optind < argc)
        return usage(stderr);
    work.socket = find_socket();
    if (work.socket < 0)
        return usage(stderr);
    sigemptyset(&none); /* allotd's own mask is of no use here */
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_DUMPABLE, 0);

    do
        r = serve(&work);
    while (r == 0);
    if (r < 0)
        fprintf(stderr, SD_ERR "the connection to allotd broke: %s\n", strerror(-r));
    /* Not nvml_reader_free(): it would wait for a driver that may not answer. */
    _exit(r < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
}
