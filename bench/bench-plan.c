/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of known lifetimes: the fast tier on the shapes of tests/support/allocator/plan_shape.c,
 * beside the greedy plans of the field, and the search on files.
 *
 *     bench-plan [--buffers N] [--seeds N] [--seconds N] [FILE.BYTES.csv | DIR]...
 *
 * A row of the first table has the means and the worst over the seeds. Times are of the thread's
 * CPU, the best of five; instructions are counted where the machine can (and lets us). A file has
 * lines `id,lower,upper,size`; BYTES in its name is the capacity that a good packing reaches.
 */
#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/plan.h"
#include "base/cleanup.h"
#include "bench/plan-search.h"
#include "tests/support/allocator/plan_shape.h"

static double seconds(void) {
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A counter of this thread's own instructions; -1: the machine has none, or not for us. */
static int open_counter(void) {
    struct perf_event_attr attr = {
        .type = PERF_TYPE_HARDWARE,
        .size = sizeof(attr),
        .config = PERF_COUNT_HW_INSTRUCTIONS,
        .exclude_kernel = 1,
        .exclude_hv = 1,
    };

    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static uint64_t read_counter(int fd) {
    uint64_t n = 0;

    return fd >= 0 && read(fd, &n, sizeof(n)) == sizeof(n) ? n : 0;
}

/* Of the seeds of one shape: ratios to the lower bound, and what they cost at most. */
struct row {
    double mean, worst, greedy_lowest, greedy_tightest, milliseconds;
    uint64_t instructions;
    unsigned n_worse; /* than the better of the greedy plans */
};

static int run_seed(struct row *row, const struct plan_shape *shape, struct plan_buffer *buffers,
                    size_t n, uint64_t seed, unsigned n_seeds, int counter) {
    uint64_t random = seed, lower, bytes, lowest, tightest, instructions = UINT64_MAX;
    double best = 1e9;

    shape->make(buffers, n, &random);
    if (plan_lower_bound(buffers, n, &lower) < 0)
        return EXIT_FAILURE;
    for (unsigned rep = 0; rep < 5; rep++) {
        uint64_t count = read_counter(counter);
        double before = seconds();

        if (plan_fast(buffers, n, NULL, &bytes) < 0)
            return EXIT_FAILURE;
        best = MIN(best, seconds() - before);
        count = read_counter(counter) - count;
        instructions = MIN(instructions, count);
    }
    if (plan_mistake(buffers, n, bytes)) {
        fprintf(stderr, "bench-plan: %s: %s\n", shape->name, plan_mistake(buffers, n, bytes));
        return EXIT_FAILURE;
    }
    lowest = plan_greedy(buffers, n, GREEDY_LOWEST);
    tightest = plan_greedy(buffers, n, GREEDY_TIGHTEST);
    row->mean += (double)bytes / (double)lower / n_seeds;
    row->worst = MAX(row->worst, (double)bytes / (double)lower);
    row->greedy_lowest += (double)lowest / (double)lower / n_seeds;
    row->greedy_tightest += (double)tightest / (double)lower / n_seeds;
    row->milliseconds = MAX(row->milliseconds, best * 1e3);
    row->instructions = MAX(row->instructions, instructions);
    row->n_worse += bytes > lowest || bytes > tightest;
    return EXIT_SUCCESS;
}

static int run_fast(size_t n, unsigned n_seeds) {
    cleanup(freep) struct plan_buffer *buffers = calloc(n + 1, sizeof(*buffers));
    cleanup(closep) int counter = open_counter();

    if (!buffers)
        return EXIT_FAILURE;
    printf("%zu buffers, bytes / lower bound over %u seeds, most time and instructions\n", n,
           n_seeds);
    printf("%-22s %7s %7s %7s %8s %9s %9s %6s\n", "fast", "mean", "worst", "ms", "Minstr",
           "first fit", "best fit", "worse");
    for (size_t s = 0; s < n_plan_shapes; s++) {
        struct row row = { 0 };
        char instructions[32] = "n/a";

        for (uint64_t seed = 1; seed <= n_seeds; seed++)
            if (run_seed(&row, &plan_shapes[s], buffers, n, seed, n_seeds, counter) != EXIT_SUCCESS)
                return EXIT_FAILURE;
        if (counter >= 0)
            snprintf(instructions, sizeof(instructions), "%.1f", (double)row.instructions / 1e6);
        printf("%-22s %7.3f %7.3f %7.2f %8s %9.3f %9.3f %6u\n", plan_shapes[s].name, row.mean,
               row.worst, row.milliseconds, instructions, row.greedy_lowest, row.greedy_tightest,
               row.n_worse);
        fflush(stdout);
    }
    return EXIT_SUCCESS;
}

static int run_file(const char *path, double budget) {
    cleanup(fclosep) FILE *file = fopen(path, "re");
    cleanup(freep) struct plan_buffer *buffers = NULL;
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    const char *dot = strchr(name, '.');
    uint64_t capacity = dot ? strtoull(dot + 1, NULL, 10) : 0, lower, fast, bytes;
    size_t n = 0, n_max = 0;
    char line[256];
    double before;
    int r;

    if (!file) {
        fprintf(stderr, "bench-plan: %s: %s\n", path, strerror(errno));
        return -errno;
    }
    while (fgets(line, sizeof(line), file)) {
        unsigned long long start, end, size;

        if (sscanf(line, "%*[^,],%llu,%llu,%llu", &start, &end, &size) != 3)
            continue;
        if (n == n_max) {
            n_max = n_max ? n_max * 2 : 256;
            buffers = reallocarray(TAKE(buffers), n_max, sizeof(*buffers));
            if (!buffers)
                return -ENOMEM;
        }
        buffers[n++] = (struct plan_buffer){ start, end, size, 0 };
    }
    if (plan_lower_bound(buffers, n, &lower) < 0 || plan_fast(buffers, n, NULL, &fast) < 0)
        return -EINVAL;
    before = seconds();
    r = plan_search(buffers, n, capacity, (uint64_t)(budget * 1e6), &bytes);
    if (r < 0 || plan_check(buffers, n, bytes) < 0) {
        fprintf(stderr, "bench-plan: %s: not a plan\n", path);
        return -EUCLEAN;
    }
    printf("%-24s %8zu %14llu %14llu %7.3f %9.2f  fast %.3f, %s\n", name, n,
           (unsigned long long)lower, (unsigned long long)bytes, (double)bytes / (double)lower,
           (seconds() - before) * 1e3, (double)fast / (double)lower, r ? "fits" : "does not fit");
    fflush(stdout);
    return r;
}

static int is_csv(const struct dirent *entry) {
    const char *dot = strrchr(entry->d_name, '.');

    return dot && strcmp(dot, ".csv") == 0;
}

int main(int argc, char **argv) {
    unsigned fits = 0, files = 0;
    double budget = 10;
    size_t n_buffers = 10000;
    unsigned n_seeds = 2;
    int first = 1;

    for (; first + 1 < argc && strncmp(argv[first], "--", 2) == 0; first += 2) {
        const char *value = argv[first + 1];

        if (strcmp(argv[first], "--seconds") == 0)
            budget = strtod(value, NULL);
        else if (strcmp(argv[first], "--buffers") == 0)
            n_buffers = strtoul(value, NULL, 10);
        else if (strcmp(argv[first], "--seeds") == 0)
            n_seeds = (unsigned)strtoul(value, NULL, 10);
        else
            break;
    }
    if (run_fast(MAX(n_buffers, (size_t)1), MAX(n_seeds, 1u)) != EXIT_SUCCESS)
        return EXIT_FAILURE;
    if (first < argc)
        printf("\n%-24s %8s %14s %14s %7s %9s\n", "search", "buffers", "lower bound", "bytes",
               "ratio", "ms");
    for (int k = first; k < argc; k++) {
        struct dirent **names = NULL;
        struct stat st;
        int n = 0, r;

        if (stat(argv[k], &st) == 0 && S_ISDIR(st.st_mode))
            n = scandir(argv[k], &names, is_csv, alphasort);
        for (int m = 0; m < n || (m == 0 && !names); m++) {
            char path[4096];

            snprintf(path, sizeof(path), "%s%s%s", argv[k], names ? "/" : "",
                     names ? names[m]->d_name : "");
            r = run_file(path, budget);
            if (r < 0)
                return EXIT_FAILURE;
            files++;
            fits += (unsigned)r;
        }
        for (int m = 0; m < n; m++)
            free(names[m]);
        free(names);
    }
    if (files)
        printf("%u of %u fit\n", fits, files);
    return EXIT_SUCCESS;
}
