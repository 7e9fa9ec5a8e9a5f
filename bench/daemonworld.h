/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Daemonworld: a simulated box with a daemon on it, and a client's bare means to talk to it, for
 * measuring. Everything dies at the first error, with a word why.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

extern char world_folder[64]; /* where all worlds are; made by the program */
extern char world_build[256]; /* the build folder */

struct world {
    char dir[96], socket[106], box[128];
    pid_t daemon; /* -1: none runs */
};

_Noreturn void bench_die(const char *what); /* with errno */
double bench_now(void);                     /* seconds */
/* The value below which `part` of them lie; sorts them. */
double bench_quantile(double *values, size_t n, double part);
/* Up to `max` of the CPUs that we may run on; how many. Before any bench_pin(). */
unsigned bench_cpus(int *ret, unsigned max);
/* A process's first thread (0: our own) runs on that CPU alone; -1: on all that we began with. */
void bench_pin(pid_t pid, int cpu);
void bench_run(const char *format, ...) __attribute__((format(printf, 1, 2))); /* by the shell */

/* A box of that many devices under a name of its own, without a daemon yet. */
void world_new(struct world *world, const char *name, unsigned n_devices);
void world_start(struct world *world); /* allotd, which may not be ready yet */
void world_wait(const struct world *world);
void world_stop(struct world *world, int number);
int world_connect(const struct world *world); /* -1: no daemon listens */
void world_hush(const struct world *world);   /* in a child: ends with us, talks to the log */

void bench_put(int fd, const char *data, size_t n);
/* Read one message, which is all that is under way; its length without the NUL. */
size_t bench_get(int fd, char *data, size_t size);
/* Ask, and the whole answer, good until the next call. */
const char *bench_call(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The value of the first member of that name. */
void bench_text(char *ret, size_t size, const char *json, const char *member);
