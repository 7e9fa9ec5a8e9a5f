/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Client: one connection to allotd, from the caller's side.
 *
 * Used by one thread at a time; threads that share a client need a lock of their own. It starts no
 * threads, installs no signal handlers, never raises SIGPIPE (MSG_NOSIGNAL), keeps its descriptor
 * close-on-exec and above 2, and preserves the caller's errno. Where the program closes the
 * descriptor, the connection is lost, and the number is left to the program. After fork() the child
 * must not use its parent's connection: it calls client_abandon() and connects again.
 *
 * Replies on one connection arrive in order, so a call that waits or streams needs a connection of
 * its own. Any failure of the connection (the daemon ended, its answer made no sense, a call timed
 * out) closes it; calls then return -ENOTCONN until it is connected again. client_is_connected()
 * tells.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "wire/varlink.h"

#define CLIENT_SOCKET_DEFAULT "/run/allot/io.allot"

struct client;

/*
 * Make a client that is not connected yet. `path` NULL: ALLOT_SOCKET of the environment (not in a
 * setuid program), otherwise CLIENT_SOCKET_DEFAULT. -ENAMETOOLONG if the path does not fit a socket
 * address; -ENOMEM.
 */
int client_new(struct client **ret, const char *path, struct allot_error *err);
struct client *client_free(struct client *client); /* accepts NULL, returns NULL */
DEFINE_FREEP(struct client, client_freep, client_free)

const char *client_path(const struct client *client);

/*
 * Try once, without waiting; 0 also if it is connected already. -ENOENT or -ECONNREFUSED: no daemon
 * listens; -EACCES; -EAGAIN: the daemon's backlog is full. The text says what to do.
 */
int client_connect(struct client *client, struct allot_error *err);

/*
 * Try again and again for at most `timeout_usec` (UINT64_MAX: for ever). Pauses grow from 5 ms to
 * 200 ms, after ten seconds to 1 s, and are shortened at random so that a thousand clients do not
 * come at once. Ends early with -ECANCELED when `cancel_fd` (-1: none) becomes readable, and with
 * any error that waiting cannot cure, such as -EACCES. -ETIMEDOUT has the text of the last attempt.
 * After NotRunning there is a pause before the first attempt, too: each attempt starts the daemon.
 */
int client_reconnect(struct client *client, uint64_t timeout_usec, int cancel_fd,
                     struct allot_error *err);

/*
 * Whether the last answer was NotRunning: a daemon that cannot start has ended the connection with
 * a reason. The call returned -ECONNRESET, with that reason in `err`, as it does when a daemon ends
 * during a call: callers that wait for a daemon to come back wait in this case, too.
 */
bool client_is_put_off(const struct client *client);

bool client_is_connected(const struct client *client);
void client_close(struct client *client);   /* end the connection; the client can connect again */
void client_abandon(struct client *client); /* in a child: leave the connection to the parent */
int client_fd(const struct client *client); /* for poll; -1: not connected */

/* Set a second descriptor that ends waiting as `cancel_fd` does; -1, the initial value: none. */
void client_heed(struct client *client, int fd);
/* Close the sending half: this cancels a call that waits (docs/wire.md). Answers that the daemon
 * sent before it noticed can still be received; then it closes the connection. */
void client_end_sending(struct client *client);
/* Close both halves: the daemon can send no more answers, and answers that it sent before can still
 * be received, without waiting. */
void client_hang_up(struct client *client);

/* The error for a daemon that accepts connections but does not answer: -ENOTCONN. */
int client_silent(const char *path, struct allot_error *err);

/*
 * Call and wait for the one reply. `parameters`: the struct of the method's call, or NULL. `ret`
 * may be NULL; it, and `failure` (may be NULL), live until the next call on this client. 0;
 * -ETIMEDOUT (UINT64_MAX: never), which closes the connection; -ENOTCONN, -ECONNRESET: the daemon
 * ended; or another error of the socket. If the daemon answers with a failure, returns its
 * failure_errno() and sets `failure->code`; for all other errors that is FAILURE_NONE. `err` has
 * the sentence in each case.
 */
int client_call(struct client *client, enum wire_method method, const void *parameters,
                uint64_t timeout_usec, union wire_reply *ret, struct failure *failure,
                struct allot_error *err);

/*
 * The parts of a call, for streams and pipelines. Send: hands the bytes to the kernel, and waits
 * for room if necessary. Receive: the next reply to `method`, waiting at most `timeout_usec`; 0
 * does not wait: -EAGAIN if there is no whole reply, then poll client_fd() for reading. > 0: more
 * replies of this call follow; 0: it was the last; errors as in client_call(), but -ETIMEDOUT, and
 * -ECANCELED by `cancel_fd` (-1: none), leave the connection as it is.
 */
int client_send(struct client *client, enum wire_method method, const void *parameters,
                enum varlink_flags flags, struct allot_error *err);
int client_receive(struct client *client, enum wire_method method, uint64_t timeout_usec,
                   int cancel_fd, union wire_reply *ret, struct failure *failure,
                   struct allot_error *err);
