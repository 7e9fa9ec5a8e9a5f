/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's figures, each beside what bounds it, in one run: ./run bench daemon [--quick] [1-6]…
 *
 *   1  Grow, there and back, one client      beside a bare ping-pong over a Unix socket, both on
 *                                            one CPU, then both on two
 *   2  Grow, 64 clients that pipeline        beside the same loop with an empty handler
 *   3  1,000 clients × 10 leases on 16 devices, 100,000 random operations: books, p99 / median
 *   4  an idle daemon with 8 devices: CPU and memory
 *   5  a decision with 10,000 that wait      beside one with 10
 *   6  a restart with 1,000 leases, until all have re-attached
 *
 * Boxes, sockets and states are in a folder of their own, which is gone at the end. Measures that
 * are compared take turns, so that a busy machine hits both.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/random.h"
#include "bench/daemonworld.h"
#include "daemon/broker/broker.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "daemon/server/methods.h"
#include "wire/snapshot.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static bool is_quick;
static unsigned n_missed;

static void tell(const char *what, bool is_met, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void tell(const char *what, bool is_met, const char *format, ...) {
    va_list arguments;

    printf("%-44s ", what);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("  %s\n", is_met ? "met" : "MISSED");
    fflush(stdout);
    n_missed += !is_met;
}

/* The same loop, with nothing in it: reads the call and answers as a Grow is answered. */
static unsigned empty_handler(struct session *session, const struct varlink_call *varlink) {
    static const struct wire_grow_reply constant = { 1 << 21, 1 << 30 };

    if (varlink->method == WIRE_METHOD_GROW) {
        session_reply(session, varlink, &constant);
        return 1;
    }
    return methods_handle(session, varlink);
}

static void start_empty(struct world *world) {
    world->daemon = fork();
    if (world->daemon == 0) {
        char paths[5][512];
        struct manager *manager;
        struct allot_error err;

        world_hush(world);
        setenv("GPUSIM_BOX", world->box, 1);
        snprintf(paths[0], sizeof(paths[0]), "%s/conf", world->dir);
        snprintf(paths[1], sizeof(paths[1]), "%s/state", world->dir);
        snprintf(paths[2], sizeof(paths[2]), "%s/db", world->dir);
        snprintf(paths[3], sizeof(paths[3]), "%s/daemon/allot-hand", world_build);
        snprintf(paths[4], sizeof(paths[4]), "%s/daemon/allot-reader", world_build);
        log_open(LOG_WARNING);
        if (manager_new(&manager,
                        &(struct manager_options){ .config = paths[0],
                                                   .socket = world->socket,
                                                   .state_dir = paths[1],
                                                   .db = paths[2],
                                                   .driver = DRIVER_SIM,
                                                   .hand_program = paths[3],
                                                   .reader_program = paths[4],
                                                   .max_files = 8192 },
                        &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            _exit(1);
        }
        manager->handle = empty_handler;
        manager_run(manager, &err);
        _exit(0);
    }
}

/* ---- 1: there and back
 * ---------------------------------------------------------------------------- */

/* A process that sends back as much as a Grow is answered with, for as much as a Grow is asked by.
 */
static pid_t start_echo(int *ret_fd, size_t n_answer) {
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        bench_die("socketpair");
    pid = fork();
    if (pid == 0) {
        char data[4096];

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(pair[0]);
        memset(data, 'x', sizeof(data));
        for (;;) {
            ssize_t n = recv(pair[1], data, sizeof(data), 0);

            if (n <= 0)
                _exit(0);
            data[n_answer - 1] = 0;
            bench_put(pair[1], data, n_answer);
        }
    }
    close(pair[1]);
    *ret_fd = pair[0];
    return pid;
}

struct client {
    int fd;
    char grow[256], shrink[256];
    size_t n_grow, n_shrink;
};

/* Connect where `fd` is -1, acquire and attach; the two messages that go to and fro. */
static void client_begin(struct client *client, const struct world *world, int fd,
                         const char *amount) {
    char lease[32], token[64], device[GPUID_TEXT_SIZE];
    const char *grant;

    client->fd = fd >= 0 ? fd : world_connect(world);
    if (client->fd < 0)
        bench_die(world->socket);
    grant = bench_call(
        client->fd,
        "{\"method\":\"io.allot.Manager.Acquire\",\"parameters\":{\"request\":{\"amount\":"
        "%s,\"choose\":\"spread\"}}}",
        amount);
    bench_text(lease, sizeof(lease), grant, "lease");
    bench_text(token, sizeof(token), grant, "token");
    bench_text(device, sizeof(device), grant, "device");
    if (!strstr(bench_call(client->fd,
                           "{\"method\":\"io.allot.Manager.Attach\",\"parameters\":{\"lease\":%s,"
                           "\"token\":\"%s\"}}",
                           lease, token),
                "shares")) {
        errno = EBADMSG;
        bench_die("an answer");
    }
    client->n_grow = 1 + (size_t)snprintf(client->grow, sizeof(client->grow),
                                          "{\"method\":\"io.allot.Manager.Grow\",\"parameters\":{"
                                          "\"lease\":%s,\"device\":\"%s\",\"bytes\":2097152}}",
                                          lease, device);
    client->n_shrink =
        1 + (size_t)snprintf(client->shrink, sizeof(client->shrink),
                             "{\"method\":\"io.allot.Manager.Shrink\",\"parameters\":"
                             "{\"lease\":%s,\"device\":\"%s\",\"bytes\":2097152}}",
                             lease, device);
}

/* A client's Grow and its Shrink, `n` times: seconds for a Grow in the middle. */
static double bounce(const struct client *client, int fd, double *times, size_t n) {
    char answer[1024];

    for (size_t i = 0; i < n; i++) {
        double before = bench_now();

        bench_put(fd, client->grow, client->n_grow);
        bench_get(fd, answer, sizeof(answer));
        times[i] = bench_now() - before;
        if (strstr(answer, "error")) {
            errno = EBADMSG;
            bench_die(answer);
        }
        bench_put(fd, client->shrink, client->n_shrink);
        bench_get(fd, answer, sizeof(answer));
    }
    return bench_quantile(times, n, 0.5);
}

/*
 * Where the two sides sit decides more than what they do: on two CPUs that have nothing else to do
 * each message wakes a sleeping one, which can take ten times as long as all the rest, and left
 * alone the scheduler places a pair that waits in recv() otherwise than one that waits in
 * epoll_wait(). So the daemon and the echo sit on the same CPU, and we beside them or across.
 */
static void bench_round_trip(void) {
    enum { LAPS = 20 };
    size_t n = is_quick ? 500 : 2000;
    double bare[2][LAPS], grow[2][LAPS], *times = calloc(n, sizeof(*times));
    struct world world;
    struct client client;
    char answer[1024];
    size_t n_answer;
    pid_t echo;
    int fd, cpus[2];
    unsigned n_cpus = bench_cpus(cpus, 2);

    world_new(&world, "trip", 1);
    world_start(&world);
    world_wait(&world);
    client_begin(&client, &world, -1, "{\"mode\":\"grow\"}");
    bench_put(client.fd, client.grow, client.n_grow);
    n_answer = bench_get(client.fd, answer, sizeof(answer)) + 1;
    bench_put(client.fd, client.shrink, client.n_shrink);
    bench_get(client.fd, answer, sizeof(answer));
    echo = start_echo(&fd, n_answer);
    bench_pin(world.daemon, cpus[0]);
    bench_pin(echo, cpus[0]);
    for (unsigned lap = 0; lap < LAPS; lap++)
        for (unsigned across = 0; across < n_cpus; across++) {
            bench_pin(0, cpus[across]);
            bare[across][lap] = bounce(&client, fd, times, n);
            grow[across][lap] = bounce(&client, client.fd, times, n);
        }
    bench_pin(0, -1);
    for (unsigned across = 0; across < n_cpus; across++) {
        double ours = bench_quantile(grow[across], LAPS, 0.5);
        double least = bench_quantile(bare[across], LAPS, 0.5);

        tell(across ? "1  the same, across two CPUs (at most 2x)"
                    : "1  Grow and back, on one CPU (at most 2x)",
             ours <= 2 * least, "%.1f us, bare %.1f us: %.2fx", ours * 1e6, least * 1e6,
             ours / least);
    }
    if (n_cpus < 2)
        printf("%-44s not measured: there is one CPU\n", "1  the same, across two CPUs");
    close(fd);
    waitpid(echo, NULL, 0);
    close(client.fd);
    world_stop(&world, SIGTERM);
    free(times);
}

/* ---- 2: many that pipeline
 * -------------------------------------------------------------------------- */

#define CROWD 64
#define DEPTH 16 /* pairs of Grow and Shrink under way for each client */

/* Calls answered per second of the daemon's own CPU time, and of the clock's. */
static double pump(struct client *clients, size_t n_calls) {
    static char batch[CROWD][DEPTH * 512];
    size_t n_batch[CROWD], left[CROWD], n_open = CROWD;
    struct pollfd polls[CROWD];
    double began;

    for (unsigned i = 0; i < CROWD; i++) {
        n_batch[i] = 0;
        for (unsigned j = 0; j < DEPTH; j++) {
            memcpy(batch[i] + n_batch[i], clients[i].grow, clients[i].n_grow);
            n_batch[i] += clients[i].n_grow;
            memcpy(batch[i] + n_batch[i], clients[i].shrink, clients[i].n_shrink);
            n_batch[i] += clients[i].n_shrink;
        }
        polls[i] = (struct pollfd){ clients[i].fd, POLLIN, 0 };
        left[i] = n_calls / CROWD / (2 * DEPTH) * (2 * DEPTH);
    }
    began = bench_now();
    for (unsigned i = 0; i < CROWD; i++)
        bench_put(clients[i].fd, batch[i], n_batch[i]);
    while (n_open > 0) {
        if (poll(polls, CROWD, 60000) <= 0)
            bench_die("no answer");
        for (unsigned i = 0; i < CROWD; i++) {
            char data[1 << 16];
            ssize_t n;

            if (!(polls[i].revents & POLLIN))
                continue;
            n = recv(clients[i].fd, data, sizeof(data), 0);
            if (n <= 0)
                bench_die("the daemon is gone");
            for (ssize_t j = 0; j < n; j++) {
                if (data[j] != 0)
                    continue;
                left[i]--;
                if (left[i] % (2 * DEPTH) == 0 && left[i] > 0)
                    bench_put(clients[i].fd, batch[i], n_batch[i]);
            }
            if (left[i] == 0) {
                polls[i].fd = -1;
                n_open--;
            }
        }
    }
    return (double)(n_calls / CROWD / (2 * DEPTH) * (2 * DEPTH) * CROWD) / (bench_now() - began);
}

static void bench_throughput(void) {
    enum { LAPS = 7 };
    size_t n = is_quick ? 40000 : 200000;
    struct world full, empty;
    struct client clients[CROWD], idles[CROWD];
    double with[LAPS], without[LAPS];

    world_new(&full, "full", 4);
    world_new(&empty, "empty", 4);
    world_start(&full);
    start_empty(&empty);
    world_wait(&full);
    world_wait(&empty);
    for (unsigned i = 0; i < CROWD; i++) {
        client_begin(&clients[i], &full, -1, "{\"mode\":\"grow\"}");
        client_begin(&idles[i], &empty, -1, "{\"mode\":\"grow\"}");
        /* The empty handler answers Grow alone. */
        memcpy(idles[i].shrink, idles[i].grow, sizeof(idles[i].grow));
        idles[i].n_shrink = idles[i].n_grow;
    }
    for (unsigned lap = 0; lap < LAPS; lap++) {
        without[lap] = pump(idles, n);
        with[lap] = pump(clients, n);
    }
    tell("2  Grow, 64 clients pipelining (at least 50%)",
         bench_quantile(with, LAPS, 0.5) >= 0.5 * bench_quantile(without, LAPS, 0.5),
         "%.0f/s, empty handler %.0f/s: %.0f%%", bench_quantile(with, LAPS, 0.5),
         bench_quantile(without, LAPS, 0.5),
         100 * bench_quantile(with, LAPS, 0.5) / bench_quantile(without, LAPS, 0.5));
    for (unsigned i = 0; i < CROWD; i++) {
        close(clients[i].fd);
        close(idles[i].fd);
    }
    world_stop(&full, SIGTERM);
    world_stop(&empty, SIGTERM);
}

/* ---- 3: a thousand clients
 * -------------------------------------------------------------------------- */

#define CLIENTS 1000
#define LEASES  10

/* The sum of the interface file on every device; how many are wrong. */
static unsigned book_errors(const struct world *world) {
    cleanup(snapshot_freep) struct snapshot *snapshot = NULL;
    struct allot_error err;
    int fd = world_connect(world);
    const char *at;
    unsigned n_wrong = 0;
    size_t n;

    at = strstr(bench_call(fd, "{\"method\":\"io.allot.Manager.GetBox\"}"), "\"box\":");
    close(fd);
    n = at ? strlen(at + 6) : 0;
    while (n > 0 && at[6 + n - 1] == '}' && snapshot_read(&snapshot, at + 6, n, &err) < 0)
        n--;
    if (!snapshot) {
        errno = EBADMSG;
        bench_die("GetBox");
    }
    for (size_t i = 0; i < snapshot->box.n_devices; i++) {
        const struct wire_device *device = &snapshot->box.devices[i];
        uint64_t leased = 0;

        for (size_t j = 0; j < snapshot->box.n_leases; j++)
            for (size_t k = 0; k < snapshot->box.leases[j].n_shares; k++) {
                const struct wire_share *share = &snapshot->box.leases[j].shares[k];

                if (strcmp(share->device, device->uuid) == 0)
                    leased += MAX(share->guaranteed_bytes, share->held_bytes);
            }
        n_wrong += leased != device->leased_bytes || device->overcommitted_bytes != 0 ||
                   device->usable_bytes != device->unmanaged_bytes + device->releasing_bytes +
                                               device->leased_bytes + device->free_bytes;
    }
    return n_wrong;
}

static void bench_many(void) {
    size_t n = is_quick ? 50000 : 100000;
    struct client *clients = calloc(CLIENTS * LEASES, sizeof(*clients));
    double *times = calloc(n, sizeof(*times)), median, tail;
    unsigned n_wrong = 0;
    uint64_t seed = 42;
    struct world world;
    char answer[4096];

    world_new(&world, "many", 16);
    world_start(&world);
    world_wait(&world);
    for (unsigned i = 0; i < CLIENTS; i++)
        for (unsigned j = 0; j < LEASES; j++) /* all leases of a client by its one connection */
            client_begin(&clients[i * LEASES + j], &world, j > 0 ? clients[i * LEASES].fd : -1,
                         "{\"mode\":\"grow\",\"max_bytes\":62914560}");
    for (size_t i = 0; i < n; i++) {
        struct client *client = &clients[random_next(&seed) % (CLIENTS * LEASES)];
        uint64_t what = random_next(&seed) % 100;
        const char *data = what < 55 ? client->grow : client->shrink;
        double before = bench_now();

        if (what < 98)
            bench_put(client->fd, data, what < 55 ? client->n_grow : client->n_shrink);
        else { /* one that cannot be met, and is told so */
            static const char *const text =
                "{\"method\":\"io.allot.Manager.Acquire\",\"parameters\":{\"request\":{\"wait\":"
                "false,\"gpus\":16,\"amount\":{\"mode\":\"exclusive\"}}}}";

            bench_put(client->fd, text, strlen(text) + 1);
        }
        bench_get(client->fd, answer, sizeof(answer));
        times[i] = bench_now() - before;
        if (i % (n / 10) == 0)
            n_wrong += book_errors(&world);
    }
    n_wrong += book_errors(&world);
    median = bench_quantile(times, n, 0.5);
    tail = bench_quantile(times, n, 0.99);
    tell("3  10,000 leases, random operations", n_wrong == 0 && tail <= 20 * median,
         "%u book errors, median %.1f us, p99 %.1f us: %.1fx", n_wrong, median * 1e6, tail * 1e6,
         tail / median);
    for (unsigned i = 0; i < CLIENTS; i++)
        close(clients[i * LEASES].fd);
    world_stop(&world, SIGTERM);
    free(clients);
    free(times);
}

/* ---- 4: idle
 * ------------------------------------------------------------------------------------------ */

/* Seconds of CPU of all its threads, to the nanosecond: ticks would miss short bursts. */
static double cpu_of(pid_t pid, double *ret_mib) {
    char path[320], line[256];
    double seconds = 0;
    struct dirent *entry;
    FILE *file;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    dir = opendir(path);
    if (!dir)
        bench_die(path);
    while ((entry = readdir(dir))) {
        unsigned long long nsec;

        snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)pid, entry->d_name);
        file = fopen(path, "re");
        if (file && fscanf(file, "%llu", &nsec) == 1)
            seconds += (double)nsec / 1e9;
        if (file)
            fclose(file);
    }
    closedir(dir);

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    file = fopen(path, "re");
    if (!file)
        bench_die(path);
    *ret_mib = 0;
    while (fgets(line, sizeof(line), file)) {
        unsigned long kib;

        if (sscanf(line, "VmRSS: %lu", &kib) == 1)
            *ret_mib = (double)kib / 1024;
    }
    fclose(file);
    return seconds;
}

/* CPU seconds and memory of the helpers that the daemon started. */
static double cpu_of_helpers(pid_t daemon, double *ret_mib) {
    double seconds = 0, mib;
    char path[64];
    int child;
    FILE *file;

    *ret_mib = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)daemon, (int)daemon);
    file = fopen(path, "re");
    while (file && fscanf(file, "%d", &child) == 1) {
        seconds += cpu_of(child, &mib);
        *ret_mib += mib;
    }
    if (file)
        fclose(file);
    return seconds;
}

static void bench_idle(void) {
    double seconds = is_quick ? 5 : 30, before, after, began, took, mib, helpers_mib;
    double helpers_before, helpers_after;
    struct world world;

    world_new(&world, "idle", 8);
    world_start(&world);
    world_wait(&world);
    nanosleep(&(struct timespec){ .tv_sec = 2 }, NULL);
    before = cpu_of(world.daemon, &mib);
    helpers_before = cpu_of_helpers(world.daemon, &helpers_mib);
    began = bench_now();
    nanosleep(&(struct timespec){ .tv_sec = (time_t)seconds }, NULL);
    after = cpu_of(world.daemon, &mib);
    helpers_after = cpu_of_helpers(world.daemon, &helpers_mib);
    took = bench_now() - began;
    tell("4  idle with 8 devices (0.5%, 15 MiB)", (after - before) / took <= 0.005 && mib <= 15,
         "%.2f%% CPU, %.1f MiB (its helpers: %.2f%%, %.1f MiB)", 100 * (after - before) / took, mib,
         100 * (helpers_after - helpers_before) / took, helpers_mib);
    world_stop(&world, SIGTERM);
}

/* ---- 5: a decision
 * ------------------------------------------------------------------------------------- */

/* Seconds for a request in and out of a line of `n` that wait. */
static double decide(unsigned n) {
    static struct device_facts device;
    struct policy policy;
    struct broker_sink sink = { 0 };
    struct broker *broker;
    struct moment now = { .usec = 1000000 };
    struct broker_peer peer = { .process = { 1000, 1 }, .uid = 1000, .gid = 1000 };
    struct request request = { .has_amount = true,
                               .amount = { LEASE_FRACTION, 9000, UNITS_FOREVER, UNITS_FOREVER,
                                           UNITS_FOREVER },
                               .timeout_usec = UNITS_FOREVER,
                               .time_limit_usec = UNITS_FOREVER };
    struct verdict verdict;
    enum { TIMES = 400 };
    double times[TIMES];

    policy_init(&policy);
    policy.defaults.max_leases = policy.defaults.max_waiting = UINT32_MAX;
    policy.defaults.has |= POLICY_HAS(max_leases) | POLICY_HAS(max_waiting);
    if (broker_new(&broker, &policy, &sink) < 0)
        bench_die("broker_new");
    for (unsigned i = 0; i < 16; i++) {
        device = (struct device_facts){ .state = DEVICE_READY, .is_present = true };
        device.seen.id.uuid[0] = (uint8_t)(i + 1);
        device.seen.parent = device.seen.id;
        device.seen.index = i;
        device.seen.pci.bus = (uint8_t)(i + 1);
        device.seen.total_bytes = 40 * GIB;
        broker_device_set(broker, &device, 400 * MIB, now);
    }
    for (unsigned i = 0; i < n + 16; i++) {
        peer.process.pid = (pid_t)(1000 + i);
        if (broker_submit(broker, &peer, &request, &peer, now, &verdict) < 0 ||
            verdict.kind == VERDICT_DENY) {
            errno = EIO;
            bench_die(verdict.reason);
        }
    }
    broker_turn(broker, now);
    peer.process.pid = 999;
    for (unsigned i = 0; i < TIMES; i++) {
        double before = bench_now();

        now.usec += 10;
        broker_submit(broker, &peer, &request, &peer, now, &verdict);
        broker_turn(broker, now);
        times[i] = bench_now() - before;
        broker_cancel(broker, verdict.waiter, now);
        broker_turn(broker, now);
    }
    broker_free(broker);
    policy_done(&policy);
    return bench_quantile(times, TIMES, 0.5);
}

static void bench_decision(void) {
    double few[5], many[5];

    for (unsigned lap = 0; lap < 5; lap++) {
        few[lap] = decide(10);
        many[lap] = decide(10000);
    }
    tell("5  decision, 10,000 wait (at most 3x)",
         bench_quantile(many, 5, 0.5) <= 3 * bench_quantile(few, 5, 0.5),
         "%.2f us, 10 wait %.2f us: %.2fx", bench_quantile(many, 5, 0.5) * 1e6,
         bench_quantile(few, 5, 0.5) * 1e6,
         bench_quantile(many, 5, 0.5) / bench_quantile(few, 5, 0.5));
}

/* ---- 6: restart
 * ----------------------------------------------------------------------------------------- */

static void bench_restart(void) {
    static struct {
        char lease[32], token[64], device[GPUID_TEXT_SIZE];
        int fd;
    } clients[CLIENTS];
    struct world world;
    double began, took;

    world_new(&world, "restart", 16);
    world_start(&world);
    world_wait(&world);
    for (unsigned i = 0; i < CLIENTS; i++) {
        const char *grant;

        clients[i].fd = world_connect(&world);
        grant = bench_call(
            clients[i].fd,
            "{\"method\":\"io.allot.Manager.Acquire\",\"parameters\":{\"request\":{"
            "\"amount\":{\"mode\":\"fixed\",\"bytes\":67108864},\"choose\":\"spread\"}}}");
        bench_text(clients[i].lease, sizeof(clients[i].lease), grant, "lease");
        bench_text(clients[i].token, sizeof(clients[i].token), grant, "token");
        bench_text(clients[i].device, sizeof(clients[i].device), grant, "device");
        bench_call(clients[i].fd,
                   "{\"method\":\"io.allot.Manager.Attach\",\"parameters\":{\"lease\":%s,\"token\":"
                   "\"%s\"}}",
                   clients[i].lease, clients[i].token);
        bench_call(
            clients[i].fd,
            "{\"method\":\"io.allot.Manager.Grow\",\"parameters\":{\"lease\":%s,\"device\":\"%s\","
            "\"bytes\":2097152}}",
            clients[i].lease, clients[i].device);
    }
    world_stop(&world, SIGKILL);
    for (unsigned i = 0; i < CLIENTS; i++)
        close(clients[i].fd);
    began = bench_now();
    world_start(&world);
    for (unsigned i = 0; i < CLIENTS; i++) {
        while ((clients[i].fd = world_connect(&world)) < 0)
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        if (!strstr(
                bench_call(clients[i].fd,
                           "{\"method\":\"io.allot.Manager.Attach\",\"parameters\":{\"lease\":%s,"
                           "\"token\":\"%s\",\"held\":[{\"device\":\"%s\",\"bytes\":2097152}]}}",
                           clients[i].lease, clients[i].token, clients[i].device),
                "shares")) {
            errno = EBADMSG;
            bench_die("an answer");
        }
    }
    took = bench_now() - began;
    tell("6  restart, 1,000 re-attached (1 s)", took <= 1, "%.3f s, %u book errors", took,
         book_errors(&world));
    for (unsigned i = 0; i < CLIENTS; i++)
        close(clients[i].fd);
    world_stop(&world, SIGTERM);
}

int main(int argc, char **argv) {
    static void (*const benches[])(void) = { NULL,         bench_round_trip, bench_throughput,
                                             bench_many,   bench_idle,       bench_decision,
                                             bench_restart };
    struct rlimit files = { 16384, 16384 };
    unsigned wanted = 0;
    char *slash;
    ssize_t n = readlink("/proc/self/exe", world_build, sizeof(world_build) - 1);

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            is_quick = true;
        else if (argv[i][0] >= '1' && argv[i][0] <= '6' && !argv[i][1])
            wanted |= 1U << (argv[i][0] - '0');
        else {
            fprintf(stderr, "usage: bench-daemon [--quick] [1-6]...\n");
            return 2;
        }
    }
    if (n < 0)
        bench_die("/proc/self/exe");
    world_build[n] = 0;
    for (unsigned i = 0; i < 2 && (slash = strrchr(world_build, '/')); i++)
        *slash = 0;
    signal(SIGPIPE, SIG_IGN);
    setrlimit(RLIMIT_NOFILE, &files);
    /* The state is kept in memory (/run), so it is here, too. */
    strcpy(world_folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/allot-bench-XXXXXX"
                                                       : "/tmp/allot-bench-XXXXXX");
    if (!mkdtemp(world_folder))
        bench_die(world_folder);
    for (unsigned i = 1; i <= 6; i++)
        if (!wanted || wanted >> i & 1)
            benches[i]();
    bench_run("rm -rf %s", world_folder);
    return n_missed > 0;
}
