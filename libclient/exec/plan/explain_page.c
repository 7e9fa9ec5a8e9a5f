/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Explain page: the last plan of the dynamic placer as one HTML page that needs nothing else, to be
 * opened in a browser or sent to somebody.
 *
 *     the whole in one sentence
 *     legend: the kinds of op that take most time
 *       GPU:0  |####|  |######|      ops
 *              |  =     ==    |      copies that arrive
 *              |__/‾‾\__/‾‾‾\_|      bytes, against what the lease gives
 *       GPU:1  …
 *              0      10     20 us
 *     a table: every op, its device, when, and why there
 *
 * Spans that are too short to see are drawn together, so that a page of 100,000 ops stays small.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/safe_text.h"
#include "base/units.h"
#include "libclient/exec/plan/dynamic_placement.h"
#include "libclient/exec/plan/explain.h"
#include "libclient/graph/graph.h"
#include "libclient/place/timeline.h"

/* In pixels. */
enum {
    LEFT = 90,
    WIDTH = 1080,
    RIGHT = 30,
    OPS_HEIGHT = 26,
    COPIES_HEIGHT = 10,
    MEMORY_HEIGHT = 44,
    GAP = 22,
    AXIS_HEIGHT = 28,
    ROW_HEIGHT = OPS_HEIGHT + COPIES_HEIGHT + MEMORY_HEIGHT + GAP,
};

#define LEAST_PIXELS 0.4 /* a shorter span is drawn with its neighbours */
enum { N_COLOURS = 7, ROWS_MAX = 5000, KINDS_MAX = 256 };

/* The ops of one kind. */
struct op_kind {
    const char *name;
    double usec;
};

struct page {
    const struct dynamic_placement *dynamic;
    const struct task_graph *graph;
    const struct assignment *plan;
    struct timeline_record record;
    struct op_kind kinds[KINDS_MAX]; /* those that take most time first */
    uint32_t n_kinds;
    FILE *to;
};

/* Text in HTML, with nothing that a terminal or a browser would obey. */
static void put_text(struct page *page, const char *text) {
    char safe[1024];

    safe_text_escape(safe, sizeof(safe), text, strlen(text));
    for (const char *c = safe; *c; c++)
        switch (*c) {
        case '<':
            fputs("&lt;", page->to);
            break;
        case '>':
            fputs("&gt;", page->to);
            break;
        case '&':
            fputs("&amp;", page->to);
            break;
        case '"':
            fputs("&quot;", page->to);
            break;
        default:
            fputc(*c, page->to);
        }
}

/* Two digits behind a point, which printf() would make the locale's comma. */
static void put_number(struct page *page, double value) {
    long long hundredths = llround(value * 100);

    fprintf(page->to, "%s%lld.%02lld", hundredths < 0 ? "-" : "", llabs(hundredths) / 100,
            llabs(hundredths) % 100);
}

static void put_attribute(struct page *page, const char *name, double value) {
    fprintf(page->to, " %s=\"", name);
    put_number(page, value);
    fputc('"', page->to);
}

static const struct node *node_of(const struct page *page, uint32_t task) {
    return graph_node(page->dynamic->graph, page->dynamic->last.build.node[task]);
}

static bool is_op(const struct page *page, uint32_t task) {
    return !page->dynamic->last.build.is_fetch[task];
}

static double cost_of(const struct page *page, uint32_t task) {
    return task_graph_cost(page->graph, task, page->plan->device[task]);
}

static double x_of(const struct page *page, double usec) {
    double whole = page->plan->makespan_usec;

    return LEFT + (whole > 0 ? usec / whole * WIDTH : 0);
}

static double y_of(uint32_t device) {
    return (double)device * ROW_HEIGHT + GAP;
}

/* ---- Kinds of op ----------------------------------------------------------------------------- */

static int by_usec(const void *a, const void *b) {
    const struct op_kind *x = a, *y = b;

    return x->usec != y->usec ? (x->usec < y->usec ? 1 : -1) : strcmp(x->name, y->name);
}

static uint32_t kind_of(const struct page *page, const char *name) {
    uint32_t k = 0;

    while (k < page->n_kinds && strcmp(page->kinds[k].name, name) != 0)
        k++;
    return k;
}

static void find_kinds(struct page *page) {
    for (uint32_t t = 0; t < page->graph->n_tasks; t++) {
        const char *name = node_of(page, t)->op->name;
        uint32_t k = kind_of(page, name);

        if (!is_op(page, t) || k == KINDS_MAX)
            continue;
        if (k == page->n_kinds)
            page->kinds[page->n_kinds++] = (struct op_kind){ name, 0 };
        page->kinds[k].usec += cost_of(page, t);
    }
    qsort(page->kinds, page->n_kinds, sizeof(*page->kinds), by_usec);
}

static uint32_t colour_of(const struct page *page, const char *name) {
    return MIN(kind_of(page, name), (uint32_t)N_COLOURS);
}

static void put_legend(struct page *page) {
    fputs("<p class=\"legend\">", page->to);
    for (uint32_t k = 0; k < page->n_kinds && k < N_COLOURS; k++) {
        fprintf(page->to, "<span><i class=\"c%u\"></i>", k);
        put_text(page, page->kinds[k].name);
        fputc(' ', page->to);
        put_number(page, page->kinds[k].usec);
        fputs(" us</span> ", page->to);
    }
    if (page->n_kinds > N_COLOURS)
        fprintf(page->to, "<span><i class=\"c%d\"></i>%u other kinds</span> ", N_COLOURS,
                page->n_kinds - N_COLOURS);
    fputs("<span><i class=\"copy\"></i>copies that arrive</span> "
          "<span><i class=\"memory\"></i>bytes in use</span></p>\n",
          page->to);
}

/* ---- The picture ----------------------------------------------------------------------------- */

/* A bar with a text that appears under the pointer. */
struct bar {
    double begin_usec, end_usec, y, height;
    char css[8];
    char text[768];
    uint32_t n; /* spans in it */
};

static void put_bar(struct page *page, const struct bar *bar) {
    double x = x_of(page, bar->begin_usec);

    if (bar->n == 0)
        return;
    fprintf(page->to, "<rect class=\"%s\"", bar->css);
    put_attribute(page, "x", x);
    put_attribute(page, "y", bar->y);
    put_attribute(page, "width", fmax(x_of(page, bar->end_usec) - x, LEAST_PIXELS));
    put_attribute(page, "height", bar->height);
    fputs("><title>", page->to);
    if (bar->n == 1)
        put_text(page, bar->text);
    else
        fprintf(page->to, "%u short ones", bar->n);
    fputs("</title></rect>\n", page->to);
}

/* Draw what was collected, unless the next span still is so close that both make one bar. */
static void add_bar(struct page *page, struct bar *last, const struct bar *next) {
    bool is_short = x_of(page, next->end_usec) - x_of(page, next->begin_usec) < LEAST_PIXELS;
    bool follows =
        last->n > 0 && x_of(page, next->begin_usec) - x_of(page, last->end_usec) < LEAST_PIXELS;

    if (is_short && follows &&
        (last->n > 1 || x_of(page, last->end_usec) - x_of(page, last->begin_usec) < LEAST_PIXELS)) {
        last->end_usec = fmax(last->end_usec, next->end_usec);
        last->n++;
        return;
    }
    put_bar(page, last);
    *last = *next;
}

static void put_ops(struct page *page, uint32_t device) {
    struct bar last = { .n = 0 };

    for (uint32_t i = page->plan->first[device]; i < page->plan->first[device + 1]; i++) {
        uint32_t task = page->plan->sequence[i];
        const struct node *node = node_of(page, task);
        double start = page->record.start_usec[task];
        struct bar bar = { .begin_usec = start,
                           .end_usec = start + cost_of(page, task),
                           .y = y_of(device),
                           .height = OPS_HEIGHT,
                           .n = 1 };

        if (!is_op(page, task) || cost_of(page, task) <= 0)
            continue;
        snprintf(bar.css, sizeof(bar.css), "c%u", colour_of(page, node->op->name));
        snprintf(bar.text, sizeof(bar.text), "%.256s (%s): %.2f us from %.2f us", node->name,
                 node->op->name, cost_of(page, task), start);
        add_bar(page, &last, &bar);
    }
    put_bar(page, &last);
}

static void put_copies(struct page *page, uint32_t device) {
    struct bar last = { .n = 0 };

    for (size_t i = 0; i < page->record.n_transfers; i++) {
        const struct timeline_transfer *transfer = &page->record.transfers[i];
        struct bar bar = { .begin_usec = transfer->start_usec,
                           .end_usec = transfer->end_usec,
                           .y = y_of(device) + OPS_HEIGHT + 2,
                           .height = COPIES_HEIGHT - 2,
                           .css = "copy",
                           .n = 1 };
        char bytes[UNITS_TEXT_SIZE];
        uint32_t from = page->plan->device[transfer->task];

        if (transfer->to != device || transfer->end_usec <= transfer->start_usec)
            continue;
        snprintf(bar.text, sizeof(bar.text), "%.256s, %s from %.64s: %.2f us from %.2f us",
                 node_of(page, transfer->task)->name,
                 units_format_bytes(page->graph->output_bytes[transfer->task], bytes),
                 machine_short_name(page->dynamic->machine.devices[from].name),
                 transfer->end_usec - transfer->start_usec, transfer->start_usec);
        add_bar(page, &last, &bar);
    }
    put_bar(page, &last);
}

static void put_memory(struct page *page, uint32_t device) {
    const uint64_t peak = page->plan->peak_bytes[device], cap = page->graph->memory_bytes[device];
    /* A cap far above the peak would press the curve flat, and is only named. */
    const bool shows_cap = cap != UINT64_MAX && peak > 0 && cap / 4 <= peak;
    const double top = (double)(shows_cap ? MAX(cap, peak) : MAX(peak, UINT64_C(1)));
    const double bottom = y_of(device) + OPS_HEIGHT + COPIES_HEIGHT + MEMORY_HEIGHT;
    double before = bottom, drawn = -1;

    fputs("<path class=\"memory\" d=\"M", page->to);
    put_number(page, LEFT);
    fputc(' ', page->to);
    put_number(page, bottom);
    for (size_t i = page->record.first_level[device]; i < page->record.first_level[device + 1];
         i++) {
        const struct timeline_level *level = &page->record.levels[i];
        double x = x_of(page, level->usec);
        double y = bottom - (double)level->bytes / top * (MEMORY_HEIGHT - 4);

        /* Of what lies in one pixel, the highest point is drawn. */
        if (x - drawn < LEAST_PIXELS && y >= before && i + 1 < page->record.first_level[device + 1])
            continue;
        fputs(" H", page->to);
        put_number(page, x);
        fputs(" V", page->to);
        put_number(page, y);
        before = y;
        drawn = x;
    }
    fputs(" H", page->to);
    put_number(page, LEFT + WIDTH);
    fputs(" V", page->to);
    put_number(page, bottom);
    fputs(" Z\"/>\n", page->to);
    if (shows_cap) {
        double y = bottom - (double)cap / top * (MEMORY_HEIGHT - 4);

        fputs("<path class=\"cap\" d=\"M", page->to);
        put_number(page, LEFT);
        fputc(' ', page->to);
        put_number(page, y);
        fputs(" H", page->to);
        put_number(page, LEFT + WIDTH);
        fputs("\"/>\n", page->to);
    }
}

static void put_device(struct page *page, uint32_t device) {
    const uint64_t cap = page->graph->memory_bytes[device];
    char peak[UNITS_TEXT_SIZE], of[UNITS_TEXT_SIZE];

    fputs("<text class=\"name\"", page->to);
    put_attribute(page, "x", LEFT - 8);
    put_attribute(page, "y", y_of(device) + 18);
    fputc('>', page->to);
    put_text(page, machine_short_name(page->dynamic->machine.devices[device].name));
    fputs("</text>\n<text class=\"peak\"", page->to);
    put_attribute(page, "x", LEFT);
    put_attribute(page, "y", y_of(device) - 5);
    fprintf(page->to, ">%u ops, peak %s", page->plan->first[device + 1] - page->plan->first[device],
            units_format_bytes(page->plan->peak_bytes[device], peak));
    if (cap != UINT64_MAX)
        fprintf(page->to, " of %s", units_format_bytes(cap, of));
    fputs("</text>\n", page->to);
    put_memory(page, device);
    put_ops(page, device);
    put_copies(page, device);
}

/* Marks at round times, five to ten of them. */
static void put_axis(struct page *page) {
    const double whole = page->plan->makespan_usec, y = y_of(page->graph->n_devices) - GAP + 4;
    double step = whole > 0 ? pow(10, floor(log10(whole))) : 1;

    if (whole / step < 2)
        step /= 5;
    else if (whole / step < 5)
        step /= 2;
    for (double usec = 0; whole > 0 && usec <= whole; usec += step) {
        fputs("<path class=\"mark\" d=\"M", page->to);
        put_number(page, x_of(page, usec));
        fputs(" 6 V", page->to);
        put_number(page, y);
        fputs("\"/><text class=\"time\"", page->to);
        put_attribute(page, "x", x_of(page, usec));
        put_attribute(page, "y", y + 14);
        fputc('>', page->to);
        if (step >= 1)
            fprintf(page->to, "%.0f", usec);
        else
            put_number(page, usec);
        fputs(" us</text>\n", page->to);
    }
}

static void put_picture(struct page *page) {
    const uint32_t height = page->graph->n_devices * ROW_HEIGHT + AXIS_HEIGHT;

    fprintf(page->to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %u\" role=\"img\" "
            "aria-label=\"devices over time, in microseconds\">\n",
            LEFT + WIDTH + RIGHT, height);
    put_axis(page);
    for (uint32_t d = 0; d < page->graph->n_devices; d++)
        put_device(page, d);
    fputs("</svg>\n", page->to);
}

/* ---- The table ------------------------------------------------------------------------------- */

static int put_table(struct page *page) {
    const struct dynamic_placement_plan *plan = &page->dynamic->last;
    uint32_t n_tasks = page->graph->n_tasks, n_rows = 0;
    cleanup(freep) uint32_t *by_rank = malloc(((size_t)n_tasks + 1) * sizeof(*by_rank));
    int r = by_rank ? 0 : -ENOMEM;

    for (uint32_t t = 0; r == 0 && t < n_tasks; t++)
        by_rank[plan->rank[t]] = t;
    fputs("<table><thead><tr><th>op</th><th>kind</th><th>device</th><th>begins, us</th>"
          "<th>takes, us</th><th>why there</th></tr></thead><tbody>\n",
          page->to);
    for (uint32_t i = 0; r == 0 && i < n_tasks && n_rows < ROWS_MAX; i++) {
        uint32_t task = by_rank[i];
        const struct node *node = node_of(page, task);
        char why[EXPLAIN_WHY_SIZE] = "";

        if (!is_op(page, task))
            continue;
        r = explain_task(page->dynamic, task, why);
        fputs("<tr><td>", page->to);
        put_text(page, node->name);
        fputs("</td><td>", page->to);
        put_text(page, node->op->name);
        fputs("</td><td>", page->to);
        put_text(page,
                 machine_short_name(page->dynamic->machine.devices[page->plan->device[task]].name));
        fputs("</td><td class=\"n\">", page->to);
        put_number(page, page->record.start_usec[task]);
        fputs("</td><td class=\"n\">", page->to);
        put_number(page, cost_of(page, task));
        fputs("</td><td>", page->to);
        put_text(page, why);
        fputs("</td></tr>\n", page->to);
        n_rows++;
    }
    fputs("</tbody></table>\n", page->to);
    if (n_rows == ROWS_MAX)
        fprintf(page->to, "<p>The first %d ops; allot_session_explain() has all.</p>\n", ROWS_MAX);
    return r;
}

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<title>A planned step</title>\n<style>\n"
    ":root{--ink:#1c2330;--dim:#68707f;--line:#d9dde5;--paper:#fff}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e4e7ee;--dim:#98a1b3;--line:#363d4b;"
    "--paper:#161a22}}\n"
    "body{font:14px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);"
    "margin:24px auto;max-width:1200px;padding:0 12px}\n"
    "h1{font-size:20px}svg{width:100%;height:auto;display:block}\n"
    "svg text{fill:var(--dim);font-size:11px}svg .name{fill:var(--ink);font-size:13px;"
    "text-anchor:end}svg .time{text-anchor:middle}\n"
    ".mark{stroke:var(--line);fill:none}.cap{stroke:#c0392b;stroke-dasharray:4 3;fill:none}\n"
    "path.memory{fill:#7f8fa955;stroke:#7f8fa9;stroke-width:.7}i.memory{background:#7f8fa9}\n"
    "rect{rx:1px;stroke:var(--paper);stroke-width:.4}rect.copy{fill:#c98a1b}i.copy{background:#"
    "c98a1b}\n"
    "rect.c0{fill:#2f6db5}i.c0{background:#2f6db5}rect.c1{fill:#3c9d6b}i.c1{background:#3c9d6b}\n"
    "rect.c2{fill:#8a5fbf}i.c2{background:#8a5fbf}rect.c3{fill:#c4567a}i.c3{background:#c4567a}\n"
    "rect.c4{fill:#3aa0b0}i.c4{background:#3aa0b0}rect.c5{fill:#7d8b2f}i.c5{background:#7d8b2f}\n"
    "rect.c6{fill:#a5653a}i.c6{background:#a5653a}rect.c7{fill:#8b93a3}i.c7{background:#8b93a3}\n"
    ".legend span{margin-right:14px;white-space:nowrap}.legend i{display:inline-block;width:11px;"
    "height:11px;border-radius:2px;margin-right:5px}\n"
    "table{border-collapse:collapse;margin-top:18px;width:100%}td,th{text-align:left;padding:3px "
    "8px;border-bottom:1px solid var(--line);vertical-align:top}td.n{text-align:right;"
    "font-variant-numeric:tabular-nums}\n"
    "</style></head><body>\n<h1>A planned step</h1>\n<p>";

int explain_page(const struct dynamic_placement *dynamic, char **ret) {
    struct page page = { .dynamic = dynamic,
                         .graph = &dynamic->last.build.graph,
                         .plan = &dynamic->last.result.plan };
    char *text = NULL;
    cleanup(freep) char *whole = NULL;
    size_t size;
    int r;

    if (page.graph->n_tasks == 0)
        return -ENODATA;
    r = timeline_record(page.graph, page.plan, &page.record);
    if (r == 0)
        r = explain_whole(dynamic, &whole);
    page.to = r == 0 ? open_memstream(&text, &size) : NULL;
    if (!page.to) {
        timeline_record_done(&page.record);
        return -ENOMEM;
    }
    find_kinds(&page);
    fputs(head, page.to);
    put_text(&page, whole);
    fputs(".</p>\n", page.to);
    put_legend(&page);
    put_picture(&page);
    r = put_table(&page);
    fputs("</body></html>\n", page.to);
    if (fclose(page.to) != 0)
        r = -ENOMEM;
    timeline_record_done(&page.record);
    if (r < 0) {
        free(text);
        return r;
    }
    *ret = text;
    return 0;
}
