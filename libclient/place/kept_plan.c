/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of a plan:
 *
 *     allot-plan 1 KEY
 *     TASKS DEVICES BEGUN STEP WAY
 *     TASK...                         a line for each device, in its order
 *     end CRC
 *
 * BEGUN and STEP are microseconds: of the plan that the search began with, and of this one. CRC is
 * the checksum of all bytes before the last line.
 */
#include "libclient/place/kept_plan.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/number.h"

#define MAGIC "allot-plan 1 "

/* A step may differ so much from what the text says, by the order of sums. */
#define SAME 1e-9

/* ---- Key ------------------------------------------------------------------------------------- */

struct plan_digest {
    uint8_t bytes[2 * SHA256_SIZE]; /* so far, and of the next part */
};

static void digest_add(struct plan_digest *digest, const void *part, size_t n) {
    static const uint8_t nothing = 0;

    sha256(digest->bytes + SHA256_SIZE, n ? part : &nothing, n);
    sha256(digest->bytes, digest->bytes, sizeof(digest->bytes));
}

static void digest_lists(struct plan_digest *digest, const struct order_lists *lists, uint32_t n) {
    digest_add(digest, lists->first, (n + 1) * sizeof(*lists->first));
    digest_add(digest, lists->items, lists->first[n] * sizeof(*lists->items));
}

/* Field by field: there are gaps in the struct. */
static void digest_links(struct plan_digest *digest, const struct task_graph *g) {
    for (uint32_t i = 0; i < g->n_devices * g->n_devices; i++) {
        const struct task_link *link = &g->links[i];
        const double facts[] = { link->latency_usec, link->bytes_per_usec, link->channel };

        digest_add(digest, facts, sizeof(facts));
        digest_add(digest, &link->media, sizeof(link->media));
    }
}

void kept_plan_key(const struct task_graph *g, const struct dynamic_options *options,
                   const char *version, char ret[static KEPT_PLAN_KEY_SIZE]) {
    const uint64_t numbers[] = { g->n_devices,  g->n_tasks,      g->n_channels,
                                 options->seed, options->budget, g->own_bytes != NULL };
    const size_t n = g->n_tasks;
    struct plan_digest digest = { 0 };

    digest_add(&digest, version, strlen(version));
    digest_add(&digest, numbers, sizeof(numbers));
    digest_add(&digest, g->memory_bytes, g->n_devices * sizeof(*g->memory_bytes));
    digest_links(&digest, g);
    digest_add(&digest, g->cost_usec, n * g->n_devices * sizeof(*g->cost_usec));
    digest_add(&digest, g->output_bytes, n * sizeof(*g->output_bytes));
    digest_add(&digest, g->resident_bytes, n * sizeof(*g->resident_bytes));
    if (g->own_bytes)
        digest_add(&digest, g->own_bytes, n * sizeof(*g->own_bytes));
    digest_add(&digest, g->group, n * sizeof(*g->group));
    digest_add(&digest, g->pin, n * sizeof(*g->pin));
    digest_lists(&digest, &g->inputs, g->n_tasks);
    digest_lists(&digest, &g->before, g->n_tasks);
    for (int i = 0; i < SHA256_SIZE; i++)
        snprintf(ret + 2 * i, 3, "%02x", digest.bytes[i]);
}

/* ---- Text ------------------------------------------------------------------------------------ */

int kept_plan_print(const struct task_graph *g, const struct dynamic_result *result,
                    const char *key, char **ret, size_t *ret_n) {
    char *text = NULL, begun[NUMBER_SIZE], step[NUMBER_SIZE];
    size_t n = 0;
    FILE *file = open_memstream(&text, &n);

    if (!file)
        return -ENOMEM;
    fprintf(file, MAGIC "%s\n%" PRIu32 " %" PRIu32 " %s %s %s\n", key, g->n_tasks, g->n_devices,
            number_shortest(begun, result->begun_usec, 17, false),
            number_shortest(step, result->plan.makespan_usec, 17, false), result->way);
    for (uint32_t d = 0; d < g->n_devices; d++) {
        for (uint32_t i = result->plan.first[d]; i < result->plan.first[d + 1]; i++)
            fprintf(file, "%s%" PRIu32, i > result->plan.first[d] ? " " : "",
                    result->plan.sequence[i]);
        fputc('\n', file);
    }
    if (fflush(file) == 0)
        fprintf(file, "end %08" PRIx32 "\n", crc32c(0, text, n));
    if (fclose(file) != 0) {
        free(text);
        return -ENOMEM;
    }
    *ret = text;
    *ret_n = n;
    return 0;
}

/* Digits up to `end`; false: there are none, or it is too large. */
static bool read_number(const char **at, uint32_t *ret) {
    uint64_t value = 0;
    const char *begin = *at;

    for (; **at >= '0' && **at <= '9'; (*at)++) {
        value = value * 10 + (uint64_t)(**at - '0');
        if (value >= UINT32_MAX)
            return false;
    }
    *ret = (uint32_t)value;
    return *at > begin;
}

static bool read_usec(const char **at, double *ret) {
    char *end;

    if (**at < '0' || **at > '9')
        return false;
    *ret = number_read(*at, &end);
    *at = end;
    return isfinite(*ret) && *ret >= 0;
}

static bool skip(const char **at, char what) {
    return **at == what && ++*at;
}

/* The text that lives as long as the process. */
static const char *way_of(const char *text, size_t n) {
    static const char *const ways[] = {
        "HEFT",   "HEFT with link queues", "greedy simulation", "earliest start first",
        "stages", "device after device",   "round robin",       "one device",
    };

    for (size_t i = 0; i < ELEMENTSOF(ways); i++)
        if (strlen(ways[i]) == n && memcmp(ways[i], text, n) == 0)
            return ways[i];
    return "a heuristic";
}

/* Every task once, where it may run and together with its unit. */
static const char *read_devices(const struct task_graph *g, const char **at,
                                struct assignment *plan) {
    uint32_t n = 0;

    for (uint32_t t = 0; t < g->n_tasks; t++)
        plan->device[t] = TASK_GRAPH_NONE;
    for (uint32_t d = 0; d < g->n_devices; d++) {
        plan->first[d] = n;
        while (**at != '\n') {
            uint32_t task;

            if ((n > plan->first[d] && !skip(at, ' ')) || !read_number(at, &task) ||
                task >= g->n_tasks || plan->device[task] != TASK_GRAPH_NONE)
                return "it names a task twice, or one that is not there";
            if (!(g->allowed[g->unit[task]] >> d & 1))
                return "it has a task where that may not run";
            plan->device[task] = d;
            plan->sequence[n++] = task;
        }
        (*at)++;
    }
    plan->first[g->n_devices] = n;
    if (n != g->n_tasks)
        return "it leaves out tasks";
    for (uint32_t u = 0; u < g->n_units; u++)
        for (uint32_t i = g->members.first[u]; i < g->members.first[u + 1]; i++)
            if (plan->device[g->members.items[i]] !=
                plan->device[g->members.items[g->members.first[u]]])
                return "it parts tasks that belong together";
    return NULL;
}

static int judge(const struct task_graph *g, struct assignment *plan, double step_usec,
                 const char **ret_why) {
    enum timeline_fault fault;
    int r = timeline_run(g, plan, NULL, &fault);

    if (r < 0)
        return r;
    if (fault != TIMELINE_OK)
        *ret_why = fault == TIMELINE_MEMORY ? "it does not fit into memory" : "it cannot run";
    else if (!(fabs(plan->makespan_usec - step_usec) <= SAME * step_usec))
        *ret_why = "its step takes another time than it says";
    return 0;
}

/* `text` ends with a line, and with NUL. */
static int parse(const struct task_graph *g, const char *key, const char *text,
                 struct dynamic_result *ret, const char **ret_why) {
    const char *at = text + strlen(MAGIC), *way;
    uint32_t n_tasks, n_devices;
    double step_usec;
    int r;

    *ret_why = "it is the plan of something else";
    if (strncmp(at, key, KEPT_PLAN_KEY_SIZE - 1) != 0)
        return -EBADMSG;
    at += KEPT_PLAN_KEY_SIZE - 1;
    if (!skip(&at, '\n') || !read_number(&at, &n_tasks) || !skip(&at, ' ') ||
        !read_number(&at, &n_devices) || !skip(&at, ' ') || !read_usec(&at, &ret->begun_usec) ||
        !skip(&at, ' ') || !read_usec(&at, &step_usec) || !skip(&at, ' ') ||
        n_tasks != g->n_tasks || n_devices != g->n_devices)
        return -EBADMSG;
    way = at;
    at += strcspn(at, "\n");
    ret->way = way_of(way, (size_t)(at - way));
    r = assignment_init(&ret->plan, g);
    if (r < 0)
        return r;
    *ret_why = skip(&at, '\n') ? read_devices(g, &at, &ret->plan) : "it is cut off";
    if (!*ret_why)
        r = judge(g, &ret->plan, step_usec, ret_why);
    return *ret_why ? -EBADMSG : r;
}

int kept_plan_parse(const struct task_graph *g, const char *key, const char *text, size_t n,
                    struct dynamic_result *ret, const char **ret_why) {
    static const char ending[] = "end 01234567\n";
    const size_t tail = strlen(ending);
    char sum[sizeof(ending)], *copy;
    int r;

    *ret = (struct dynamic_result){ .lacking_device = TASK_GRAPH_NONE };
    *ret_why = "it is no plan, cut off or damaged";
    if (n < strlen(MAGIC) + KEPT_PLAN_KEY_SIZE + tail || strncmp(text, MAGIC, strlen(MAGIC)) != 0 ||
        memchr(text, '\0', n))
        return -EBADMSG;
    snprintf(sum, sizeof(sum), "end %08" PRIx32 "\n", crc32c(0, text, n - tail));
    if (memcmp(text + n - tail, sum, tail) != 0 || text[n - tail - 1] != '\n')
        return -EBADMSG;
    copy = strndup(text, n - tail);
    if (!copy)
        return -ENOMEM;
    r = parse(g, key, copy, ret, ret_why);
    free(copy);
    if (r < 0) {
        assignment_done(&ret->plan);
        *ret = (struct dynamic_result){ .lacking_device = TASK_GRAPH_NONE };
    }
    return r;
}
