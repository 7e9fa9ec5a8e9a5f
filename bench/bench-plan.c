/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of known lifetimes: the fast tier on graphs made here, the search on files.
 *
 *     bench-plan [--seconds N] [FILE.BYTES.csv | DIR]...
 *
 * A file has lines `id,lower,upper,size`; BYTES in its name is the capacity that a good packing
 * reaches.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "allocator/plan.h"
#include "base/cleanup.h"
#include "base/random.h"

static double seconds(void) {
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Forward, then backward: activations live until the backward pass comes by; and temporaries. */
static void make_training(struct plan_buffer *buffers, size_t n, uint64_t *random) {
    size_t half = n / 2;

    for (size_t i = 0; i < half; i++)
        buffers[i] = (struct plan_buffer){ i, 2 * half - i + random_next(random) % 4,
                                           (1 + random_next(random) % 64) * 65536, 0 };
    for (size_t i = half; i < n; i++) {
        uint64_t at = random_next(random) % (2 * half);

        buffers[i] = (struct plan_buffer){ at, at + 1 + random_next(random) % 5,
                                           (1 + random_next(random) % 256) * 4096, 0 };
    }
}

/* A chain with branches: outputs live to their last reader, a few steps on, some much longer. */
static void make_inference(struct plan_buffer *buffers, size_t n, uint64_t *random) {
    for (size_t i = 0; i < n; i++) {
        uint64_t length = 1 + random_next(random) % 6;

        if (random_next(random) % 20 == 0)
            length = 20 + random_next(random) % 200;
        buffers[i] =
            (struct plan_buffer){ i, i + length, (uint64_t)256 << (random_next(random) % 14), 0 };
        buffers[i].bytes += random_next(random) % buffers[i].bytes / 256 * 256;
    }
}

/* Layers of a transformer: the same few sizes again and again, skip connections over each. */
static void make_transformer(struct plan_buffer *buffers, size_t n, uint64_t *random) {
    static const struct {
        unsigned start, length, kib;
    } layer[] = {
        { 0, 9, 512 }, { 0, 2, 512 }, { 1, 3, 1536 }, { 2, 2, 2048 }, { 3, 2, 2048 },
        { 4, 2, 512 }, { 5, 6, 512 }, { 6, 2, 512 },  { 7, 2, 2048 }, { 8, 2, 2048 },
    };

    for (size_t i = 0; i < n; i++) {
        size_t k = i % ELEMENTSOF(layer), at = i / ELEMENTSOF(layer) * ELEMENTSOF(layer);

        buffers[i] =
            (struct plan_buffer){ at + layer[k].start, at + layer[k].start + layer[k].length,
                                  (uint64_t)layer[k].kib << 10, 0 };
        buffers[i].bytes += random_next(random) % 16 * 256;
    }
}

static int run_fast(void) {
    static const struct {
        const char *name;
        void (*make)(struct plan_buffer *buffers, size_t n, uint64_t *random);
    } kinds[] = { { "training", make_training },
                  { "inference", make_inference },
                  { "transformer", make_transformer } };
    const size_t n = 10000;
    cleanup(freep) struct plan_buffer *buffers = calloc(n, sizeof(*buffers));

    printf("%-24s %8s %14s %14s %7s %9s\n", "fast", "buffers", "lower bound", "bytes", "ratio",
           "ms");
    for (unsigned k = 0; k < ELEMENTSOF(kinds); k++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            uint64_t random = seed, lower, bytes;
            double best = 1e9;

            kinds[k].make(buffers, n, &random);
            if (plan_lower_bound(buffers, n, &lower) < 0)
                return EXIT_FAILURE;
            for (unsigned rep = 0; rep < 5; rep++) {
                double before = seconds();

                if (plan_fast(buffers, n, &bytes) < 0)
                    return EXIT_FAILURE;
                best = MIN(best, seconds() - before);
            }
            if (plan_check(buffers, n, bytes) < 0) {
                fprintf(stderr, "bench-plan: %s: not a plan\n", kinds[k].name);
                return EXIT_FAILURE;
            }
            printf("%-24s %8zu %14llu %14llu %7.3f %9.2f\n", kinds[k].name, n,
                   (unsigned long long)lower, (unsigned long long)bytes,
                   (double)bytes / (double)lower, best * 1e3);
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
    if (plan_lower_bound(buffers, n, &lower) < 0 || plan_fast(buffers, n, &fast) < 0)
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
    int first = 1;

    if (argc > 2 && strcmp(argv[1], "--seconds") == 0) {
        budget = strtod(argv[2], NULL);
        first = 3;
    }
    if (run_fast() != EXIT_SUCCESS)
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
