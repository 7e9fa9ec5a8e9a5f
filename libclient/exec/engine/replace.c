/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/engine/replace.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/arena.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/units.h"
#include "libclient/core/log.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/device/gpu_memory.h"
#include "libclient/device/lease_news.h"
#include "libclient/exec/engine/engine.h"
#include "libclient/exec/engine/plan_lookup.h"
#include "libclient/lease/offers.h"

/* How long a run waits for others to end, so that it can leave a device. */
#define LEAVE_USEC UINT64_C(2000000)

/* A new plan has to be better by so much. */
#define BETTER 0.98

/* How often the plan for a kind of run is put in question. */
enum { REVIEWS_MAX = 4 };

static const char *short_name(const struct engine *engine, uint32_t device) {
    return machine_short_name(engine->devices[device]->name);
}

/* ---- Variables ------------------------------------------------------------------------------- */

/* Variables that change their device, for the log. */
struct moves {
    char names[320];
    uint32_t n, n_failed;
    uint64_t bytes;
    struct allot_error why; /* of the first that did not */
};

static void name_move(const struct engine *engine, struct moves *moves, const struct node *node,
                      uint32_t from, uint32_t to) {
    size_t n = strlen(moves->names);

    if (moves->n <= 4)
        snprintf(moves->names + n, sizeof(moves->names) - n, "%s'%.48s' %s -> %s",
                 moves->n > 1 ? ", " : "", node->name, short_name(engine, from),
                 short_name(engine, to));
    else if (moves->n == 5)
        snprintf(moves->names + n, sizeof(moves->names) - n, ", …");
}

/* With the gate closed and the plan lock held: bring every variable from where it was to where the
 * placement has it now. One that cannot move stays, and the placement says so. */
static void move_variables(struct engine *engine, const uint32_t *before, uint64_t lost,
                           struct moves *moves) {
    uint32_t *now = engine->placement.devices;

    for (uint32_t i = 0; i < engine->placement.n_nodes; i++) {
        const struct node *node = graph_node(engine->graph, i);
        struct variable *variable;
        struct allot_error err = { 0 };

        if (before[i] == now[i] || before[i] == PLACEMENT_NONE || now[i] == PLACEMENT_NONE ||
            strcmp(node->op->name, "Variable") != 0)
            continue;
        pthread_mutex_lock(&engine->variables.lock);
        variable = map_find(&engine->variables.by_node, i);
        pthread_mutex_unlock(&engine->variables.lock);
        if (variable &&
            variable_move(variable, engine->devices[now[i]], lost >> before[i] & 1, &err) < 0) {
            if (moves->n_failed++ == 0)
                moves->why = err;
            now[i] = before[i];
            continue;
        }
        moves->n++;
        moves->bytes += variable && variable->buffer ? variable->bytes : 0;
        name_move(engine, moves, node, before[i], now[i]);
    }
}

/* Where variables were, to be freed. NULL: no host memory. */
static uint32_t *remember(const struct engine *engine) {
    const struct placement *placement = &engine->placement;
    uint32_t *copy = malloc(((size_t)placement->n_nodes + 1) * sizeof(*copy));

    if (copy && placement->n_nodes > 0)
        memcpy(copy, placement->devices, placement->n_nodes * sizeof(*copy));
    return copy;
}

/* Nodes that were added to the placement since have no device. */
static void restore(struct engine *engine, const uint32_t *before, uint32_t n_before) {
    struct placement *placement = &engine->placement;

    for (uint32_t i = 0; i < placement->n_nodes; i++)
        placement->devices[i] = i < n_before ? before[i] : PLACEMENT_NONE;
}

/* Programs that know variables, or devices, that are elsewhere or gone. */
struct outdated {
    const struct engine *engine;
    const uint32_t *before; /* by node */
    uint32_t n_before;
    uint64_t devices;             /* bit mask */
    const struct program *itself; /* NULL: none */
};

static bool is_outdated(const struct program *program, void *data) {
    const struct outdated *outdated = data;
    const struct placement *placement = &outdated->engine->placement;

    if (program == outdated->itself)
        return true;
    for (uint32_t i = 0; i < program->n_variables; i++) {
        uint32_t node = program->variables[i];

        if (node < outdated->n_before && outdated->before[node] != PLACEMENT_NONE &&
            placement->devices[node] != outdated->before[node])
            return true;
    }
    for (uint32_t i = 0; i < program->n_items; i++)
        if (program->items[i].device < 64 && outdated->devices >> program->items[i].device & 1)
            return true;
    return false;
}

/* ---- Devices that are gone ------------------------------------------------------------------- */

/* What the daemon's news mean for this session. */
struct standing {
    uint64_t gone, lost; /* bit masks */
    uint64_t less;       /* devices that have less memory than plans were made for */
    uint64_t newly;      /* gone, and plans know nothing of it */
};

static void describe(struct dynamic_placement *dynamic, uint32_t device,
                     const struct lease_news *news) {
    static const char *const words[] = { [LEASE_SERVES] = "",
                                         [LEASE_DRAINING] = "is being drained",
                                         [LEASE_ENDING] = "is no longer leased",
                                         [LEASE_LOST] = "is lost" };

    snprintf(dynamic->gone_why[device], sizeof(dynamic->gone_why[device]), "%s%s%.120s%s",
             words[news->standing], *news->text ? " (" : "", news->text, *news->text ? ")" : "");
}

/* With the plan lock held. */
static struct standing look(struct engine *engine) {
    struct dynamic_placement *dynamic = engine->dynamic;
    struct standing standing = { 0 };

    for (uint32_t d = 1; d < dynamic->machine.n_devices; d++) {
        const struct device *device = engine->devices[d];
        const struct lease_news news = lease_news_of(device->gpu->uuid);
        const uint64_t bit = UINT64_C(1) << d;
        uint64_t left =
            device->memory_limit_bytes - MIN(news.recalled_bytes, device->memory_limit_bytes);

        if (news.standing != LEASE_SERVES) {
            standing.gone |= bit;
            standing.lost |= news.standing == LEASE_LOST ? bit : 0;
            describe(dynamic, d, &news);
        }
        if (left < dynamic->machine.devices[d].memory_bytes)
            standing.less |= bit;
        dynamic->machine.devices[d].memory_bytes = left;
    }
    standing.newly = standing.gone & ~dynamic->gone;
    return standing;
}

/* Values that are lost with their devices: how many, and of which variable. */
static uint32_t count_lost(struct engine *engine, uint64_t lost, const struct node **ret) {
    const struct placement *placement = &engine->placement;
    uint32_t n = 0;

    for (uint32_t i = 0; lost && i < placement->n_nodes; i++) {
        const struct variable *variable;

        if (placement->devices[i] == PLACEMENT_NONE || !(lost >> placement->devices[i] & 1))
            continue;
        pthread_mutex_lock(&engine->variables.lock);
        variable = map_find(&engine->variables.by_node, i);
        pthread_mutex_unlock(&engine->variables.lock);
        if (variable && variable->buffer && n++ == 0)
            *ret = graph_node(engine->graph, i);
    }
    return n;
}

/* Find other devices for the variables that lie on those that are gone. */
static int place_elsewhere(struct engine *engine, uint64_t gone, struct allot_error *err) {
    const struct placement_request request = { engine->graph, engine->devices, engine->n_devices,
                                               engine->options.soft_placement, NULL };
    struct placement *placement = &engine->placement;
    bool is_any = false;

    for (uint32_t i = 0; i < placement->n_nodes; i++)
        if (placement->devices[i] != PLACEMENT_NONE && gone >> placement->devices[i] & 1) {
            placement->devices[i] = PLACEMENT_NONE;
            is_any = true;
        }
    return is_any ? dynamic_placement_variables(engine->dynamic, &request, err) : 0;
}

static void tell_gone(const struct engine *engine, const struct standing *standing,
                      const struct moves *moves) {
    char bytes[UNITS_TEXT_SIZE];

    for (uint32_t d = 0; d < engine->dynamic->machine.n_devices; d++)
        if (standing->newly >> d & 1)
            log_say(ALLOT_LOG_WARNING,
                    "%s %s: steps are planned without it from now on%s; save a checkpoint if this "
                    "was unexpected, and make a new session for another lease",
                    short_name(engine, d), engine->dynamic->gone_why[d],
                    standing->gone == (UINT64_C(1) << engine->n_devices) - 2
                        ? ", on the CPU alone, as no GPU is left"
                        : "");
    if (moves->n)
        log_say(ALLOT_LOG_NOTICE, "%u variables (%s) moved: %s", moves->n,
                units_format_bytes(moves->bytes, bytes), moves->names);
}

static int fail_lost(const struct engine *engine, const struct standing *standing, uint32_t n_lost,
                     const struct node *first, struct allot_error *err) {
    uint32_t d = (uint32_t)__builtin_ctzll(standing->lost);

    return error_set(err, -ENODEV,
                     "%s %s, and the values of %u variables with it, '%.64s' among them: restore a "
                     "checkpoint or initialise them again, and run on with what is left",
                     short_name(engine, d), engine->dynamic->gone_why[d], n_lost, first->name);
}

/* A variable that stayed on a device that is gone. */
static int fail_stuck(const struct engine *engine, const struct standing *standing,
                      const struct moves *moves, struct allot_error *err) {
    uint32_t d = (uint32_t)__builtin_ctzll(standing->newly);

    return error_set(err, -ENODEV,
                     "%s %s, and %u of its variables have no room elsewhere (%.160s): free memory, "
                     "or make a new session with a larger lease and restore a checkpoint",
                     short_name(engine, d), engine->dynamic->gone_why[d], moves->n_failed,
                     moves->why.text);
}

/* Idle memory of the devices goes back to the lease, that of other sessions too. */
static void give_back(struct engine *engine, uint64_t devices) {
    for (uint32_t d = 1; d < engine->n_devices && d < 64; d++)
        if (devices >> d & 1) {
            while (cache_reclaim(engine->devices[d]))
                ;
            gpu_memory_trim(engine->devices[d]->gpu);
        }
}

/* With the gate closed and the plan lock held. */
static int leave_devices(struct engine *engine, const struct standing *standing,
                         struct allot_error *err) {
    cleanup(freep) uint32_t *before = remember(engine);
    const uint32_t n_before = engine->placement.n_nodes;
    struct outdated outdated = { engine, before, n_before, standing->newly | standing->less, NULL };
    const struct node *first = NULL;
    struct moves moves = { 0 };
    uint32_t n_lost;
    int r;

    if (!before)
        return error_set(err, -ENOMEM, "no host memory to plan anew");
    n_lost = count_lost(engine, standing->lost & standing->newly, &first);
    engine->dynamic->gone = standing->gone;
    r = place_elsewhere(engine, standing->newly, err);
    if (r < 0) {
        restore(engine, before, n_before);
        engine->dynamic->gone = standing->gone & ~standing->newly;
        return r;
    }
    move_variables(engine, before, standing->lost, &moves);
    cache_drop(&engine->cache, is_outdated, &outdated);
    give_back(engine, standing->newly & ~standing->lost);
    give_back(engine, standing->less & ~standing->gone);
    tell_gone(engine, standing, &moves);
    return moves.n_failed ? fail_stuck(engine, standing, &moves, err)
           : n_lost       ? fail_lost(engine, standing, n_lost, first, err)
                          : 0;
}

int replace_gone(struct engine *engine, struct allot_error *err) {
    const uint64_t n_news = engine->dynamic ? lease_news_count() : 0;
    struct standing standing;
    int r = 0;

    if (n_news == atomic_load_explicit(&engine->n_news_seen, memory_order_relaxed) ||
        !engine->dynamic || !engine->gpus)
        return 0;
    if (!run_gate_close(&engine->gate, LEAVE_USEC))
        return 0;
    stop_lock_take(&engine->plan_lock, NULL);
    standing = look(engine);
    if (standing.newly || standing.less)
        r = leave_devices(engine, &standing, err);
    else
        engine->dynamic->gone = standing.gone;
    /* What could not be left is tried again, and told again. */
    if (r == 0 || engine->dynamic->gone == standing.gone)
        atomic_store(&engine->n_news_seen, n_news);
    stop_lock_give(&engine->plan_lock);
    run_gate_open(&engine->gate);
    return r;
}

/* ---- Memory that others have ------------------------------------------------------------------
 */

/* What this process has of the GPU and could have more by now. */
static uint64_t bytes_within_reach(const struct engine *engine, uint32_t device) {
    const struct gpu *gpu = engine->devices[device]->gpu;
    struct lease_offer offer = { .device = gpu->uuid };
    struct arena_stats stats;
    struct allot_error ignored;

    arena_get_stats(gpu->arena, &stats);
    if (!engine->gpus->is_managed || lease_offers(&offer, 1, &ignored) < 0)
        return stats.cap_bytes;
    return MIN(stats.cap_bytes, stats.reserved_bytes + offer.free_bytes);
}

bool replace_shrunk(struct engine *engine, const struct program *program) {
    struct dynamic_placement *dynamic = engine->dynamic;
    struct outdated outdated = { .engine = engine };
    char now[UNITS_TEXT_SIZE], before[UNITS_TEXT_SIZE];

    for (uint32_t d = 1; d < dynamic->machine.n_devices; d++) {
        uint64_t bytes = program->slab_bytes[d] ? bytes_within_reach(engine, d) : UINT64_MAX;
        struct machine_device *device = &dynamic->machine.devices[d];

        stop_lock_take(&engine->plan_lock, NULL);
        if (bytes < device->memory_bytes) {
            log_say(ALLOT_LOG_NOTICE,
                    "%s can give %s instead of %s by now, as other jobs have the rest: steps that "
                    "do not fit are planned anew",
                    short_name(engine, d), units_format_bytes(bytes, now),
                    units_format_bytes(device->memory_bytes, before));
            device->memory_bytes = bytes;
            outdated.devices |= UINT64_C(1) << d;
        }
        stop_lock_give(&engine->plan_lock);
    }
    if (outdated.devices)
        cache_drop(&engine->cache, is_outdated, &outdated);
    return outdated.devices != 0;
}

/* ---- Plans that were wrong ------------------------------------------------------------------- */

/* The old plan, and what is to take its place. */
struct review {
    double expected_usec, measured_usec;
    struct program *program; /* the new one; NULL: none */
};

/* Let the search choose a device for the program's variables again. */
static void free_variables(struct engine *engine, const struct program *program) {
    for (uint32_t i = 0; i < program->n_variables; i++)
        if (program->variables[i] < engine->placement.n_nodes)
            engine->placement.devices[program->variables[i]] = PLACEMENT_NONE;
}

/* Ops that the two plans run on different devices. */
static uint32_t count_moved(const struct program_plan *a, const struct program_plan *b) {
    uint32_t n = 0;

    for (uint32_t t = 0; a->n_tasks == b->n_tasks && t < a->n_tasks; t++)
        n += a->device[t] != b->device[t];
    return n;
}

static void tell_review(const struct engine *engine, const struct review *review,
                        const struct program_plan *old, const struct moves *moves) {
    const struct program_plan *plan = review->program->plan;
    char bytes[UNITS_TEXT_SIZE];

    log_say(ALLOT_LOG_NOTICE,
            "re-placement: the old plan was expected to take %.1f us and takes %.1f us by what was "
            "measured in %u steps (%.2f times; replace_above is %.2f); the new plan takes %.1f us: "
            "%u of %u tasks change their device, and %u variables (%s)%s%s",
            review->expected_usec, review->measured_usec, engine->options.dynamic.n_measured,
            review->measured_usec / review->expected_usec, engine->options.dynamic.replace_above,
            plan->expected_usec, count_moved(old, plan), plan->n_tasks, moves->n,
            units_format_bytes(moves->bytes, bytes), moves->n ? ": " : "", moves->names);
}

static bool moves_any(const struct engine *engine, const uint32_t *before, uint32_t n_before) {
    for (uint32_t i = 0; i < n_before; i++)
        if (before[i] != PLACEMENT_NONE && engine->placement.devices[i] != before[i])
            return true;
    return false;
}

/* Put the new plan in place of the entry's. False: not now, and nothing has changed. */
static bool adopt(struct engine *engine, struct review *review, const uint32_t *before,
                  uint32_t n_before, const unsigned char *key, size_t key_bytes,
                  struct cache_entry **entry) {
    struct cache_entry *old = *entry, *fresh = NULL;
    struct outdated outdated = { engine, before, n_before, 0, old->program };
    const bool does_move = moves_any(engine, before, n_before);
    struct moves moves = { 0 };

    if (does_move &&
        (atomic_load(&engine->cache.n_stopped_runs) > 0 || !run_gate_close(&engine->gate, 0)))
        return false;
    if (does_move)
        move_variables(engine, before, 0, &moves);
    if (moves.n_failed)
        log_say(ALLOT_LOG_NOTICE, "re-placement: %u variables stay where they are (%s)",
                moves.n_failed, moves.why.text);
    cache_drop(&engine->cache, is_outdated, &outdated);
    /* Where some stayed, the program does not fit: the run plans with where they are now. */
    if (moves.n_failed == 0 &&
        cache_add(&engine->cache, key, key_bytes, review->program, &fresh) == 0) {
        tell_review(engine, review, old->program->plan, &moves);
        fresh->n_reviews = old->n_reviews + 1;
        review->program = NULL;
    }
    *entry = fresh;
    cache_release(&engine->cache, old);
    if (does_move)
        run_gate_open(&engine->gate);
    return true;
}

/* Search with what is known by now; false: there is nothing better. */
static bool search(struct engine *engine, const struct program_request *request,
                   const struct program *old, struct review *review) {
    const bool does_log = engine->dynamic->options.log;
    int r;

    free_variables(engine, old);
    engine->dynamic->options.log = false;
    r = plan_lookup_program(request, &review->program, NULL);
    engine->dynamic->options.log = does_log;
    if (r < 0)
        return false;
    return review->program->plan &&
           review->program->plan->expected_usec < review->measured_usec * BETTER;
}

void replace_review(struct engine *engine, const struct program_request *request,
                    const unsigned char *key, size_t key_bytes, struct cache_entry **entry) {
    const double above = engine->options.dynamic.replace_above;
    const struct program *old = (*entry)->program;
    struct review review = { .expected_usec = old->plan->expected_usec };
    cleanup(freep) uint32_t *before = NULL;
    const uint32_t n_before = engine->placement.n_nodes;
    struct dynamic_placement_plan shown = { 0 }; /* that explanations are about */
    bool is_adopted = false;
    double ratio;

    if (!atomic_exchange(&(*entry)->wants_review, false) || (*entry)->n_reviews >= REVIEWS_MAX)
        return;
    if (!run_gate_is_alone(&engine->gate)) { /* later */
        atomic_store(&(*entry)->wants_review, true);
        return;
    }
    before = remember(engine);
    if (!before ||
        dynamic_placement_time(engine->dynamic, request, old->plan, &review.measured_usec) < 0)
        return;
    ratio = review.measured_usec / review.expected_usec;
    if (!(ratio > above || ratio < 1 / above))
        return;
    dynamic_placement_show(engine->dynamic, &shown);
    if (!search(engine, request, old, &review))
        log_say(ALLOT_LOG_NOTICE,
                "re-placement: the plan was expected to take %.1f us and takes %.1f us by what was "
                "measured (%.2f times; replace_above is %.2f); no better one was found%s",
                review.expected_usec, review.measured_usec, ratio, above,
                review.program ? "" : ", as the search failed");
    else {
        is_adopted = adopt(engine, &review, before, n_before, key, key_bytes, entry);
        if (!is_adopted) { /* later */
            (*entry)->n_reviews++;
            atomic_store(&(*entry)->wants_review, true);
        }
    }
    if (!is_adopted) {
        restore(engine, before, n_before);
        dynamic_placement_show(engine->dynamic, &shown);
    }
    dynamic_placement_plan_done(&shown);
    program_free(review.program);
}
