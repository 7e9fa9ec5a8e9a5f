/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Serve: the loop of a helper. It answers one question at a time from allotd, over the socket that
 * it was started with, and ends with the connection.
 *
 * A question that takes longer than two minutes ends the process, unless it is stuck in the kernel:
 * allotd has given it up long before.
 */
#include "base/error.h"
#include "daemon/hand/wire.h"

struct serve {
    enum hand_role role;
    /* HELLO came: 0, or why this helper is of no use. */
    int (*greeted)(struct serve *serve, enum driver_choice driver, struct allot_error *err);
    /* Do what is asked, a checked question for `role`, and fill the answer. */
    int (*answer)(struct serve *serve, const union hand_message *question,
                  struct hand_answer_row *ret, struct allot_error *err);
    void *userdata;

    /* used by serve.c only */
    int socket;
    bool is_greeted;
    uint64_t serial; /* of the question at hand */
};

/* Read the command line of the program `name`, which takes --help (`help` is its text) and
 * --version alone. Returns the socket that systemd or allotd gave this process, or exits: after
 * --help and
 * --version, and where the call is wrong or there is no socket. */
int serve_begin(int argc, char **argv, const char *name, const char *help);

/* Until the end of the connection. The exit status. */
int serve_run(struct serve *serve, int socket);

/* Send a row of the answer at hand, or from any thread an event. Non-zero: allotd is gone. */
int serve_send(struct serve *serve, union hand_message *row);
