/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/hand/serve.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/hand/message_check.h"

#define QUESTION_SECONDS 120

static int find_socket(void) {
    static_assert(HAND_FD == SD_LISTEN_FDS_START, "systemd passes it as allotd does");

    if (sd_is_socket(HAND_FD, AF_UNIX, SOCK_SEQPACKET, 0) <= 0)
        return -EINVAL;
    /* Children have nothing to say. */
    return fcntl(HAND_FD, F_SETFD, FD_CLOEXEC) < 0 ? -errno : HAND_FD;
}

static void exit_with(const char *help, bool is_asked) {
    fputs(help, is_asked ? stdout : stderr);
    exit(is_asked ? EXIT_SUCCESS : 2);
}

int serve_begin(int argc, char **argv, const char *name, const char *help) {
    static const struct option options[] = {
        { "help", no_argument, NULL, 'h' },
        { "version", no_argument, NULL, 'V' },
        { 0 },
    };
    int c, socket;

    while ((c = getopt_long(argc, argv, "h", options, NULL)) >= 0) {
        if (c != 'V')
            exit_with(help, c == 'h');
        printf("%s %s\n", name, ALLOT_VERSION);
        exit(EXIT_SUCCESS);
    }
    socket = find_socket();
    if (optind < argc || socket < 0)
        exit_with(help, false);
    return socket;
}

/* Only the socket is shared between threads, and each message is one send. */
static int send_message(const struct serve *serve, const void *message, size_t size) {
    return send(serve->socket, message, size, MSG_NOSIGNAL) == (ssize_t)size ? 0 : -EPIPE;
}

int serve_send(struct serve *serve, union hand_message *row) {
    row->head.serial = row->head.kind == HAND_EVENT ? 0 : serve->serial;
    return send_message(serve, row, hand_size(row->head.kind));
}

static int greet(struct serve *serve, const struct hand_hello *hello, struct allot_error *err) {
    if (hello->abi != HAND_ABI)
        return error_set(err, -EPROTO,
                         "allotd and its helpers are of different builds: restart allotd");
    serve->is_greeted = true;
    return serve->greeted(serve, (enum driver_choice)hello->driver, err);
}

/* One message; 0 to go on, 1 when allotd is gone. */
static int serve_one(struct serve *serve) {
    union hand_message question;
    struct hand_answer_row row;
    struct allot_error err = { 0 };
    ssize_t n;
    int r;

    n = recv(serve->socket, &question, sizeof(question), MSG_TRUNC);
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    if (n == 0)
        return 1;
    if (!message_check_question(&question, (size_t)n, serve->role) ||
        serve->is_greeted == (question.head.kind == HAND_HELLO))
        return -EPROTO;
    serve->serial = question.head.serial;
    memset(&row, 0, sizeof(row)); /* padding too, so that none of our memory leaks */
    alarm(QUESTION_SECONDS);
    r = question.head.kind == HAND_HELLO ? greet(serve, &question.hello, &err)
                                         : serve->answer(serve, &question, &row, &err);
    alarm(0);
    row.head = (struct hand_head){ .kind = HAND_ANSWER, .serial = serve->serial };
    row.r = r;
    if (r < 0)
        memcpy(row.text, err.text, sizeof(row.text));
    r = send_message(serve, &row, sizeof(row));
    return r < 0 || row.r == -EPROTO ? 1 : 0;
}

int serve_run(struct serve *serve, int socket) {
    sigset_t none;
    int r;

    serve->socket = socket;
    sigemptyset(&none); /* allotd's own mask is of no use here */
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_DUMPABLE, 0);
    do
        r = serve_one(serve);
    while (r == 0);
    if (r < 0)
        fprintf(stderr, SD_ERR "the connection to allotd broke: %s\n", strerror(-r));
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
