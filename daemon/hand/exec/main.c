/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allot-hand: the privileged process. It loads nothing of NVIDIA's. daemon/hand/hand.h says what it
 * does and does not do.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hand/exec/find.h"
#include "daemon/hand/exec/lease_evidence.h"
#include "daemon/hand/exec/lock.h"
#include "daemon/hand/exec/probe.h"
#include "daemon/hand/exec/proc.h"
#include "daemon/hand/exec/scope.h"
#include "daemon/hand/exec/signal.h"
#include "daemon/hand/serve.h"

struct hand_work {
    enum driver_choice driver; /* for allot-limit */
};

static int greeted(struct serve *serve, enum driver_choice driver, struct allot_error *err) {
    struct hand_work *work = serve->userdata;

    work->driver = driver;
    return 0;
}

static int describe(struct serve *serve, const struct hand_describe_question *question) {
    for (uint32_t i = 0; i < question->n; i++) {
        union hand_message row;
        int r;

        memset(&row, 0, sizeof(row)); /* padding too, so that none of our memory leaks */
        row.head.kind = HAND_PROCESS;
        row.process.process.pid = question->pids[i];
        hand_proc_read(&row.process.process, "/proc");
        r = serve_send(serve, &row);
        if (r < 0)
            return r;
    }
    return 0;
}

static int answer(struct serve *serve, const union hand_message *question,
                  struct hand_answer_row *ret, struct allot_error *err) {
    const struct hand_work *work = serve->userdata;

    switch (question->head.kind) {
    case HAND_DESCRIBE:
        return describe(serve, &question->describe);
    case HAND_CONFINE:
        return scope_confine(work->driver, &question->confine, &ret->confined, err);
    case HAND_SIGNAL:
        return signal_send(&question->signal.signal, &ret->signalled, err);
    case HAND_FIND:
        return find_processes(&question->find.find, &ret->found, err);
    case HAND_PROBE:
        probe_all(work->driver, &question->probe, &ret->probes);
        return 0;
    case HAND_LOCK:
        return lock_set(question->lock.locked != 0, err);
    default:
        return error_set(err, -EPROTO, "there is no request of kind %u", question->head.kind);
    }
}

static const char help[] =
    "usage: allot-hand\n\n"
    "The privileged part of allotd, which starts it: by allot-hand.socket, or by itself\n"
    "on a private box. It does nothing without allotd; see allotd(8).\n";

int main(int argc, char **argv) {
    struct hand_work work = { 0 };
    struct serve serve = {
        .role = HAND_ROLE_HAND, .greeted = greeted, .answer = answer, .userdata = &work
    };
    int socket = serve_begin(argc, argv, "allot-hand", help);

    lease_evidence_init(socket);
    return serve_run(&serve, socket);
}
