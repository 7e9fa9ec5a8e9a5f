/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/daemonworld.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

char world_folder[64], world_build[256];

static char reply[1 << 24];

void bench_die(const char *what) {
    fprintf(stderr, "bench-daemon: %s: %s\n", what, strerror(errno));
    exit(1);
}

double bench_now(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* The value below which `part` of them lie; sorts them. */
double bench_quantile(double *values, size_t n, double part) {
    qsort(values, n, sizeof(*values), compare);
    return values[(size_t)((double)(n - 1) * part)];
}

static cpu_set_t first_cpus; /* empty: not asked yet */

unsigned bench_cpus(int *ret, unsigned max) {
    unsigned n = 0;

    if (CPU_COUNT(&first_cpus) == 0 && sched_getaffinity(0, sizeof(first_cpus), &first_cpus) < 0)
        bench_die("sched_getaffinity");
    for (int cpu = 0; cpu < CPU_SETSIZE && n < max; cpu++)
        if (CPU_ISSET(cpu, &first_cpus))
            ret[n++] = cpu;
    return n;
}

void bench_pin(pid_t pid, int cpu) {
    cpu_set_t set = first_cpus;

    if (cpu >= 0) {
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
    }
    if (sched_setaffinity(pid, sizeof(set), &set) < 0)
        bench_die("sched_setaffinity");
}

/* ---- A box with a daemon -----------------------------------------------------------------------
 */

void bench_run(const char *format, ...) {
    char command[4 * PATH_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    if (system(command) != 0) {
        errno = EIO;
        bench_die(command);
    }
}

void world_new(struct world *world, const char *name, unsigned n_devices) {
    char path[256];
    FILE *config;

    snprintf(world->dir, sizeof(world->dir), "%s/%s", world_folder, name);
    snprintf(world->socket, sizeof(world->socket), "%s/io.allot", world->dir);
    snprintf(world->box, sizeof(world->box), "%s/box", world->dir);
    mkdir(world->dir, 0755);
    snprintf(path, sizeof(path), "%s/conf", world->dir);
    config = fopen(path, "we");
    if (!config)
        bench_die(path);
    fprintf(config, "[allotd]\nmax-connections = 4096\ngrace-time = 60s\n[defaults]\nsmall-leases "
                    "= yes\nmax-leases = "
                    "infinity\nmax-waiting = infinity\n");
    fclose(config);
    bench_run("%s/sim/gpusim create --box %s --gpus %u >/dev/null", world_build, world->box,
              n_devices);
    world->daemon = -1;
}

int world_connect(const struct world *world) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        bench_die("socket");
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", world->socket);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* ---- Messages -----------------------------------------------------------------------------------
 */

void bench_put(int fd, const char *data, size_t n) {
    while (n > 0) {
        ssize_t m = send(fd, data, n, MSG_NOSIGNAL);

        if (m < 0)
            bench_die("send");
        data += m;
        n -= (size_t)m;
    }
}

/* Read one message, which is all that is under way; its length without the NUL. */
size_t bench_get(int fd, char *data, size_t size) {
    size_t n = 0;

    while (n == 0 || data[n - 1] != 0) {
        ssize_t m = recv(fd, data + n, size - n, 0);

        if (m <= 0)
            bench_die("the daemon is gone");
        n += (size_t)m;
    }
    return n - 1;
}

const char *bench_call(int fd, const char *format, ...) {
    char text[1024];
    va_list arguments;
    int n;

    va_start(arguments, format);
    n = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    bench_put(fd, text, (size_t)n + 1);
    bench_get(fd, reply, sizeof(reply));
    return reply;
}

void bench_text(char *ret, size_t size, const char *json, const char *member) {
    char pattern[64];
    const char *at;

    snprintf(pattern, sizeof(pattern), "\"%s\":", member);
    at = strstr(json, pattern);
    if (!at) {
        errno = EBADMSG;
        bench_die(json);
    }
    at += strlen(pattern);
    at += *at == '"';
    snprintf(ret, size, "%.*s", (int)strcspn(at, "\",}"), at);
}

/* ---- Starting daemons
 * ---------------------------------------------------------------------------- */

void world_wait(const struct world *world) {
    double limit = bench_now() + 120;

    for (;;) {
        int fd = world_connect(world);
        bool is_ready = false;

        if (fd >= 0) {
            is_ready =
                strstr(bench_call(fd, "{\"method\":\"io.allot.Manager.GetBox\"}"), "\"bus_id\"");
            close(fd);
        }
        if (is_ready)
            return;
        if (bench_now() > limit) {
            errno = ETIMEDOUT;
            bench_die("the daemon does not answer");
        }
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    }
}

void world_hush(const struct world *world) {
    char path[256];
    int fd;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(path, sizeof(path), "%s/log", world->dir);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
}

void world_start(struct world *world) {
    char paths[5][512];

    snprintf(paths[0], sizeof(paths[0]), "%s/daemon/allotd", world_build);
    snprintf(paths[1], sizeof(paths[1]), "%s/conf", world->dir);
    snprintf(paths[2], sizeof(paths[2]), "%s/state", world->dir);
    snprintf(paths[3], sizeof(paths[3]), "%s/db", world->dir);
    world->daemon = fork();
    if (world->daemon == 0) {
        world_hush(world);
        setenv("GPUSIM_BOX", world->box, 1);
        execl(paths[0], paths[0], "--driver", "sim", "--config", paths[1], "--socket",
              world->socket, "--state-dir", paths[2], "--db", paths[3], "--log-level", "warning",
              NULL);
        _exit(127);
    }
}

void world_stop(struct world *world, int number) {
    if (world->daemon <= 0)
        return;
    kill(world->daemon, number);
    waitpid(world->daemon, NULL, 0);
    world->daemon = -1;
}
