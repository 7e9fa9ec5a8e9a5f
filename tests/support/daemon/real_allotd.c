/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/daemon/real_allotd.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "libclient/allot/lease.h"
#include "wire/client.h"

static void pause_a_little(void) {
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static void write_config(const char *path) {
    FILE *file = fopen(path, "we");

    ck_assert_ptr_nonnull(file);
    fputs("[defaults]\nsmall-leases = yes\n", file);
    ck_assert_int_eq(fclose(file), 0);
}

/* In the child. */
static void become(const char *program, const char *socket, const char *dir) {
    char config[PATH_MAX + 16], state[PATH_MAX + 16], db[PATH_MAX + 16], log[PATH_MAX + 16];
    int fd;

    snprintf(config, sizeof(config), "%s/conf", dir);
    snprintf(state, sizeof(state), "%s/state", dir);
    snprintf(db, sizeof(db), "%s/db", dir);
    snprintf(log, sizeof(log), "%s/log", dir);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, STDERR_FILENO);
    dup2(fd, STDOUT_FILENO);
    execl(program, program, "--driver", "sim", "--config", config, "--socket", socket,
          "--state-dir", state, "--db", db, (char *)NULL);
    _exit(127);
}

void real_allotd_start(struct real_allotd *ret, const struct sim_box *box, const char *program) {
    char config[PATH_MAX + 16];
    union wire_reply reply;

    *ret = (struct real_allotd){ 0 };
    ck_assert_int_lt(snprintf(ret->socket, sizeof(ret->socket), "%s/io.allot", box->dir), 100);
    snprintf(config, sizeof(config), "%s/conf", box->dir);
    write_config(config);
    unsetenv("ALLOT_LEASE");
    unsetenv("ALLOT_TOKEN");
    setenv("ALLOT_SOCKET", ret->socket, 1);
    ret->pid = fork();
    ck_assert_int_ge(ret->pid, 0);
    if (ret->pid == 0)
        become(program, ret->socket, box->dir);
    ck_assert_int_eq(client_new(&ret->client, NULL, NULL), 0);
    ck_assert_int_eq(client_reconnect(ret->client, 60000000, -1, NULL), 0);
    do
        ck_assert_int_eq(
            client_call(ret->client, WIRE_METHOD_GET_BOX, NULL, 60000000, &reply, NULL, NULL), 0);
    while (reply.get_box.box->n_devices == 0);
}

void real_allotd_stop(struct real_allotd *daemon) {
    client_free(daemon->client);
    kill(daemon->pid, SIGTERM);
    ck_assert_int_eq(waitpid(daemon->pid, NULL, 0), daemon->pid);
}

/* Until the next look. */
static const struct wire_box *look(struct real_allotd *daemon) {
    union wire_reply reply;

    ck_assert_int_eq(
        client_call(daemon->client, WIRE_METHOD_GET_BOX, NULL, 60000000, &reply, NULL, NULL), 0);
    return reply.get_box.box;
}

void real_allotd_await_waiting(struct real_allotd *daemon, size_t n) {
    while (look(daemon)->n_queue != n)
        pause_a_little();
}

void real_allotd_await_leases(struct real_allotd *daemon, size_t n) {
    cleanup(client_freep) struct client *last = NULL;

    /*
     * Connections are taken in their order: a client that is answered comes after all that were
     * made.
     */
    ck_assert_int_eq(client_new(&last, daemon->socket, NULL), 0);
    ck_assert_int_eq(client_reconnect(last, 60000000, -1, NULL), 0);
    ck_assert_int_eq(client_call(last, WIRE_METHOD_GET_BOX, NULL, 60000000, NULL, NULL, NULL), 0);
    while (look(daemon)->n_leases != n)
        pause_a_little();
}

uint64_t real_allotd_held(struct real_allotd *daemon, uint64_t except) {
    const struct wire_box *box = look(daemon);
    uint64_t sum = 0;

    for (size_t i = 0; i < box->n_leases; i++)
        for (size_t s = 0; box->leases[i].id != except && s < box->leases[i].n_shares; s++)
            if (strcmp(box->leases[i].shares[s].device, box->devices[0].uuid) == 0)
                sum += box->leases[i].shares[s].held_bytes;
    return sum;
}

struct allot_lease *real_allotd_fill(struct real_allotd *daemon, uint64_t spare_bytes) {
    return real_allotd_fill_gpu(daemon, 0, spare_bytes);
}

struct allot_lease *real_allotd_fill_gpu(struct real_allotd *daemon, unsigned gpu,
                                         uint64_t spare_bytes) {
    struct allot_lease_options options = ALLOT_LEASE_OPTIONS_INIT;
    const char *device = look(daemon)->devices[gpu].uuid;
    struct allot_error err = { 0 };
    struct allot_lease *filler;
    int r;

    options.name = "filler";
    options.amount.mode = ALLOT_LEASE_GROW;
    options.amount.permyriad = 10000;
    options.devices = &device;
    options.n_devices = 1;
    options.no_wait = true;
    r = allot_lease_acquire(&filler, &options, &err);
    ck_assert_msg(r == 0, "%s", err.text);
    for (uint64_t bytes = (uint64_t)1 << 34; bytes >= WIRE_GRANULE; bytes /= 2)
        while (allot_lease_grow(filler, NULL, bytes, 0, NULL) == 0)
            ;
    if (spare_bytes)
        ck_assert_int_eq(allot_lease_shrink(filler, NULL, spare_bytes, NULL), 0);
    return filler;
}

uint64_t real_allotd_filled(struct allot_lease *filler) {
    struct allot_lease_share share;

    ck_assert_uint_eq(allot_lease_shares(filler, &share, 1), 1);
    return share.held_bytes;
}
