/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpuctl-top: the page of ctl/view/top.c on the whole screen, live. `gpuctl top` starts it.
 *
 * The page is printed into memory as for a terminal and drawn from there: its colours become
 * attributes of ncurses, and it can be scrolled. One loop reads the box at intervals, and handles
 * keys in between.
 */
#include <errno.h>
#include <locale.h>
#include <ncurses.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "ctl/gpuctl.h"
#include "ctl/source/box_view.h"
#include "ctl/view/text.h"
#include "ctl/view/top.h"

struct screen {
    struct gpuctl ctl;
    struct client *client;
    struct top top;
    struct box_view box_view;
    bool has_box_view;
    char trouble[512]; /* why the box could not be read */
    char *page;
    size_t page_len;
    unsigned first; /* line of the page at the top of the screen */
    unsigned n_lines;
    uint64_t pause_usec;
    bool typing; /* the user is typing the filter */
    bool helping;
};

static void take(struct screen *screen) {
    struct allot_error err = {};

    if (screen->has_box_view)
        box_view_done(&screen->box_view);
    screen->has_box_view =
        box_view_take(&screen->box_view, &screen->ctl, screen->client, &err) == 0;
    if (screen->has_box_view)
        top_update(&screen->top, &screen->box_view.box);
    snprintf(screen->trouble, sizeof(screen->trouble), "%s", err.text);
}

static const char help_text[] =
    "q         quit\n"
    "s         sort by memory, user, GPU, age or number\n"
    "r         reverse the order\n"
    "/         show only what has this text: user, name, command, container\n"
    "Esc       show all again\n"
    "+ -       faster, slower\n"
    "Space     update now\n"
    "arrows    up and down, also PgUp, PgDn, Home\n"
    "h ?       this text, and back\n";

/* Print the page again from the current view. */
static void render(struct screen *screen) {
    struct term term = {
        .is_tty = true,
        .utf8 = screen->ctl.term.utf8,
        .colour = has_colors(),
        .width = MAX(COLS, 40),
    };

    free(screen->page);
    screen->page = NULL;
    screen->n_lines = 0;
    term.out = open_memstream(&screen->page, &screen->page_len);
    if (!term.out)
        return;
    if (screen->helping)
        fputs(help_text, term.out);
    else if (!screen->has_box_view)
        term_paragraph(&term, STYLE_BAD, 0, screen->trouble);
    else
        top_print(&screen->top, &screen->box_view.view, &term);
    if (fclose(term.out) != 0) {
        free(screen->page);
        screen->page = NULL;
        return;
    }
    for (size_t i = 0; i < screen->page_len; i++)
        screen->n_lines += screen->page[i] == '\n';
}

/* The ncurses attributes for the sequences that ctl/view/term.c writes. */
static attr_t attributes(const char *sequence) {
    if (!strncmp(sequence, "\033[1;31m", 7))
        return A_BOLD | COLOR_PAIR(3);
    if (!strncmp(sequence, "\033[1m", 4))
        return A_BOLD;
    if (!strncmp(sequence, "\033[2m", 4))
        return A_DIM;
    if (!strncmp(sequence, "\033[32m", 5))
        return COLOR_PAIR(1);
    if (!strncmp(sequence, "\033[33m", 5))
        return COLOR_PAIR(2);
    return A_NORMAL;
}

static void draw_line(int row, const char *line, const char *end) {
    attr_t attr = A_NORMAL;

    move(row, 0);
    while (line < end) {
        const char *escape = memchr(line, '\033', end - line);
        const char *stop = escape ? escape : end;

        attrset(attr);
        if (stop > line)
            addnstr(line, stop - line);
        if (!escape)
            break;
        attr = attributes(escape);
        line = memchr(escape, 'm', end - escape);
        line = line ? line + 1 : end;
    }
    attrset(A_NORMAL);
}

static void draw_foot(const struct screen *screen) {
    char pause[UNITS_TEXT_SIZE];

    attrset(A_REVERSE);
    move(LINES - 1, 0);
    if (screen->typing)
        printw("filter: %s_", screen->top.filter);
    else
        printw("q quit  h help  s sort: %s%s  / filter%s%s  every %s",
               top_sort_name(screen->top.sort), screen->top.reversed ? " reversed" : "",
               *screen->top.filter ? ": " : "", screen->top.filter,
               units_format_usec(screen->pause_usec, pause));
    for (int x = getcurx(stdscr); x < COLS && getcury(stdscr) == LINES - 1; x++)
        addch(' ');
    attrset(A_NORMAL);
}

static void draw(struct screen *screen) {
    const unsigned rows = LINES > 1 ? LINES - 1 : 1;
    const char *line = screen->page, *end = line + screen->page_len;
    unsigned number = 0;

    if (screen->first + rows > screen->n_lines)
        screen->first = screen->n_lines > rows ? screen->n_lines - rows : 0;
    erase();
    while (line && line < end) {
        const char *stop = memchr(line, '\n', end - line);

        stop = stop ? stop : end;
        if (number >= screen->first && number < screen->first + rows)
            draw_line(number - screen->first, line, stop);
        number++;
        line = stop + 1;
    }
    draw_foot(screen);
    refresh();
}

static void type_key(struct screen *screen, int key) {
    char *filter = screen->top.filter;
    const size_t length = strlen(filter);

    if (key == '\n' || key == '\r' || key == KEY_ENTER)
        screen->typing = false;
    else if (key == 27) {
        screen->typing = false;
        *filter = '\0';
    } else if ((key == KEY_BACKSPACE || key == 127 || key == 8) && length > 0)
        filter[length - 1] = '\0';
    else if (key >= ' ' && key < 127 && length + 1 < sizeof(screen->top.filter)) {
        filter[length] = key;
        filter[length + 1] = '\0';
    }
}

/* Whether to go on; `*ret_now`: read the box at once. */
static bool press_key(struct screen *screen, int key, bool *ret_now) {
    const unsigned rows = LINES > 2 ? LINES - 2 : 1;

    if (screen->typing) {
        type_key(screen, key);
        return true;
    }
    switch (key) {
    case 'q':
        return false;
    case 's':
        screen->top.sort = (screen->top.sort + 1) % TOP_SORTS;
        break;
    case 'r':
        screen->top.reversed = !screen->top.reversed;
        break;
    case '/':
        screen->typing = true;
        break;
    case 27:
        *screen->top.filter = '\0';
        screen->helping = false;
        break;
    case 'h':
    case '?':
        screen->helping = !screen->helping;
        screen->first = 0;
        break;
    case '+':
        screen->pause_usec = MAX(screen->pause_usec / 2, UINT64_C(250000));
        break;
    case '-':
        screen->pause_usec = MIN(screen->pause_usec * 2, UINT64_C(60000000));
        break;
    case ' ':
        *ret_now = true;
        break;
    case KEY_UP:
        screen->first -= screen->first > 0;
        break;
    case KEY_DOWN:
        screen->first++;
        break;
    case KEY_PPAGE:
        screen->first -= MIN(screen->first, rows);
        break;
    case KEY_NPAGE:
        screen->first += rows;
        break;
    case KEY_HOME:
        screen->first = 0;
        break;
    default: /* includes a resized window: the page is drawn again in any case */
        break;
    }
    return true;
}

static void watch(struct screen *screen) {
    uint64_t next_usec = 0;
    bool goes_on = true;

    while (goes_on) {
        uint64_t now_usec = clock_usec(CLOCK_MONOTONIC);
        bool now = false;
        int key;

        if (now_usec >= next_usec) {
            take(screen);
            now_usec = clock_usec(CLOCK_MONOTONIC);
            next_usec = now_usec + screen->pause_usec;
        }
        render(screen);
        draw(screen);
        timeout(next_usec > now_usec ? (next_usec - now_usec + 999) / 1000 : 0);
        key = getch();
        if (key == ERR)
            continue;
        goes_on = press_key(screen, key, &now);
        if (now || next_usec > clock_usec(CLOCK_MONOTONIC) + screen->pause_usec)
            next_usec = 0;
    }
}

static int open_screen(void) {
    if (!newterm(NULL, stdout, stdin))
        return gpuctl_complain(
            EXIT_FAILED,
            "the terminal type %s is unknown on this host; use \"gpuctl status --watch\" instead",
            getenv("TERM") ? getenv("TERM") : "(TERM is not set)");
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    set_escdelay(50);
    curs_set(0);
    if (has_colors()) {
        start_color();
        use_default_colors();
        init_pair(1, COLOR_GREEN, -1);
        init_pair(2, COLOR_YELLOW, -1);
        init_pair(3, COLOR_RED, -1);
    }
    return EXIT_OK;
}

/* gpuctl-top SOCKET DRIVER USEC ASCII, as `gpuctl top` calls it; an empty socket means the
 * default. */
int main(int argc, char **argv) {
    struct screen screen = { .pause_usec = 2000000 };
    struct allot_error err = {};
    int status;

    if (argc != 5 || !option_driver_is_known(argv[2]))
        return gpuctl_complain(
            EXIT_USAGE, "gpuctl-top is an internal part of gpuctl: run \"gpuctl top\" instead");
    screen.ctl.driver = argv[2];
    screen.ctl.socket = *argv[1] ? argv[1] : NULL;
    screen.pause_usec = strtoull(argv[3], NULL, 10);
    setlocale(LC_CTYPE, "");
    term_init(&screen.ctl.term, stdout, TERM_AUTO, !strcmp(argv[4], "ascii"));
    if (!screen.ctl.term.is_tty || !isatty(STDIN_FILENO))
        return gpuctl_complain(EXIT_FAILED,
                               "top needs a terminal; \"gpuctl status --watch\" works without one");
    if (client_new(&screen.client, screen.ctl.socket, &err) < 0)
        return gpuctl_complain(EXIT_FAILED, "%s", err.text);
    signal(SIGPIPE, SIG_IGN);
    status = open_screen();
    if (status == EXIT_OK) {
        watch(&screen);
        endwin();
    }
    if (screen.has_box_view)
        box_view_done(&screen.box_view);
    top_done(&screen.top);
    client_free(screen.client);
    free(screen.page);
    return status;
}
