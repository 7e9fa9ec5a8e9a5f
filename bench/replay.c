/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replay traces against allocators, side by side.
 *
 * Each engine runs in a process of its own, so that its memory is its own. All of them replay the
 * trace once, untimed; then they take turns, one replay each, so that whatever else the machine
 * does meets all of them alike. A replay is timed by the thread's CPU clock, from the trace's `w`
 * on; what it leaves live is freed after the clock has stopped.
 */
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/units.h"
#include "bench/engine.h"
#include "bench/trace.h"

#define ENGINES     8
#define REPS_MAX    1000
#define THREADS_MAX 64

struct options {
    uint64_t capacity;
    unsigned reps, threads;
    bool json, fit;
    const struct engine *engines[ENGINES];
    unsigned n_engines;
};

/* What one replay of all threads took. */
struct lap {
    double ns_per_pair;      /* CPU time, mean of the threads */
    double pairs_per_second; /* of all threads together, by the wall clock of the slowest */
};

struct result {
    uint64_t peak_live, peak_reserved, failures, rss_kib, engine_rss_kib, mapped, mapped_warm;
};

static uint64_t now(clockid_t clock) {
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t status_kib(const char *key) {
    cleanup(fclosep) FILE *file = fopen("/proc/self/status", "re");
    char line[256];

    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, key, strlen(key)) == 0)
            return strtoull(line + strlen(key) + 1, NULL, 10);
    return 0;
}

/* Calls between the prefetch of a slot and its use: longer than memory takes. */
enum { AHEAD = 16 };

struct player {
    const struct engine *engine;
    const struct trace *trace;
    void *arena;
    uint64_t *slots, *sizes; /* of the trace's blocks: what free() wants, and bytes */
    pthread_barrier_t *barrier;
    uint64_t cpu_ns, wall_ns, pairs, failures, live, peak_live;
    bool count;   /* peaks and failures too: not while it is timed */
    bool give_up; /* at the first failure; only while it counts */
};

static void play(struct player *player, size_t from, size_t to) {
    const struct engine *engine = player->engine;
    const struct trace_op *ops = player->trace->ops;
    uint64_t *slots = player->slots, failures = 0;
    void *arena = player->arena;

    for (size_t n = from; n < to; n++) {
        /* To find a block's slot is the replay's own work: no engine shall wait for that. */
        __builtin_prefetch(&slots[ops[MIN(n + AHEAD, to - 1)].slot], 1);
        if (ops[n].bytes != TRACE_FREE) {
            uint64_t block = engine->alloc(arena, ops[n].bytes);

            slots[ops[n].slot] = block;
            failures += !block;
        } else {
            if (slots[ops[n].slot])
                engine->free(arena, slots[ops[n].slot]);
            slots[ops[n].slot] = 0;
        }
    }
    player->failures += failures;
}

static void play_counting(struct player *player) {
    const struct trace *trace = player->trace;
    uint64_t *sizes = player->sizes;

    for (size_t n = 0; n < trace->n_ops; n++) {
        const struct trace_op *op = &trace->ops[n];

        if (op->bytes == TRACE_FREE && player->slots[op->slot])
            player->live -= sizes[op->slot];
        play(player, n, n + 1);
        if (player->give_up && player->failures)
            break;
        if (op->bytes != TRACE_FREE && player->slots[op->slot]) {
            sizes[op->slot] = op->bytes;
            player->live += op->bytes;
            player->peak_live = MAX(player->peak_live, player->live);
        }
    }
    player->live = 0;
}

static void *play_once(void *userdata) {
    struct player *player = userdata;
    const struct trace *trace = player->trace;
    uint64_t cpu, wall;

    pthread_barrier_wait(player->barrier);
    if (player->count)
        play_counting(player);
    else {
        play(player, 0, trace->warm);
        wall = now(CLOCK_MONOTONIC);
        cpu = now(CLOCK_THREAD_CPUTIME_ID);
        play(player, trace->warm, trace->n_ops);
        player->cpu_ns = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
        player->wall_ns = now(CLOCK_MONOTONIC) - wall;
    }
    for (size_t n = 0; n < trace->n_slots; n++) {
        if (player->slots[n])
            player->engine->free(player->arena, player->slots[n]);
        player->slots[n] = 0;
    }
    return NULL;
}

/* Several threads each get a CPU of their own, as far as there are any: what they do to each other
 * is to be measured, not where the kernel happened to put them for some milliseconds. */
static void choose_cpu(pthread_attr_t *attr, unsigned n) {
    cpu_set_t allowed, one;
    unsigned left;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
        return;
    left = n % (unsigned)CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && left-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            pthread_attr_setaffinity_np(attr, sizeof(one), &one);
            return;
        }
}

/* One replay by every thread on the one arena. Always in threads: one is measured as many are. */
static struct lap play_all(struct player *players, unsigned n_players, bool count) {
    struct lap lap = { 0 };
    pthread_t threads[THREADS_MAX];
    pthread_barrier_t barrier;
    uint64_t wall = 1, pairs = 0;

    pthread_attr_t attr;

    pthread_attr_init(&attr);
    pthread_barrier_init(&barrier, NULL, n_players);
    for (unsigned n = 0; n < n_players; n++) {
        players[n].barrier = &barrier;
        players[n].count = count;
        if (n_players > 1)
            choose_cpu(&attr, n);
        if (pthread_create(&threads[n], &attr, play_once, &players[n]) != 0)
            abort();
    }
    for (unsigned n = 0; n < n_players; n++) {
        pthread_join(threads[n], NULL);
        lap.ns_per_pair += (double)players[n].cpu_ns / (double)players[n].pairs / n_players;
        wall = MAX(wall, players[n].wall_ns);
        pairs += players[n].pairs;
    }
    pthread_barrier_destroy(&barrier);
    pthread_attr_destroy(&attr);
    lap.pairs_per_second = (double)pairs * 1e9 / (double)wall;
    return lap;
}

/* All that replaying itself needs is made, and touched, before the engine's memory is counted. */
static int players_init(struct player *players, unsigned n_players, const struct engine *engine,
                        const struct trace *trace) {
    for (unsigned n = 0; n < n_players; n++) {
        players[n] = (struct player){ .engine = engine, .trace = trace };
        players[n].pairs = MAX((trace->n_ops - trace->warm) / 2, (size_t)1);
        players[n].slots = reallocarray(NULL, trace->n_slots + 1, sizeof(uint64_t));
        players[n].sizes = reallocarray(NULL, trace->n_slots + 1, sizeof(uint64_t));
        if (!players[n].slots || !players[n].sizes)
            return -ENOMEM;
        for (size_t k = 0; k <= trace->n_slots; k++)
            players[n].slots[k] = players[n].sizes[k] = 0;
    }
    return 0;
}

static void players_done(struct player *players, unsigned n_players) {
    for (unsigned n = 0; n < n_players; n++) {
        free(players[n].slots);
        free(players[n].sizes);
    }
}

static bool read_all(int fd, void *data, size_t size) {
    for (size_t n = 0; n < size;) {
        ssize_t r = read(fd, (char *)data + n, size - n);

        if (r <= 0)
            return false;
        n += (size_t)r;
    }
    return true;
}

/* The process of one engine: a byte comes in for each lap, a lap goes out; then the result. */
static int serve(const struct engine *engine, const struct trace *trace,
                 const struct options *options, int in, int out) {
    struct player players[THREADS_MAX];
    struct result result = { 0 };
    uint64_t before, mapped_cold = 0;
    struct lap lap = { 0 };
    void *arena;
    char go;

    if (players_init(players, options->threads, engine, trace) < 0)
        return EXIT_FAILURE;
    before = status_kib("VmHWM:");
    arena = engine->start(options->capacity);
    if (!arena)
        return EXIT_FAILURE;
    for (unsigned n = 0; n < options->threads; n++)
        players[n].arena = arena;
    play_all(players, options->threads, true);
    if (engine->mapped)
        mapped_cold = engine->mapped(arena);
    if (write(out, &lap, sizeof(lap)) != sizeof(lap))
        return EXIT_FAILURE;
    while (read_all(in, &go, 1) && go) {
        lap = play_all(players, options->threads, false);
        if (write(out, &lap, sizeof(lap)) != sizeof(lap))
            return EXIT_FAILURE;
    }

    for (unsigned n = 0; n < options->threads; n++) {
        result.failures += players[n].failures;
        result.peak_live += players[n].peak_live;
    }
    if (engine->peak_live)
        result.peak_live = engine->peak_live(arena);
    result.peak_reserved = engine->peak_reserved(arena);
    if (engine->mapped) {
        result.mapped = engine->mapped(arena);
        result.mapped_warm = result.mapped - mapped_cold;
    }
    players_done(players, options->threads);
    engine->end(arena);
    result.rss_kib = status_kib("VmHWM:");
    result.engine_rss_kib = result.rss_kib - before;
    return write(out, &result, sizeof(result)) == sizeof(result) ? EXIT_SUCCESS : EXIT_FAILURE;
}

struct worker {
    pid_t pid;
    int to, from;
    bool alive;
    struct lap laps[REPS_MAX];
};

static void worker_start(struct worker *worker, const struct engine *engine,
                         const struct trace *trace, const struct options *options) {
    int to[2], from[2];

    if (pipe(to) < 0 || pipe(from) < 0)
        abort();
    fflush(NULL);
    worker->pid = fork();
    if (worker->pid < 0)
        abort();
    if (worker->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(to[1]);
        close(from[0]);
        /* Not exit(): the peers' libraries have much to tear down, and nothing to say. */
        _exit(serve(engine, trace, options, to[0], from[1]));
    }
    close(to[0]);
    close(from[1]);
    worker->to = to[1];
    worker->from = from[0];
    worker->alive = true;
}

/* A name as JSON has it. */
static void print_name(const char *name) {
    putchar('"');
    for (; *name; name++)
        if (*name == '"' || *name == '\\')
            printf("\\%c", *name);
        else if ((unsigned char)*name < 0x20)
            printf("\\u%04x", (unsigned)*name);
        else
            putchar(*name);
    putchar('"');
}

/* The name of a trace: its file's. */
static const char *name_of(const char *path) {
    const char *name = strrchr(path, '/');

    return name ? name + 1 : path;
}

static int compare_laps(const void *a, const void *b) {
    double x = ((const struct lap *)a)->ns_per_pair, y = ((const struct lap *)b)->ns_per_pair;

    return x < y ? -1 : x > y;
}

static void print_result(const struct options *options, const struct engine *engine,
                         const char *name, struct worker *worker, const struct result *result,
                         bool first) {
    struct lap *laps = worker->laps;
    double rate = 0;

    qsort(laps, options->reps, sizeof(*laps), compare_laps);
    for (unsigned n = 0; n < options->reps; n++)
        rate = MAX(rate, laps[n].pairs_per_second);
    if (options->json) {
        printf("%s  {\"engine\": \"%s\", \"trace\": ", first ? "" : ",\n", engine->name);
        print_name(name);
        printf(", \"threads\": %u, "
               "\"ns_per_pair\": %.2f, \"ns_per_pair_best\": %.2f, \"ns_per_pair_worst\": %.2f, "
               "\"pairs_per_second\": %.0f, \"peak_live\": %llu, \"peak_reserved\": %llu, "
               "\"failures\": %llu, \"rss_kib\": %llu, \"engine_rss_kib\": %llu, "
               "\"mapped_bytes\": %llu, \"mapped_warm_bytes\": %llu}",
               options->threads, laps[options->reps / 2].ns_per_pair, laps[0].ns_per_pair,
               laps[options->reps - 1].ns_per_pair, rate, (unsigned long long)result->peak_live,
               (unsigned long long)result->peak_reserved, (unsigned long long)result->failures,
               (unsigned long long)result->rss_kib, (unsigned long long)result->engine_rss_kib,
               (unsigned long long)result->mapped, (unsigned long long)result->mapped_warm);
        return;
    }
    printf("%-10s %-24s %9.1f %9.1f %15llu %15llu %8.3f %9llu %9llu %9llu\n", engine->name, name,
           laps[options->reps / 2].ns_per_pair, laps[0].ns_per_pair,
           (unsigned long long)result->peak_live, (unsigned long long)result->peak_reserved,
           result->peak_live ? (double)result->peak_reserved / (double)result->peak_live : 0.0,
           (unsigned long long)result->failures, (unsigned long long)result->rss_kib,
           (unsigned long long)(result->mapped_warm >> 20));
    fflush(stdout);
}

/* All engines over one trace, lap by lap. */
static int run_trace(const struct options *options, const char *path, bool *first) {
    static struct worker workers[ENGINES];
    struct trace trace = { 0 };
    struct allot_error err = { 0 };
    const char *name = name_of(path);
    int r = 0;

    if (trace_load(&trace, path, &err) < 0) {
        fprintf(stderr, "replay: %s\n", err.text);
        return EXIT_FAILURE;
    }
    for (unsigned n = 0; n < options->n_engines; n++) {
        struct lap lap;

        worker_start(&workers[n], options->engines[n], &trace, options);
        workers[n].alive = read_all(workers[n].from, &lap, sizeof(lap)); /* the cold replay */
    }
    for (unsigned rep = 0; rep < options->reps; rep++)
        for (unsigned n = 0; n < options->n_engines; n++)
            if (workers[n].alive)
                workers[n].alive =
                    write(workers[n].to, "g", 1) == 1 &&
                    read_all(workers[n].from, &workers[n].laps[rep], sizeof(struct lap));
    for (unsigned n = 0; n < options->n_engines; n++) {
        struct result result;

        if (workers[n].alive && write(workers[n].to, "", 1) == 1 &&
            read_all(workers[n].from, &result, sizeof(result))) {
            print_result(options, options->engines[n], name, &workers[n], &result, *first);
            *first = false;
        } else {
            fprintf(stderr, "replay: %s ended on %s\n", options->engines[n]->name, name);
            r = EXIT_FAILURE;
        }
        close(workers[n].to);
        close(workers[n].from);
        waitpid(workers[n].pid, NULL, 0);
    }
    trace_done(&trace);
    return r;
}

/* Does the trace complete, cold and once more, within this capacity? */
static bool fits(const struct engine *engine, const struct trace *trace, uint64_t capacity) {
    struct player player;
    int status = 0;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (players_init(&player, 1, engine, trace) < 0)
            _exit(EXIT_FAILURE);
        player.arena = engine->start(capacity);
        if (!player.arena)
            _exit(EXIT_FAILURE);
        player.give_up = true;
        play_all(&player, 1, true);
        if (!player.failures)
            play_all(&player, 1, true);
        _exit(player.failures ? EXIT_FAILURE : EXIT_SUCCESS);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

/* The smallest capacity, to one part in a thousand of the peak and whole 2 MiB. */
static int run_fit(const struct options *options, const char *path, bool *first) {
    struct trace trace = { 0 };
    struct allot_error err = { 0 };
    const char *name = name_of(path);

    if (trace_load(&trace, path, &err) < 0) {
        fprintf(stderr, "replay: %s\n", err.text);
        return EXIT_FAILURE;
    }
    for (unsigned n = 0; n < options->n_engines; n++) {
        const uint64_t page = 2 << 20;
        uint64_t low = trace.peak_bytes / page, most = low * 4 + 16, high = 0, step;

        /* What is too little fails soon, what is enough takes two replays: from below, faster and
         * faster, then closer and closer. */
        step = MAX(low / 1000, (uint64_t)1);
        for (uint64_t gap = step; !high && low < most; gap *= 2) {
            uint64_t next = MIN(low + gap, most);

            if (fits(options->engines[n], &trace, next * page))
                high = next;
            else
                low = next;
        }
        while (high && high - low > step) {
            uint64_t middle = low + (high - low) / 2;

            if (fits(options->engines[n], &trace, middle * page))
                high = middle;
            else
                low = middle;
        }
        if (options->json) {
            printf("%s  {\"engine\": \"%s\", \"trace\": ", *first ? "" : ",\n",
                   options->engines[n]->name);
            print_name(name);
            printf(", \"peak_live\": %llu, \"smallest_capacity\": %llu}",
                   (unsigned long long)trace.peak_bytes, (unsigned long long)(high * page));
        } else
            printf("%-10s %-24s smallest capacity %15llu = %.3f x peak live\n",
                   options->engines[n]->name, name, (unsigned long long)(high * page),
                   (double)(high * page) / (double)MAX(trace.peak_bytes, (uint64_t)1));
        fflush(stdout);
        *first = false;
    }
    trace_done(&trace);
    return 0;
}

static const struct engine *find_engine(const char *name, bool required) {
    char path[4096], self[4000];
    const struct engine *const *engine;
    const char *dir = getenv("ALLOT_BENCH_ENGINES");
    ssize_t n;
    void *lib;

    if (strcmp(name, "allot") == 0)
        return &engine_allot;
    if (strcmp(name, "allot-ptr") == 0)
        return &engine_allot_ptr;
    n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[MAX(n, (ssize_t)0)] = 0;
    if (!dir && strrchr(self, '/')) {
        *strrchr(self, '/') = 0;
        dir = self;
    }
    snprintf(path, sizeof(path), "%s/engine-%s.so", dir, name);
    lib = strchr(name, '/') ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    engine = lib ? dlsym(lib, "replay_engine") : NULL;
    if (!engine && required) {
        const char *why = dlerror();

        fprintf(stderr, "replay: no engine \"%s\" in %s: %s (./run bench allocator builds them)\n",
                name, dir, why ? why : "not a name");
    }
    return engine ? *engine : NULL;
}

static int add_engines(struct options *options, const char *name) {
    static const char *const all[] = { "allot", "allot-ptr", "tf", "ort", "torch" };
    bool every = strcmp(name, "all") == 0, missing = false;

    for (unsigned n = 0; n < (every ? ELEMENTSOF(all) : 1); n++) {
        const struct engine *engine = find_engine(every ? all[n] : name, !every);

        if (!engine && !every)
            return -ENOENT;
        if (engine && options->n_engines == ENGINES) {
            fprintf(stderr, "replay: more than %u engines cannot take turns\n", ENGINES);
            return -E2BIG;
        }
        if (engine)
            options->engines[options->n_engines++] = engine;
        else {
            fprintf(stderr, "%s%s", missing ? ", " : "replay: without ", all[n]);
            missing = true;
        }
    }
    if (missing)
        fprintf(stderr, ", which ./run bench allocator builds\n");
    return 0;
}

static int usage(int status) {
    fprintf(status ? stderr : stdout,
            "usage: replay [--engine allot|allot-ptr|tf|tf-fixed|ort|ort-asked|torch|all]... "
            "[--capacity BYTES]\n"
            "              [--reps N] [--threads N] [--fit] [--json] TRACE...\n"
            "  --engine    may be given several times; all: those that can run here\n"
            "  --capacity  of the device, such as 80G; the default\n"
            "  --reps      warm replays, of which the median and the best count; 5\n"
            "  --threads   each replays the trace on the one arena; 1\n"
            "  --fit       find the smallest capacity on which the trace completes instead\n"
            "  --json      an array, with an object for each engine and trace\n");
    return status;
}

static bool parse_number(const char *option, const char *text, unsigned most, unsigned *ret) {
    unsigned long number;
    char *end;

    errno = 0;
    number = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || !number || number > most) {
        fprintf(stderr, "replay: --%s \"%s\" is not a number from 1 to %u\n", option, text, most);
        return false;
    }
    *ret = (unsigned)number;
    return true;
}

int main(int argc, char **argv) {
    static const struct option longs[] = {
        { "engine", required_argument, NULL, 'e' }, { "capacity", required_argument, NULL, 'c' },
        { "reps", required_argument, NULL, 'r' },   { "threads", required_argument, NULL, 't' },
        { "json", no_argument, NULL, 'j' },         { "fit", no_argument, NULL, 'f' },
        { "help", no_argument, NULL, 'h' },         { 0 },
    };
    struct options options = { .capacity = (uint64_t)80 << 30, .reps = 5, .threads = 1 };
    bool first = true;
    int status = 0;

    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;)
        switch (c) {
        case 'e':
            if (add_engines(&options, optarg) < 0)
                return EXIT_FAILURE;
            break;
        case 'c':
            if (units_parse_bytes(&options.capacity, optarg) < 0 || !options.capacity) {
                fprintf(stderr, "replay: --capacity \"%s\" is no amount such as 80G\n", optarg);
                return EXIT_FAILURE;
            }
            break;
        case 'r':
            if (!parse_number("reps", optarg, REPS_MAX, &options.reps))
                return EXIT_FAILURE;
            break;
        case 't':
            if (!parse_number("threads", optarg, THREADS_MAX, &options.threads))
                return EXIT_FAILURE;
            break;
        case 'j':
            options.json = true;
            break;
        case 'f':
            options.fit = true;
            break;
        case 'h':
            return usage(EXIT_SUCCESS);
        default:
            return usage(EXIT_FAILURE);
        }
    if (optind == argc)
        return usage(EXIT_FAILURE);
    if (!options.n_engines)
        add_engines(&options, "all");

    signal(SIGPIPE, SIG_IGN);
    if (options.json)
        printf("[\n");
    else if (!options.fit)
        printf("%-10s %-24s %9s %9s %15s %15s %8s %9s %9s %9s\n", "engine", "trace", "ns/pair",
               "best", "peak live", "peak reserved", "ratio", "failures", "rss KiB", "warm MiB");
    for (int n = optind; n < argc; n++)
        if ((options.fit ? run_fit : run_trace)(&options, argv[n], &first) != 0)
            status = EXIT_FAILURE;
    if (options.json)
        printf("\n]\n");
    return status;
}
