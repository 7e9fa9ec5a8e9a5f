/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/run/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/exec/run/run_state.h"
#include "libclient/exec/plan/planned_step.h"
#include "libclient/exec/plan/program.h"
#include "libclient/exec/run/queue.h"
#include "libclient/exec/run/gpu_times.h"

int trace_new(struct trace **ret, const struct program *program, const struct trace *before) {
    struct trace *trace = calloc(1, sizeof(*trace) + program->n_items * sizeof(struct trace_event));

    if (!trace)
        return -ENOMEM;
    trace->program = program;
    trace->before = before;
    trace->n_events = program->n_items;
    if (program->has_gpu && gpu_times_new(&trace->gpu_times, program) < 0) {
        trace_free(trace);
        return -ENOMEM;
    }
    *ret = trace;
    return 0;
}

struct trace *trace_free(struct trace *trace) {
    if (trace)
        gpu_times_free(trace->gpu_times);
    free(trace);
    return NULL;
}

int trace_item(struct trace *trace, struct run_state *state, uint32_t i, uint32_t thread) {
    struct trace_event *event = &trace->events[i];
    int r;

    event->thread = thread;
    event->begin_nsec = clock_nsec(CLOCK_MONOTONIC);
    r = state->items[i].fn(&state->items[i].run);
    event->end_nsec = clock_nsec(CLOCK_MONOTONIC);
    event->code = r;
    return r;
}

/* Microseconds with three digits behind a point, which printf() would make the locale's comma. */
#define USEC          "%" PRIu64 ".%03" PRIu64
#define USEC_OF(nsec) (uint64_t)(nsec) / 1000, (uint64_t)(nsec) % 1000

/* `writer` is reused for all texts: it keeps its memory, and whether that ever ran out. */
static void write_text(struct json_writer *writer, const char *text, FILE *file) {
    writer->len = 0;
    writer->comma = false;
    json_put_string(writer, text);
    fwrite(writer->data, 1, writer->len, file);
}

/* Two texts as one. */
static void write_label(struct json_writer *writer, const char *what, const char *name,
                        FILE *file) {
    char text[256];

    snprintf(text, sizeof(text), "%s%s", what, name);
    write_text(writer, text, file);
}

static const char *item_op(const struct program_item *item) {
    return item->kind == ITEM_COPY ? "Copy" : item->node ? item->node->op->name : "Nothing";
}

/* A span of a row. */
struct span {
    const char *category;
    uint32_t pid, tid;
    uint64_t begin_nsec, end_nsec;
    const char *remark; /* NULL: none */
};

static void write_span(struct json_writer *writer, const struct program_item *item,
                       const struct span *span, uint64_t start_nsec, FILE *file) {
    fputs(",\n{\"ph\":\"X\",\"name\":", file);
    write_text(writer, item->node ? item->node->name : item_op(item), file);
    fputs(",\"cat\":", file);
    write_text(writer, span->category, file);
    fprintf(file,
            ",\"pid\":%u,\"tid\":%u,\"ts\":" USEC ",\"dur\":" USEC ",\"args\":{\"op\":", span->pid,
            span->tid, USEC_OF(span->begin_nsec - start_nsec),
            USEC_OF(span->end_nsec - span->begin_nsec));
    write_text(writer, item_op(item), file);
    if (item->joined) {
        fputs(",\"done by\":", file);
        write_text(writer, item->joined->name, file);
    }
    if (span->remark)
        fprintf(file, ",\"%s\":true", span->remark);
    fputs("}}", file);
}

/* The host's work is on the row of its thread, whatever device it was for; a GPU's work is on the
 * row of its stream, and its queueing on that of the thread. */
static void write_event(struct json_writer *writer, const struct program *program,
                        const struct trace_event *event, uint32_t i, uint64_t start_nsec,
                        FILE *file) {
    const struct program_item *item = &program->items[i];
    bool is_queued = queue_has_work(item), has_ended = event->gpu_end_nsec;
    struct span span = {
        .category = is_queued ? "Queue" : item_op(item),
        .tid = event->thread,
        .begin_nsec = event->begin_nsec,
        .end_nsec = event->end_nsec,
        .remark = event->code < 0           ? "failed"
                  : is_queued && !has_ended ? "unfinished"
                                            : NULL,
    };

    write_span(writer, item, &span, start_nsec, file);
    if (!is_queued || !has_ended)
        return;
    span = (struct span){ .category = item_op(item),
                          .pid = item->device,
                          .tid = queue_stream_number(item),
                          .begin_nsec = event->gpu_begin_nsec,
                          .end_nsec = event->gpu_end_nsec };
    write_span(writer, item, &span, start_nsec, file);
}

static uint64_t begin_of(const struct trace_event *event) {
    return event->gpu_end_nsec ? event->gpu_begin_nsec : event->begin_nsec;
}

static uint64_t end_of(const struct trace_event *event) {
    return event->gpu_end_nsec ? event->gpu_end_nsec : event->end_nsec;
}

/* A point of the memory timeline: a value begins or ends to be live. */
struct live_change {
    uint64_t nsec;
    uint32_t value;
    bool is_end;
};

/* Values that end make room for those that begin at the same time. */
static int by_time(const void *a, const void *b) {
    const struct live_change *x = a, *y = b;

    return x->nsec != y->nsec ? (x->nsec > y->nsec) - (x->nsec < y->nsec) : y->is_end - x->is_end;
}

static int by_size(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/*
 * The slab of one device, cut wherever a value begins or ends in it. Values that overlap, as those
 * of ops that work in place do, are live together; their bytes are counted once.
 */
struct trace_memory {
    const struct program *program;
    uint64_t *ends; /* by value: when the last item that has it was over; 0: it never was */
    struct live_change *changes; /* two for each value */
    size_t n_changes;
    uint64_t *cuts;  /* offsets, in order */
    uint32_t *cover; /* by the part behind a cut: how many values live there */
    size_t n_cuts;
};

static void memory_done(struct trace_memory *memory) {
    free(memory->ends);
    free(memory->changes);
    free(memory->cuts);
    free(memory->cover);
}

static int memory_init(struct trace_memory *memory, const struct program *program) {
    const size_t n = 2 * (size_t)program->n_values + 1;

    *memory = (struct trace_memory){
        .program = program,
        .ends = calloc((size_t)program->n_values + 1, sizeof(*memory->ends)),
        .changes = malloc(n * sizeof(*memory->changes)),
        .cuts = malloc(n * sizeof(*memory->cuts)),
        .cover = calloc(n, sizeof(*memory->cover)),
    };
    return memory->ends && memory->changes && memory->cuts && memory->cover ? 0 : -ENOMEM;
}

static void see_end(struct trace_memory *memory, uint32_t value, uint64_t nsec) {
    if (value != PROGRAM_NONE && nsec > memory->ends[value])
        memory->ends[value] = nsec;
}

/* From the item that makes a value to the last that reads it. */
static void find_lives(struct trace_memory *memory, const struct trace *trace, uint32_t device) {
    const struct program *program = memory->program;
    size_t n_cuts = 0;

    for (uint32_t i = 0; i < program->n_items; i++) {
        const struct program_item *item = &program->items[i];
        const uint64_t end = end_of(&trace->events[i]);

        for (uint32_t a = 0; a < item->n_inputs + item->n_outputs; a++)
            see_end(memory, program->args[item->first_arg + a], end);
        see_end(memory, item->scratch, end);
    }
    for (uint32_t i = 0; i < program->n_items; i++) {
        const struct program_item *item = &program->items[i];
        const uint32_t first = item->first_arg + item->n_inputs;

        for (uint32_t a = 0; a <= item->n_outputs; a++) {
            const uint32_t v = a < item->n_outputs ? program->args[first + a] : item->scratch;
            const struct program_value *value = v == PROGRAM_NONE ? NULL : &program->values[v];
            const uint64_t begin = begin_of(&trace->events[i]);

            if (!value || value->where != VALUE_SLAB || value->space != device ||
                value->bytes == 0 || begin == 0 || begin >= memory->ends[v])
                continue;
            memory->changes[memory->n_changes++] = (struct live_change){ begin, v, false };
            memory->changes[memory->n_changes++] = (struct live_change){ memory->ends[v], v, true };
            memory->cuts[n_cuts++] = value->offset;
            memory->cuts[n_cuts++] = value->offset + value->bytes;
        }
    }
    if (n_cuts)
        qsort(memory->cuts, n_cuts, sizeof(*memory->cuts), by_size);
    for (size_t i = 0; i < n_cuts; i++)
        if (memory->n_cuts == 0 || memory->cuts[memory->n_cuts - 1] != memory->cuts[i])
            memory->cuts[memory->n_cuts++] = memory->cuts[i];
    if (memory->n_changes)
        qsort(memory->changes, memory->n_changes, sizeof(*memory->changes), by_time);
}

/* Bytes that become live (or, negative, end) at this point. */
static int64_t make_change(struct trace_memory *memory, const struct live_change *change) {
    const struct program_value *value = &memory->program->values[change->value];
    const uint64_t *at =
        bsearch(&value->offset, memory->cuts, memory->n_cuts, sizeof(*memory->cuts), by_size);
    int64_t bytes = 0;

    for (size_t k = (size_t)(at - memory->cuts); memory->cuts[k] < value->offset + value->bytes;
         k++) {
        const int64_t part = (int64_t)(memory->cuts[k + 1] - memory->cuts[k]);

        if (change->is_end)
            bytes -= --memory->cover[k] == 0 ? part : 0;
        else
            bytes += memory->cover[k]++ == 0 ? part : 0;
    }
    return bytes;
}

static int write_memory(const struct trace *trace, uint32_t device, uint64_t start_nsec,
                        FILE *file) {
    cleanup(memory_done) struct trace_memory memory;
    int64_t live = 0;

    if (memory_init(&memory, trace->program) < 0)
        return -ENOMEM;
    find_lives(&memory, trace, device);
    for (size_t i = 0; i < memory.n_changes; i++) {
        const struct live_change *change = &memory.changes[i];

        live += make_change(&memory, change);
        if (i + 1 < memory.n_changes && change[1].nsec == change->nsec)
            continue;
        fprintf(file,
                ",\n{\"ph\":\"C\",\"name\":\"live bytes\",\"pid\":%u,\"ts\":" USEC ","
                "\"args\":{\"bytes\":%" PRId64 "}}",
                device, USEC_OF(change->nsec - start_nsec), live);
    }
    return 0;
}

static void find_stage_ends(const struct trace *trace, uint64_t *begin_nsec, uint64_t *end_nsec) {
    for (uint32_t i = 0; i < trace->n_events; i++) {
        const struct trace_event *event = &trace->events[i];

        if (!event->begin_nsec)
            continue;
        *begin_nsec = MIN(*begin_nsec, event->begin_nsec);
        *begin_nsec = MIN(*begin_nsec, begin_of(event));
        *end_nsec = MAX(*end_nsec, event->end_nsec);
        *end_nsec = MAX(*end_nsec, end_of(event));
    }
}

/* When the first thing began, and when the last was over. */
static void find_ends(const struct trace *last, uint64_t *ret_begin_nsec, uint64_t *ret_end_nsec) {
    *ret_begin_nsec = UINT64_MAX;
    *ret_end_nsec = 0;
    for (const struct trace *trace = last; trace; trace = trace->before)
        find_stage_ends(trace, ret_begin_nsec, ret_end_nsec);
    if (*ret_end_nsec == 0)
        *ret_begin_nsec = 0;
}

/* ---- The planned step -------------------------------------------------------------------------
 *
 * A process for each device beside that of what happened: a row of ops, a row of copies from each
 * other device, and the bytes. It begins when the stage did.
 */

enum { PLANNED_PID = 1000 };

static uint32_t planned_row(const struct planned_span *span) {
    return span->from == PLANNED_OP ? 0 : 1 + span->from;
}

static void write_planned(struct json_writer *writer, const struct planned_step *step,
                          uint64_t begin_nsec, FILE *file) {
    for (size_t i = 0; i < step->n_spans; i++) {
        const struct planned_span *span = &step->spans[i];
        const bool is_op = span->from == PLANNED_OP;
        const uint64_t from = (uint64_t)(span->begin_usec * 1000);

        fputs(",\n{\"ph\":\"X\",\"name\":", file);
        write_text(writer, span->node->name, file);
        fprintf(file,
                ",\"cat\":\"Planned\",\"pid\":%u,\"tid\":%u,\"ts\":" USEC ",\"dur\":" USEC
                ",\"args\":{\"op\":",
                PLANNED_PID + span->device, planned_row(span), USEC_OF(begin_nsec + from),
                USEC_OF((uint64_t)(span->end_usec * 1000) - from));
        write_text(writer, is_op ? span->node->op->name : "Copy", file);
        fputs("}}", file);
    }
    for (size_t i = 0; i < step->n_levels; i++)
        fprintf(file,
                ",\n{\"ph\":\"C\",\"name\":\"planned bytes\",\"pid\":%u,\"ts\":" USEC
                ",\"args\":{\"bytes\":%" PRIu64 "}}",
                PLANNED_PID + step->levels[i].device,
                USEC_OF(begin_nsec + (uint64_t)(step->levels[i].usec * 1000)),
                step->levels[i].bytes);
}

/* Names of the processes and rows, so that the plan of a device stands beside it. */
static void write_planned_names(struct json_writer *writer, const struct program *program,
                                uint32_t device, FILE *file) {
    fprintf(file,
            ",\n{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%u,\"args\":{"
            "\"sort_index\":%u}},\n{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%u,"
            "\"args\":{\"sort_index\":%u}},\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,"
            "\"args\":{\"name\":",
            device, 2 * device + 1, PLANNED_PID + device, 2 * device, PLANNED_PID + device);
    write_label(writer, "planned: ", program->devices[device]->name, file);
    fprintf(file,
            "}},\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":0,\"args\":{"
            "\"name\":\"ops\"}}",
            PLANNED_PID + device);
    for (uint32_t from = 0; from < program->n_devices; from++) {
        if (from == device)
            continue;
        fprintf(file,
                ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%u,\"args\":{"
                "\"name\":",
                PLANNED_PID + device, 1 + from);
        write_label(writer, "copies from ", program->devices[from]->name, file);
        fputs("}}", file);
    }
}

static int write_stage(struct json_writer *writer, const struct trace *trace, uint64_t start_nsec,
                       FILE *file) {
    int r = 0;

    for (uint32_t d = 0; r == 0 && d < trace->program->n_devices; d++)
        r = write_memory(trace, d, start_nsec, file);
    for (uint32_t i = 0; r == 0 && i < trace->n_events; i++)
        if (trace->events[i].end_nsec)
            write_event(writer, trace->program, &trace->events[i], i, start_nsec, file);
    if (r == 0 && trace->program->planned) {
        uint64_t begin = UINT64_MAX, end = 0;

        find_stage_ends(trace, &begin, &end);
        if (end > 0)
            write_planned(writer, trace->program->planned, begin - start_nsec, file);
    }
    return r;
}

static void write_streams(uint32_t device, FILE *file) {
    static const char *const names[N_GPU_STREAMS] = {
        [GPU_COMPUTE] = "ops",
        [GPU_TO_HOST] = "copies to the host",
        [GPU_TO_DEVICE] = "copies to the device",
        [GPU_ADDEND] = "addends",
        [GPU_PEER... GPU_COLLECTIVE - 1] = "copies between replicas",
        [GPU_COLLECTIVE... GPU_PAGEABLE_TO_HOST - 1] = "sums over replicas",
        [GPU_PAGEABLE_TO_HOST] = "fetches",
        [GPU_PAGEABLE_TO_DEVICE] = "feeds",
    };

    for (uint32_t s = 0; s < N_GPU_STREAMS; s++)
        fprintf(file,
                ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%u,"
                "\"args\":{\"name\":\"%s\"}}",
                device, s, names[s]);
}

/* Where the run was cut short: a line across all rows, with the reason. */
static void write_cut(struct json_writer *writer, const struct allot_error *why, uint64_t nsec,
                      FILE *file) {
    fputs(",\n{\"ph\":\"i\",\"s\":\"g\",\"name\":", file);
    write_text(writer, why->text, file);
    fprintf(file, ",\"cat\":\"Outcome\",\"pid\":0,\"tid\":0,\"ts\":" USEC "}", USEC_OF(nsec));
}

static void write_outcome(struct json_writer *writer, const struct trace *last,
                          const struct allot_error *why, FILE *file) {
    bool is_stopped = why->code == -ETIMEDOUT || why->code == -ECANCELED;
    double planned = 0;

    for (const struct trace *trace = last; trace; trace = trace->before)
        planned += trace->program->planned ? trace->program->planned->usec : 0;

    fprintf(file, "\"otherData\":{\"outcome\":\"%s\"",
            why->code == 0 ? "done"
            : is_stopped   ? "stopped"
                           : "failed");
    if (why->code < 0) {
        fprintf(file, ",\"code\":%d,\"reason\":", why->code);
        write_text(writer, why->text, file);
    }
    if (planned > 0)
        fprintf(file, ",\"planned_usec\":" USEC, USEC_OF((uint64_t)(planned * 1000)));
    fputc('}', file);
}

static int write_trace(const struct trace *last, const struct allot_error *why, FILE *file) {
    struct json_writer writer = { 0 };
    uint64_t start_nsec, end_nsec;
    int r = 0;

    find_ends(last, &start_nsec, &end_nsec);
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
          "{\"ph\":\"M\",\"name\":\"trace\",\"pid\":0,\"args\":{}}",
          file);
    for (uint32_t d = 0; last && d < last->program->n_devices; d++) {
        fprintf(file,
                ",\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"args\":{\"name\":", d);
        write_text(&writer, last->program->devices[d]->name, file);
        fputs("}}", file);
        if (last->program->devices[d]->is_gpu)
            write_streams(d, file);
        if (last->program->planned)
            write_planned_names(&writer, last->program, d, file);
    }
    for (const struct trace *trace = last; r == 0 && trace; trace = trace->before)
        r = write_stage(&writer, trace, start_nsec, file);
    if (why->code < 0)
        write_cut(&writer, why, end_nsec - start_nsec, file);
    fputs("\n],\n", file);
    write_outcome(&writer, last, why, file);
    fputs("}\n", file);
    if (r == 0 && writer.failed)
        r = -ENOMEM;
    json_writer_done(&writer);
    return r == 0 && ferror(file) ? -EIO : r;
}

void trace_forget(const char *path) {
    /* If the file cannot be emptied, it is not the trace of an earlier run, or writing this one
     * will report the error. */
    if (truncate(path, 0) < 0)
        return;
}

int trace_save(const struct trace *last, const char *path, const struct allot_error *why,
               struct allot_error *err) {
    FILE *file = fopen(path, "we");
    int r;

    if (!file)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));
    r = write_trace(last, why, file);
    if (fclose(file) != 0 && r == 0)
        r = -errno;
    return r < 0 ? error_set(err, r, "%s: %s", path, strerror(-r)) : 0;
}
