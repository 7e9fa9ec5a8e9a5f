/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Golden outputs: every view of two boxes, and some of a hostile one, at 80 and 160 columns, in
 * UTF-8 and ASCII. A view that is meant to change is written anew by ALLOT_GOLDEN_WRITE=1, and the
 * difference read before it is kept.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/safe_text.h"
#include "ctl/view/text.h"
#include "ctl/view/top.h"
#include "ctl/view/view.h"
#include "tests/support/suite.h"
#include "wire/snapshot.h"

#define NOW (UINT64_C(1794838800) * 1000000) /* 2026-11-16 14:20 UTC */

static char *slurp(const char *path, size_t *ret_n) {
    FILE *from = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;

    if (!from)
        return NULL;
    *ret_n = 0;
    for (;;) {
        text = realloc(text, size += 65536);
        ck_assert(text);
        *ret_n += fread(text + *ret_n, 1, size - *ret_n - 1, from);
        if (*ret_n < size - 1)
            break;
    }
    fclose(from);
    text[*ret_n] = '\0';
    return text;
}

static struct snapshot *load(const char *name) {
    char path[4096];
    struct snapshot *snapshot;
    struct allot_error err = {};
    cleanup(freep) char *text = NULL;
    size_t n;

    snprintf(path, sizeof(path), "%s/%s.json", TEST_GOLDEN, name);
    text = slurp(path, &n);
    ck_assert_msg(text, "cannot read %s", path);
    ck_assert_msg(snapshot_read(&snapshot, text, n, &err) == 0, "%s: %s", path, err.text);
    return snapshot;
}

typedef int (*print_fn)(const struct view *view, const struct term *term);

/* A line that is wider than the terminal would break the page. */
static void check_width(const char *page, unsigned width, const char *name) {
    cleanup(freep) char *copy = strdup(page);
    char *rest = NULL;

    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        ck_assert_msg(text_width(line) <= width, "%s: %zu columns: %s", name, text_width(line),
                      line);
}

/* Nothing but safe text, and lines. */
static void check_safe(const char *page, const char *name) {
    for (size_t left = strlen(page); left > 0;) {
        bool is_safe;
        const size_t n = safe_text_next(page, left, &is_safe);

        ck_assert_msg(is_safe || *page == '\n', "%s has unsafe text: %.40s", name, page);
        page += n;
        left -= n;
    }
}

static void compare(const char *name, const char *page) {
    char path[4096];
    cleanup(freep) char *golden = NULL;
    size_t n;

    snprintf(path, sizeof(path), "%s/%s.txt", TEST_GOLDEN, name);
    if (getenv("ALLOT_GOLDEN_WRITE")) {
        FILE *to = fopen(path, "w");

        ck_assert(to && fputs(page, to) >= 0);
        ck_assert_int_eq(fclose(to), 0);
        return;
    }
    golden = slurp(path, &n);
    ck_assert_msg(golden, "there is no %s: ALLOT_GOLDEN_WRITE=1 makes it", path);
    ck_assert_msg(!strcmp(page, golden), "%s is:\n%s\nand was:\n%s", name, page, golden);
}

static void check_view(const char *what, const char *box, print_fn print, bool is_managed) {
    struct snapshot *snapshot = load(box);
    const struct view view = {
        .box = &snapshot->box,
        .is_managed = is_managed,
        .trouble = is_managed ? NULL : "allotd does not answer",
        .now_usec = NOW,
    };

    for (int utf8 = 0; utf8 < 2; utf8++)
        for (unsigned width = 80; width <= 160; width += 80) {
            struct term term = { .utf8 = utf8, .width = width };
            char name[128];
            char *page = NULL;
            size_t n;

            term.out = open_memstream(&page, &n);
            ck_assert_int_eq(print(&view, &term), 0);
            fclose(term.out);
            snprintf(name, sizeof(name), "%s-%s-%u-%s", what, box, width, utf8 ? "utf8" : "ascii");
            check_width(page, width, name);
            if (!utf8)
                for (const char *c = page; *c; c++)
                    ck_assert_msg((unsigned char)*c < 0x80, "%s is not ASCII", name);
            check_safe(page, name);
            compare(name, page);
            free(page);
        }
    snapshot_free(snapshot);
}

START_TEST(status_shows_a_full_box) {
    check_view("status", "box", view_status, true);
}
END_TEST

START_TEST(status_shows_an_empty_box) {
    check_view("status", "empty", view_status, true);
}
END_TEST

START_TEST(status_says_that_nothing_is_managed) {
    check_view("unmanaged", "box", view_status, false);
}
END_TEST

START_TEST(devices_are_shown_in_full) {
    check_view("devices", "box", view_devices, true);
}
END_TEST

START_TEST(leases_are_shown) {
    check_view("leases", "box", view_leases, true);
}
END_TEST

START_TEST(the_queue_is_shown) {
    check_view("queue", "box", view_queue, true);
}
END_TEST

/* Three rounds, so that there is a history. */
static int print_top(const struct view *view, const struct term *term) {
    struct top top = {};
    int r;

    for (int i = 0; i < 3; i++)
        top_update(&top, view->box);
    r = top_print(&top, view, term);
    top_done(&top);
    return r;
}

START_TEST(top_has_a_page) {
    check_view("top", "box", print_top, true);
}
END_TEST

static int print_sorted(const struct view *view, const struct term *term) {
    struct top top = { .sort = TOP_USER, .reversed = true, .filter = "LLM" };
    const int r = top_print(&top, view, term);

    top_done(&top);
    return r;
}

START_TEST(top_sorts_and_filters) {
    check_view("top-llm", "box", print_sorted, true);
}
END_TEST

START_TEST(narrow_terminals_lose_columns_not_lines) {
    struct snapshot *snapshot = load("box");
    const struct view view = { .box = &snapshot->box, .is_managed = true, .now_usec = NOW };

    for (unsigned width = 40; width <= 300; width++) {
        struct term term = { .utf8 = true, .width = width };
        char *page = NULL;
        size_t n;

        term.out = open_memstream(&page, &n);
        ck_assert_int_eq(view_status(&view, &term), 0);
        ck_assert_int_eq(print_top(&view, &term), 0);
        fclose(term.out);
        if (width >= 72)
            check_width(page, width, "status");
        free(page);
    }
    snapshot_free(snapshot);
}
END_TEST

/* JSON, and CSV of every table; a suffix of `name` is the table's. */
static void check_data(const char *box, const char *json, const char *csv) {
    static const char *const tables[] = { "devices", "leases", "processes", "queue" };
    struct snapshot *snapshot = load(box);
    const struct view view = { .box = &snapshot->box, .is_managed = true, .now_usec = NOW };
    char *page = NULL;
    size_t n;
    FILE *out;

    out = open_memstream(&page, &n);
    ck_assert_int_eq(view_json(&view, out), 0);
    fclose(out);
    check_safe(page, json);
    compare(json, page);
    free(page);
    for (size_t i = 0; i < ELEMENTSOF(tables); i++) {
        enum view_csv_table table;
        char name[64];

        ck_assert_int_eq(view_csv_table_parse(&table, tables[i]), 0);
        out = open_memstream(&page, &n);
        view_csv(&snapshot->box, table, out);
        fclose(out);
        snprintf(name, sizeof(name), "%s-%s", csv, tables[i]);
        check_safe(page, name);
        compare(name, page);
        free(page);
    }
    snapshot_free(snapshot);
}

START_TEST(json_and_csv_are_as_they_were) {
    check_data("box", "json-box", "csv");
}
END_TEST

START_TEST(hostile_names_are_shown_and_do_nothing) {
    check_view("status", "hostile", view_status, true);
    check_view("devices", "hostile", view_devices, true);
    check_view("top", "hostile", print_top, true);
    check_data("hostile", "json-hostile", "csv-hostile");
}
END_TEST

SUITE_TIMEOUT("view", 120, status_shows_a_full_box, status_shows_an_empty_box,
              status_says_that_nothing_is_managed, devices_are_shown_in_full, leases_are_shown,
              the_queue_is_shown, top_has_a_page, top_sorts_and_filters,
              narrow_terminals_lose_columns_not_lines, json_and_csv_are_as_they_were,
              hostile_names_are_shown_and_do_nothing)
