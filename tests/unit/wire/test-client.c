/* SPDX-License-Identifier: Apache-2.0 */
/* The client against a server that is a thread of the test and says what the test tells it to. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "tests/support/suite.h"
#include "wire/client.h"
#include "wire/frame.h"

#define FOREVER UINT64_MAX

static char folder[64];
static char path[96];

static void folder_make(void) {
    strcpy(folder, "/tmp/allot-client-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/socket", folder);
}

static void folder_remove(void) {
    unlink(path);
    rmdir(folder);
}

static int listen_at(const char *where) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strcpy(address.sun_path, where);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(fd, 8), 0);
    return fd;
}

/* Takes one connection; for each NUL that comes in, the next line of the script goes out. */
struct server {
    pthread_t thread;
    int listener;
    const char *const *script; /* NULL at the end: the connection is closed */
    char heard[4096];          /* the calls, each ended by a line end */
};

static void *serve(void *argument) {
    struct server *server = argument;
    int fd = accept(server->listener, NULL, NULL);
    const char *const *line = server->script;
    size_t n = 0;
    char c;

    while (fd >= 0 && *line && read(fd, &c, 1) == 1) {
        if (n + 2 < sizeof(server->heard))
            server->heard[n++] = c ? c : '\n';
        if (!c) {
            if (send(fd, *line, strlen(*line) + 1, MSG_NOSIGNAL) < 0)
                break;
            line++;
        }
    }
    close(fd);
    return NULL;
}

static void server_start(struct server *server, const char *const *script) {
    *server = (struct server){ .script = script };
    server->listener = listen_at(path);
    ck_assert_int_eq(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void server_end(struct server *server) {
    ck_assert_int_eq(pthread_join(server->thread, NULL), 0);
    close(server->listener);
    unlink(path);
}

START_TEST(a_call_is_answered_or_fails_with_what_the_daemon_says) {
    static const char *const script[] = {
        "{\"parameters\":{\"held_bytes\":5,\"limit_bytes\":9}}",
        "{\"error\":\"io.allot.Manager.Timeout\",\"parameters\":{\"reason\":\"too "
        "long\",\"place\":2}}",
        "{\"parameters\":{}}",
        NULL,
    };
    const struct wire_grow grow = { .lease = 1, .device = "GPU-a", .bytes = 5 };
    struct allot_error err = { 0 };
    struct failure failure;
    struct server server;
    struct client *client;
    union wire_reply reply;

    folder_make();
    server_start(&server, script);
    ck_assert_int_eq(client_new(&client, path, &err), 0);
    ck_assert_str_eq(client_path(client), path);
    ck_assert_int_eq(client_call(client, WIRE_METHOD_GROW, &grow, FOREVER, &reply, NULL, &err),
                     -ENOTCONN);
    ck_assert_int_eq(client_connect(client, &err), 0);
    ck_assert_int_eq(client_connect(client, &err), 0);
    ck_assert_int_gt(client_fd(client), 2);
    ck_assert(fcntl(client_fd(client), F_GETFD) & FD_CLOEXEC);

    errno = 42;
    ck_assert_int_eq(client_call(client, WIRE_METHOD_GROW, &grow, FOREVER, &reply, &failure, &err),
                     0);
    ck_assert_uint_eq(reply.grow.limit_bytes, 9);
    ck_assert_int_eq(failure.code, FAILURE_NONE);

    /* The daemon's Timeout is an answer: the connection goes on. */
    ck_assert_int_eq(client_call(client, WIRE_METHOD_GROW, &grow, FOREVER, &reply, NULL, &err),
                     -ETIMEDOUT);
    ck_assert_str_eq(err.text, "too long");
    ck_assert(client_is_connected(client));
    ck_assert_int_eq(client_call(client, WIRE_METHOD_RELEASE, &(struct wire_release){ 1 }, FOREVER,
                                 NULL, NULL, NULL),
                     0);
    ck_assert_int_eq(client_call(client, WIRE_METHOD_GROW, &grow, FOREVER, &reply, &failure, &err),
                     -ECONNRESET);
    ck_assert_int_eq(failure.code, FAILURE_NONE);
    ck_assert_int_eq(client_fd(client), -1);
    ck_assert_int_eq(errno, 42);
    server_end(&server);
    ck_assert_ptr_eq(strstr(server.heard,
                            "{\"method\":\"io.allot.Manager.Grow\",\"parameters\":{\"lease\":1,"
                            "\"device\":\"GPU-a\",\"bytes\":5}}\n"),
                     server.heard);
    client_free(client);
    folder_remove();
}
END_TEST

START_TEST(a_stream_is_received_line_by_line) {
    struct wire_request request = { .name = "job" };
    struct allot_error err = { 0 };
    struct client *client;
    union wire_reply reply;
    int listener, fd, stop[2];

    folder_make();
    listener = listen_at(path);
    ck_assert_int_eq(client_new(&client, path, &err), 0);
    ck_assert_int_eq(client_connect(client, &err), 0);
    fd = accept(listener, NULL, NULL);
    ck_assert_int_eq(client_send(client, WIRE_METHOD_ACQUIRE, &(struct wire_acquire){ &request },
                                 VARLINK_MORE, &err),
                     0);
    ck_assert_int_eq(client_receive(client, WIRE_METHOD_ACQUIRE, 0, -1, &reply, NULL, &err),
                     -EAGAIN);
    ck_assert_int_eq(client_receive(client, WIRE_METHOD_ACQUIRE, 1000, -1, &reply, NULL, &err),
                     -ETIMEDOUT);
    ck_assert_int_eq(pipe(stop), 0);
    ck_assert_int_eq((int)write(stop[1], "", 1), 1);
    ck_assert_int_eq(
        client_receive(client, WIRE_METHOD_ACQUIRE, FOREVER, stop[0], &reply, NULL, &err),
        -ECANCELED);
    ck_assert(client_is_connected(client));

    dprintf(fd, "{\"parameters\":{\"place\":2,\"reason\":\"full\"},\"continues\":true}%c{\"param",
            0);
    ck_assert_int_eq(client_receive(client, WIRE_METHOD_ACQUIRE, FOREVER, -1, &reply, NULL, &err),
                     1);
    ck_assert_int_eq(reply.acquire.place.value, 2);
    ck_assert_str_eq(reply.acquire.reason, "full");
    ck_assert_int_eq(client_receive(client, WIRE_METHOD_ACQUIRE, 0, -1, &reply, NULL, &err),
                     -EAGAIN);
    dprintf(fd,
            "eters\":{\"grant\":{\"lease\":4,\"shares\":[],\"environment\":{},\"reason\":\"\"}}}%c",
            0);
    ck_assert_int_eq(client_receive(client, WIRE_METHOD_ACQUIRE, FOREVER, -1, &reply, NULL, &err),
                     0);
    ck_assert_uint_eq(reply.acquire.grant->lease, 4);

    /* Nonsense ends the connection. */
    dprintf(fd, "{nonsense%c", 0);
    ck_assert_int_eq(client_receive(client, WIRE_METHOD_ACQUIRE, FOREVER, -1, &reply, NULL, &err),
                     -EBADMSG);
    ck_assert(!client_is_connected(client));
    close(stop[0]);
    close(stop[1]);
    close(fd);
    close(listener);
    client_free(client);
    folder_remove();
}
END_TEST

START_TEST(a_call_that_times_out_ends_the_connection) {
    struct allot_error err = { 0 };
    struct client *client;
    int listener;

    folder_make();
    listener = listen_at(path);
    ck_assert_int_eq(client_new(&client, path, &err), 0);
    ck_assert_int_eq(client_connect(client, &err), 0);
    ck_assert_int_eq(client_call(client, WIRE_METHOD_GET_BOX, NULL, 1000, NULL, NULL, &err),
                     -ETIMEDOUT);
    ck_assert(!client_is_connected(client));
    close(listener);
    client_free(client);
    folder_remove();
}
END_TEST

static void *come_late(void *argument) {
    struct server *server = argument;

    server->listener = listen_at(path);
    return serve(server);
}

START_TEST(reconnecting_waits_for_the_daemon_and_can_be_cancelled) {
    static const char *const script[] = { "{\"parameters\":{}}", NULL };
    struct server server = { .script = script };
    struct allot_error err = { 0 };
    struct client *client;
    int stop[2];

    folder_make();
    ck_assert_int_eq(client_new(&client, path, &err), 0);
    ck_assert_int_eq(client_connect(client, &err), -ENOENT);
    ck_assert_ptr_nonnull(strstr(err.text, "ALLOT_SOCKET"));
    ck_assert_int_eq(client_reconnect(client, 20000, -1, &err), -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(err.text, path));
    ck_assert_int_eq(err.code, -ETIMEDOUT);
    ck_assert_int_eq(pipe(stop), 0);
    ck_assert_int_eq((int)write(stop[1], "", 1), 1);
    ck_assert_int_eq(client_reconnect(client, FOREVER, stop[0], &err), -ECANCELED);

    ck_assert_int_eq(pthread_create(&server.thread, NULL, come_late, &server), 0);
    ck_assert_int_eq(client_reconnect(client, FOREVER, -1, &err), 0);
    ck_assert_int_eq(client_call(client, WIRE_METHOD_RELOAD, NULL, FOREVER, NULL, NULL, &err), 0);
    client_close(client);
    server_end(&server);
    close(stop[0]);
    close(stop[1]);
    client_free(client);
    folder_remove();
}
END_TEST

START_TEST(a_daemon_that_cannot_start_says_why_and_is_waited_for) {
    static const char *const refused[] = {
        "{\"error\":\"io.allot.Manager.NotRunning\",\"parameters\":{\"reason\":\"conf:3: a "
        "typo\"}}",
        NULL,
    };
    static const char *const mended[] = { "{\"parameters\":{}}", NULL };
    struct allot_error err = { 0 };
    struct failure failure;
    struct server server;
    struct client *client;
    uint64_t begin;

    folder_make();
    server_start(&server, refused);
    ck_assert_int_eq(client_new(&client, path, &err), 0);
    ck_assert(!client_is_put_off(client));
    ck_assert_int_eq(client_connect(client, &err), 0);
    ck_assert_int_eq(client_call(client, WIRE_METHOD_RELEASE, &(struct wire_release){ 1 }, FOREVER,
                                 NULL, &failure, &err),
                     -ECONNRESET);
    /* A waiting client sees a restart, and the user sees the reason. */
    ck_assert_int_eq(failure.code, FAILURE_NONE);
    ck_assert_str_eq(err.text, "conf:3: a typo");
    ck_assert_int_eq(err.code, -ECONNRESET);
    ck_assert(!client_is_connected(client));
    ck_assert(client_is_put_off(client));
    server_end(&server);

    /* An attempt would start the daemon again: not at once, and not beyond the time allowed. */
    ck_assert_int_eq(client_reconnect(client, 0, -1, &err), -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(err.text, "systemctl status allotd"));
    server_start(&server, mended);
    begin = clock_usec(CLOCK_MONOTONIC);
    ck_assert_int_eq(client_reconnect(client, UINT64_MAX, -1, &err), 0);
    ck_assert_uint_ge(clock_usec(CLOCK_MONOTONIC) - begin, 100000);
    ck_assert_int_eq(client_call(client, WIRE_METHOD_RELEASE, &(struct wire_release){ 1 }, FOREVER,
                                 NULL, &failure, &err),
                     0);
    ck_assert(!client_is_put_off(client));
    client_free(client);
    server_end(&server);
    folder_remove();
}
END_TEST

START_TEST(the_path_comes_from_the_caller_the_environment_or_the_default) {
    struct allot_error err = { 0 };
    struct client *client;
    char name[300];

    unsetenv("ALLOT_SOCKET");
    ck_assert_int_eq(client_new(&client, NULL, &err), 0);
    ck_assert_str_eq(client_path(client), "/run/allot/io.allot");
    client_free(client);
    setenv("ALLOT_SOCKET", "/nowhere/s", 1);
    ck_assert_int_eq(client_new(&client, NULL, &err), 0);
    ck_assert_str_eq(client_path(client), "/nowhere/s");
    client_free(client);
    ck_assert_int_eq(client_new(&client, "/here", &err), 0);
    ck_assert_str_eq(client_path(client), "/here");
    client_free(client);
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    ck_assert_int_eq(client_new(&client, name, &err), -ENAMETOOLONG);
    name[108] = '\0';
    ck_assert_int_eq(client_new(&client, name, &err), -ENAMETOOLONG);
    ck_assert_ptr_nonnull(strstr(err.text, "at most 107 bytes"));
    name[107] = '\0';
    ck_assert_int_eq(client_new(&client, name, &err), 0);
    ck_assert_str_eq(client_path(client), name);
    client_free(client);
    ck_assert_ptr_null(client_free(NULL));
}
END_TEST

/* The server answers each call before it reads the next, with more than the sockets can hold. */
static void *serve_much(void *argument) {
    struct server *server = argument;
    int fd = accept(server->listener, NULL, NULL);
    size_t n_calls = 0;
    char calls[4096];
    ssize_t n;

    while (n_calls < 300 && (n = read(fd, calls, sizeof(calls))) > 0)
        for (ssize_t at = 0; at < n; at++) {
            if (calls[at])
                continue;
            n_calls++;
            for (int i = 0; i < 200; i++)
                if (send(fd, "                                                  ", 50,
                         MSG_NOSIGNAL) < 0)
                    break;
            dprintf(fd, "{\"parameters\":{\"held_bytes\":%zu,\"limit_bytes\":1}}%c", n_calls, 0);
        }
    close(fd);
    return NULL;
}

START_TEST(a_pipeline_does_not_stall_when_both_sides_have_much_to_say) {
    static char device[40000];
    const struct wire_grow grow = { .lease = 1, .device = device, .bytes = 5 };
    struct server server = { 0 };
    struct allot_error err = { 0 };
    struct client *client;
    union wire_reply reply;

    memset(device, 'd', sizeof(device) - 1);
    folder_make();
    server.listener = listen_at(path);
    ck_assert_int_eq(pthread_create(&server.thread, NULL, serve_much, &server), 0);
    ck_assert_int_eq(client_new(&client, path, &err), 0);
    ck_assert_int_eq(client_connect(client, &err), 0);
    for (int i = 0; i < 300; i++)
        ck_assert_msg(client_send(client, WIRE_METHOD_GROW, &grow, 0, &err) == 0, "%s", err.text);
    for (unsigned i = 1; i <= 300; i++) {
        ck_assert_msg(client_receive(client, WIRE_METHOD_GROW, FOREVER, -1, &reply, NULL, &err) ==
                          0,
                      "%s", err.text);
        ck_assert_uint_eq(reply.grow.held_bytes, i);
    }
    server_end(&server);
    client_free(client);
    folder_remove();
}
END_TEST

START_TEST(a_call_that_is_too_long_is_refused_here) {
    static char device[70000];
    const struct wire_grow grow = { .lease = 1, .device = device, .bytes = 5 };
    struct allot_error err = { 0 };
    struct client *client;
    int listener;

    memset(device, 'd', sizeof(device) - 1);
    folder_make();
    listener = listen_at(path);
    ck_assert_int_eq(client_new(&client, path, &err), 0);
    ck_assert_int_eq(client_connect(client, &err), 0);
    ck_assert_int_eq(client_send(client, WIRE_METHOD_GROW, &grow, 0, &err), -EMSGSIZE);
    ck_assert_str_eq(err.text, "Grow: a call of more than 64 KiB is not accepted");
    ck_assert(client_is_connected(client));
    close(listener);
    client_free(client);
    folder_remove();
}
END_TEST

static void *serve_without_end(void *argument) {
    struct server *server = argument;
    int fd = accept(server->listener, NULL, NULL);
    static char blanks[65536];

    memset(blanks, ' ', sizeof(blanks));
    while (send(fd, blanks, sizeof(blanks), MSG_NOSIGNAL) > 0)
        ;
    close(fd);
    return NULL;
}

START_TEST(an_answer_without_end_is_not_kept) {
    struct server server = { 0 };
    struct allot_error err = { 0 };
    struct client *client;
    char text[256];

    folder_make();
    server.listener = listen_at(path);
    ck_assert_int_eq(pthread_create(&server.thread, NULL, serve_without_end, &server), 0);
    ck_assert_int_eq(client_new(&client, path, &err), 0);
    ck_assert_int_eq(client_connect(client, &err), 0);
    ck_assert_int_eq(client_call(client, WIRE_METHOD_RELOAD, NULL, FOREVER, NULL, NULL, &err),
                     -EMSGSIZE);
    snprintf(text, sizeof(text), "the daemon at %s answered more than %d MiB", path,
             (int)(FRAME_REPLY_MAX / (1024 * 1024)));
    ck_assert_str_eq(err.text, text);
    ck_assert(!client_is_connected(client));
    ck_assert_int_eq(client_fd(client), -1);
    ck_assert_int_eq(client_call(client, WIRE_METHOD_RELOAD, NULL, FOREVER, NULL, NULL, &err),
                     -ENOTCONN);
    server_end(&server);
    client_free(client);
    folder_remove();
}
END_TEST

START_TEST(why_there_is_no_connection_is_said) {
    struct allot_error err = { 0 };
    struct client *client;
    int listener;

    folder_make();
    listener = listen_at(path);
    ck_assert_int_eq(client_new(&client, path, &err), 0);
    close(listener); /* a daemon that ended */
    ck_assert_int_eq(client_connect(client, &err), -ECONNREFUSED);
    ck_assert_ptr_nonnull(strstr(err.text, "no daemon answers at"));
    ck_assert_int_eq(client_reconnect(client, 0, -1, &err), -ETIMEDOUT);
    if (geteuid() == 0) {
        pid_t pid = fork();

        if (pid == 0) {
            ck_assert_int_eq(chmod(folder, 0700), 0);
            if (setuid(4711) < 0 || client_connect(client, &err) != -EACCES ||
                client_reconnect(client, FOREVER, -1, &err) != -EACCES ||
                !strstr(err.text, "ask the administrator"))
                _exit(1);
            _exit(0);
        }
        ck_assert_int_eq(waitpid(pid, &listener, 0), pid);
        ck_assert_int_eq(listener, 0);
    }
    client_free(client);
    ck_assert_int_eq(client_new(&client, folder, &err), 0); /* no socket at all */
    ck_assert_int_eq(client_connect(client, &err), -ECONNREFUSED);
    client_free(client);
    folder_remove();
}
END_TEST

/* A program that closed its standard input: the connection may have its number. */
START_TEST(any_descriptor_will_do) {
    static const char *const script[] = { "{\"parameters\":{}}", NULL };
    struct allot_error err = { 0 };
    struct server server;
    struct client *client;

    folder_make();
    server_start(&server, script);
    ck_assert_int_eq(client_new(&client, path, &err), 0);
    close(0);
    ck_assert_msg(client_connect(client, &err) == 0, "%s", err.text);
    ck_assert_int_eq(client_call(client, WIRE_METHOD_RELOAD, NULL, FOREVER, NULL, NULL, &err), 0);
    client_free(client);
    server_end(&server);
    folder_remove();
}
END_TEST

static unsigned count_open(void) {
    unsigned n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

enum end { ENDS_SENDING, HANGS_UP, CLOSES, ABANDONS };

/* What the daemon sees of a client that ends in this way: 0 the end, -1 nothing yet. */
static ssize_t end_of(int listener, enum end end) {
    struct client *client = NULL;
    ssize_t seen;
    char c;
    int fd;

    errno = EDOM;
    ck_assert_int_eq(client_new(&client, path, NULL), 0);
    ck_assert_int_eq(client_connect(client, NULL), 0);
    ck_assert_int_eq(errno, EDOM);
    fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    ck_assert_int_ge(fd, 0);
    ck_assert(client_is_connected(client) && client_fd(client) > 2);
    switch (end) {
    case ENDS_SENDING:
        client_end_sending(client);
        break;
    case HANGS_UP:
        client_hang_up(client);
        break;
    case CLOSES:
        client_close(client);
        break;
    default:
        client_abandon(client);
    }
    ck_assert_int_eq(errno, EDOM);
    ck_assert_int_eq(client_is_connected(client), end == ENDS_SENDING || end == HANGS_UP);
    seen = recv(fd, &c, 1, 0);
    /* Only the sending half was closed: what the daemon says still comes. */
    if (end == ENDS_SENDING)
        ck_assert_int_eq(send(fd, "x", 1, MSG_NOSIGNAL), 1);
    errno = EDOM;
    client_end_sending(client); /* also of one that is closed already */
    client_hang_up(client);
    client = client_free(client);
    ck_assert_ptr_null(client);
    ck_assert_int_eq(errno, EDOM);
    close(fd);
    return seen;
}

START_TEST(every_end_is_seen_leaves_nothing_open_and_keeps_errno) {
    int listener;
    unsigned n;

    folder_make();
    listener = listen_at(path);
    n = count_open();
    for (int round = 0; round < 3; round++)
        for (int end = ENDS_SENDING; end <= ABANDONS; end++) {
            ck_assert_int_eq(end_of(listener, (enum end)end), 0);
            ck_assert_uint_eq(count_open(), n);
        }
    ck_assert_ptr_null(client_free(NULL));
    close(listener);
    folder_remove();
}
END_TEST

SUITE("client", every_end_is_seen_leaves_nothing_open_and_keeps_errno,
      a_call_is_answered_or_fails_with_what_the_daemon_says, a_stream_is_received_line_by_line,
      a_call_that_times_out_ends_the_connection,
      reconnecting_waits_for_the_daemon_and_can_be_cancelled,
      a_daemon_that_cannot_start_says_why_and_is_waited_for,
      the_path_comes_from_the_caller_the_environment_or_the_default,
      a_pipeline_does_not_stall_when_both_sides_have_much_to_say,
      a_call_that_is_too_long_is_refused_here, an_answer_without_end_is_not_kept,
      any_descriptor_will_do, why_there_is_no_connection_is_said)
