/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inih splits lines into keys and values. But it knows neither line numbers nor lines beyond 200
 * bytes, and takes an indented key for a continuation of the value above. So a reader of ours feeds
 * it line by line: it counts lines, removes comments, tracks the sections, reports what is not a
 * valid line, and passes a long line in pieces that inih sees as one continued value. All findings
 * are collected, so that people can fix all of them at once.
 */
#include "daemon/config/config.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "daemon/config/block.h"
#include "daemon/config/value.h"

#define SIZE_LIMIT   (1 << 20) /* of one file */
#define FILES_MAX    256
#define FINDINGS_MAX 200
#define LINE_PIECE   150 /* bytes that inih surely takes, key and all */
#define VALUE_MAX    (64 << 10)

struct config_reading {
    struct config *config;
    struct config_findings *findings;
    struct list blocks;
    size_t n_blocks;
    const char *files[FILES_MAX]; /* owned names of what was read */
    size_t n_files;

    /* Of the file that is read now. */
    struct config_place place; /* of the line at hand */
    const char *rest, *end;    /* not read yet */
    struct block *block;       /* the section at hand; NULL: none, or one that is wrong */
    bool is_in_section;        /* false before the first one */
    const char *line_rest;     /* of a line that goes on in the next piece; NULL: none */
    size_t schedule_left;
    char *key, *value; /* owned: what is being put together; NULL: nothing */
    size_t value_size;
    struct config_place value_at;
};

/* ---- Findings ---- */

void config_report_done(struct config_report *report) {
    free(report->text);
    *report = (struct config_report){ 0 };
}

void config_find(struct config_findings *findings, struct config_place place, bool is_error,
                 const char *format, ...) {
    struct config_report *report = &findings->report;
    cleanup(freep) char *text = NULL, *line = NULL;
    size_t before = report->text ? strlen(report->text) : 0;
    char *longer;
    va_list ap;
    int n;

    va_start(ap, format);
    n = vasprintf(&text, format, ap);
    va_end(ap);
    if (n < 0) {
        text = NULL;
        findings->is_out_of_memory = true;
        return;
    }
    if (place.line > 0)
        n = asprintf(&line, "%s:%u: %s: %s\n", place.file, place.line,
                     is_error ? "error" : "warning", text);
    else
        n = asprintf(&line, "%s: %s: %s\n", place.file, is_error ? "error" : "warning", text);
    if (n < 0) {
        line = NULL;
        findings->is_out_of_memory = true;
        return;
    }
    /* The caller that prints it adds that it is an error. */
    if (is_error && report->n_errors++ == 0 && place.line > 0)
        error_set(&findings->first, -EINVAL, "%s:%u: %s", place.file, place.line, text);
    else if (is_error && report->n_errors == 1)
        error_set(&findings->first, -EINVAL, "%s: %s", place.file, text);
    if (!is_error)
        report->n_warnings++;
    if (report->n_errors + report->n_warnings > FINDINGS_MAX)
        return; /* counted but not printed: people do not read more at once */
    longer = realloc(report->text, before + (size_t)n + 1);
    if (!longer) {
        findings->is_out_of_memory = true;
        return;
    }
    memcpy(longer + before, line, (size_t)n + 1);
    report->text = longer;
}

/* ---- Sections ---- */

static struct block *block_get(struct config_reading *reading, enum block_kind kind,
                               const char *name, bool is_known, uint32_t id) {
    struct block *block;

    list_foreach (block, &reading->blocks, in_blocks) {
        if (block->kind != kind)
            continue;
        /* `root` and `0` are the same user. */
        if (is_known ? block->is_known && block->id == id
                     : !name || strcasecmp(block->name, name) == 0)
            return block;
    }
    if (reading->n_blocks++ >= 10000) {
        config_find(reading->findings, reading->place, true,
                    "more than 10000 sections: use groups");
        return NULL;
    }
    block = calloc(1, sizeof(*block));
    if (block && name)
        block->name = strdup(name);
    if (!block || (name && !block->name)) {
        free(block);
        reading->findings->is_out_of_memory = true;
        return NULL;
    }
    block->kind = kind;
    block->is_known = is_known;
    block->id = id;
    block->at = reading->place;
    block->rules.amount = AMOUNT_GROW;
    list_append(&reading->blocks, &block->in_blocks);
    return block;
}

/* `name` is a user, group or device; the block, or NULL with what is wrong. */
static struct block *block_named(struct config_reading *reading, enum block_kind kind,
                                 const char *name) {
    struct config_findings *findings = reading->findings;
    char quoted[BLOCK_QUOTE_SIZE];
    bool is_known = false;
    uint32_t id = 0;
    struct block *block;
    int r = -ENOENT;

    block_quote(name, quoted);
    if (!*name) {
        config_find(findings, reading->place, true, "[%s] needs a name: [%s NAME]",
                    block_kind_name(kind), block_kind_name(kind));
        return NULL;
    }
    if (strpbrk(name, " \t,")) {
        config_find(findings, reading->place, true,
                    "[%s %s] has more than one name: a section is for one %s; write one for each%s",
                    block_kind_name(kind), quoted, block_kind_name(kind),
                    kind == BLOCK_USER ? ", or one for a group of theirs" : "");
        return NULL;
    }
    if (kind == BLOCK_USER)
        r = config_value_user(&id, name);
    else if (kind == BLOCK_GROUP)
        r = config_value_group(&id, name);
    findings->is_out_of_memory |= r == -ENOMEM;
    is_known = r == 0;
    block = block_get(reading, kind, name, is_known, id);
    if (!block)
        return NULL;
    if (kind == BLOCK_DEVICE) {
        const char *why = "";

        if (block->device.devices.n_names == 0 && !block->device.devices.all &&
            (strcasecmp(name, "none") == 0 ||
             config_value_devices(&block->device.devices, name, &why) < 0)) {
            config_find(findings, reading->place, true,
                        "[device %s]: expected all, or the UUID, "
                        "bus id or index of a device",
                        quoted);
            return NULL;
        }
    } else if (!is_known) {
        config_find(findings, reading->place, false,
                    "there is no %s %s on this machine: the section has no effect",
                    block_kind_name(kind), quoted);
    }
    return block;
}

/* A line that begins with [. */
static void section_begin(struct config_reading *reading, const char *line, size_t length) {
    char text[256], quoted[BLOCK_QUOTE_SIZE], *name;

    reading->is_in_section = true;
    reading->block = NULL;
    if (length >= sizeof(text) || line[length - 1] != ']' || memchr(line, ']', length - 1)) {
        config_find(reading->findings, reading->place, true,
                    "a section is written [NAME], alone on its line");
        return;
    }
    memcpy(text, line + 1, length - 2);
    text[length - 2] = '\0';
    name = text + strcspn(text, " \t");
    if (*name)
        *name++ = '\0';
    name += strspn(name, " \t");
    for (enum block_kind kind = 0; kind < BLOCK_KINDS; kind++) {
        if (strcmp(text, block_kind_name(kind)) != 0)
            continue;
        if (kind >= BLOCK_USER) {
            reading->block = block_named(reading, kind, name);
        } else if (*name) {
            config_find(reading->findings, reading->place, true, "[%s] takes no name", text);
        } else {
            reading->block = block_get(reading, kind, NULL, false, 0);
        }
        return;
    }
    config_find(reading->findings, reading->place, true,
                "there is no section [%s]: sections are allotd, watch, health, accounts, defaults, "
                "user NAME, group NAME, device NAME",
                block_quote(text, quoted));
}

/* ---- Lines ---- */

/* The value that was put together is complete: set it. */
static void value_end(struct config_reading *reading) {
    if (reading->key && reading->block)
        block_set(reading->block, reading->config, reading->key, reading->value, reading->value_at,
                  reading->findings);
    free(reading->key);
    free(reading->value);
    reading->key = reading->value = NULL;
    reading->value_size = 0;
}

static size_t without_comment(const char *line, size_t length) {
    for (size_t i = 1; i < length; i++)
        if ((line[i] == ';' || line[i] == '#') && isspace((unsigned char)line[i - 1])) {
            length = i;
            break;
        }
    while (length > 0 && isspace((unsigned char)line[length - 1]))
        length--;
    return length;
}

/* The next line of the file, prepared for inih; its length is 0 if there is nothing in it. */
static const char *line_next(struct config_reading *reading, size_t *ret_length) {
    const char *line = reading->rest;
    const char *newline = memchr(line, '\n', (size_t)(reading->end - line));
    size_t length = (size_t)((newline ? newline : reading->end) - line);
    bool is_indented;

    reading->rest = newline ? newline + 1 : reading->end;
    reading->place.line++;
    *ret_length = 0;
    if (reading->place.line == 1 && length >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0)
        line += 3, length -= 3;
    if (memchr(line, '\0', length)) {
        config_find(reading->findings, reading->place, true, "the line has a NUL byte");
        return line;
    }
    is_indented = length > 0 && isspace((unsigned char)*line);
    while (length > 0 && isspace((unsigned char)*line))
        line++, length--;
    if (length == 0 || *line == '#' || *line == ';')
        return line;
    length = without_comment(line, length);

    if (is_indented && reading->key) {
        if (memchr(line, '=', length)) {
            config_find(reading->findings, reading->place, true,
                        "a line that begins with a blank continues %s: remove the blank",
                        reading->key);
            return line;
        }
        *ret_length = length;
        return line - 1; /* the blank before it tells inih */
    }
    value_end(reading);
    if (*line == '[') {
        section_begin(reading, line, length);
        return line;
    }
    if (!reading->is_in_section) {
        config_find(reading->findings, reading->place, true, "this is before the first [section]");
        return line;
    }
    if (*line == '=' || *line == ':' || !memchr(line, '=', length)) {
        config_find(reading->findings, reading->place, true, "expected [section] or key = value");
        return line;
    }
    *ret_length = length;
    return line;
}

/* inih's reader: like fgets(). One line, or one piece of it, or NULL. */
static char *read_piece(char *buffer, int size, void *stream) {
    struct config_reading *reading = stream;
    size_t length, piece;
    const char *line;
    bool is_more = reading->line_rest != NULL;

    if (is_more) {
        line = reading->line_rest;
        length = reading->schedule_left;
        reading->line_rest = NULL;
    } else {
        if (reading->rest >= reading->end)
            return NULL;
        line = line_next(reading, &length);
        if (length > 0 && isspace((unsigned char)*line))
            line++, is_more = true;
    }

    piece = length;
    if (piece > LINE_PIECE) {
        piece = LINE_PIECE;
        while (piece > 0 && !isspace((unsigned char)line[piece]) && line[piece - 1] != ',')
            piece--;
        if (piece == 0 || (!is_more && !memchr(line, '=', piece))) {
            config_find(reading->findings, reading->place, true,
                        "the line has a word that is too long");
            piece = length = 0;
        }
    }
    if (piece < length) {
        reading->line_rest = line + piece;
        reading->schedule_left = length - piece;
        while (reading->schedule_left > 0 && isspace((unsigned char)*reading->line_rest))
            reading->line_rest++, reading->schedule_left--;
        if (reading->schedule_left == 0)
            reading->line_rest = NULL;
    }
    snprintf(buffer, (size_t)size, "%s%.*s\n", is_more && piece > 0 ? " " : "", (int)piece, line);
    return buffer;
}

/* inih's handler: a key and its value, or more of it. */
static int take_pair(void *userdata, const char *section, const char *key, const char *value) {
    struct config_reading *reading = userdata;
    size_t more = strlen(value);
    char *longer;

    if (reading->key && strcmp(reading->key, key) == 0) {
        if (reading->value_size + more + 2 > VALUE_MAX) {
            config_find(reading->findings, reading->place, true, "the value of %s is too long",
                        reading->key);
            return 1;
        }
        longer = realloc(reading->value, reading->value_size + more + 2);
        if (!longer) {
            reading->findings->is_out_of_memory = true;
            return 1;
        }
        longer[reading->value_size] = ' ';
        memcpy(longer + reading->value_size + 1, value, more + 1);
        reading->value = longer;
        reading->value_size += more + 1;
        return 1;
    }
    value_end(reading);
    reading->key = strdup(key);
    reading->value = strdup(value);
    reading->value_size = more;
    reading->value_at = reading->place;
    if (!reading->key || !reading->value) {
        free(reading->key);
        reading->key = NULL;
        reading->findings->is_out_of_memory = true;
    }
    return 1;
}

/* Read one text; `name` must live as long as the reading. */
static void read_text(struct config_reading *reading, const char *name, const char *text,
                      size_t size) {
    reading->place = (struct config_place){ name, 0 };
    reading->rest = text;
    reading->end = text + size;
    reading->block = NULL;
    reading->is_in_section = false;
    reading->line_rest = NULL;
    if (ini_parse_stream(read_piece, reading, take_pair, reading) != 0)
        config_find(reading->findings, (struct config_place){ name, 0 }, true,
                    "cannot be read as key = value");
    value_end(reading);
}

/* ---- Whole ---- */

struct config *config_free(struct config *config) {
    if (!config)
        return NULL;
    policy_done(&config->policy);
    free(config);
    return NULL;
}

static struct config *config_new(void) {
    struct config *config = calloc(1, sizeof(*config));

    if (!config)
        return NULL;
    config->sample_usec = 1000000;
    config->stale_usec = 2000000;
    config->max_connections = 1024;
    config->show_programs = true;
    strcpy(config->admin_group, CONFIG_ADMIN_GROUP);
    config->retention_usec = UINT64_C(400) * 24 * 3600 * 1000000; /* a year and the month after */
    config->quota_period_usec = UINT64_C(30) * 24 * 3600 * 1000000;
    policy_init(&config->policy);
    watch_rules_default(&config->watch);
    health_rules_default(&config->health);
    return config;
}

/* Move the blocks into the policy. */
static int assemble(struct config_reading *reading) {
    struct policy *policy = &reading->config->policy;
    size_t n_sections = 0, n_devices = 0;
    struct block *block;

    list_foreach (block, &reading->blocks, in_blocks) {
        n_sections += (block->kind == BLOCK_USER || block->kind == BLOCK_GROUP) && block->is_known;
        n_devices += block->kind == BLOCK_DEVICE;
    }
    policy->sections = calloc(n_sections + 1, sizeof(*policy->sections));
    policy->devices = calloc(n_devices + 1, sizeof(*policy->devices));
    if (!policy->sections || !policy->devices)
        return -ENOMEM;
    list_foreach (block, &reading->blocks, in_blocks) {
        if (block->kind == BLOCK_DEFAULTS) {
            policy->defaults = block->rules;
            block->rules.devices = (struct policy_names){ 0 };
        } else if (block->kind == BLOCK_DEVICE) {
            policy->devices[policy->n_devices++] = block->device;
            block->device = (struct policy_device){ 0 };
        } else if ((block->kind == BLOCK_USER || block->kind == BLOCK_GROUP) && block->is_known) {
            policy->sections[policy->n_sections++] = (struct policy_section){
                .who = block->kind == BLOCK_USER ? POLICY_USER : POLICY_GROUP,
                .id = block->id,
                .rules = block->rules,
            };
            block->rules.devices = (struct policy_names){ 0 };
        }
    }
    policy->defaults.quota_period_usec = reading->config->quota_period_usec;
    policy->defaults.has |= POLICY_HAS(quota_period_usec);
    policy->require = reading->config->is_locked ? REQUIRE_SCOPE : REQUIRE_GUARD;
    return 0;
}

static void reading_check(struct config_reading *reading) {
    struct block *block, *defaults = NULL;

    list_foreach (block, &reading->blocks, in_blocks)
        if (block->kind == BLOCK_DEFAULTS)
            defaults = block;
    list_foreach (block, &reading->blocks, in_blocks)
        block_check(block, defaults, reading->findings);
}

static void reading_done(struct config_reading *reading) {
    struct block *block, *following;

    list_foreach_safe (block, following, &reading->blocks, in_blocks)
        block_free(block);
    for (size_t i = 0; i < reading->n_files; i++)
        free((char *)(uintptr_t)reading->files[i]);
    free(reading->key);
    free(reading->value);
}

/* All files are read: check, assemble, hand over. */
static int reading_end(struct config_reading *reading, struct config **ret,
                       struct config_report *report, struct allot_error *err) {
    struct config_findings *findings = reading->findings;
    struct config *config = reading->config;
    int r = config_value_group(&config->admin_gid, config->admin_group);

    config->has_admin_gid = r == 0;
    findings->is_out_of_memory |= r == -ENOMEM;
    r = 0;
    reading_check(reading);
    if (findings->is_out_of_memory || (findings->report.n_errors == 0 && assemble(reading) < 0))
        r = error_set(err, -ENOMEM, "out of memory");
    else if (findings->report.n_errors > 0) {
        r = findings->first.code;
        if (err)
            *err = findings->first;
    }
    if (report)
        *report = findings->report;
    else
        config_report_done(&findings->report);
    if (r == 0)
        *ret = TAKE(reading->config);
    config_free(reading->config);
    reading_done(reading);
    return r;
}

static int reading_begin(struct config_reading *reading, struct config_findings *findings,
                         struct allot_error *err) {
    *reading = (struct config_reading){ .findings = findings, .config = config_new() };
    list_init(&reading->blocks);
    return reading->config ? 0 : error_set(err, -ENOMEM, "out of memory");
}

int config_parse(struct config **ret, const char *name, const char *text, size_t size,
                 struct config_report *report, struct allot_error *err) {
    struct config_findings findings = { 0 };
    struct config_reading reading;
    int r;

    r = reading_begin(&reading, &findings, err);
    if (r < 0)
        return r;
    read_text(&reading, name, text, size);
    return reading_end(&reading, ret, report, err);
}

/* ---- Files ---- */

/* One file; false only if it is not there. The reading keeps `path`. */
static bool read_file(struct config_reading *reading, char *path) {
    struct config_place place = { path, 0 };
    cleanup(closep) int fd = -1;
    cleanup(freep) char *text = NULL;
    struct stat st;
    size_t at = 0;

    reading->files[reading->n_files++] = path;
    /* So that a pipe does not block us. */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return false;
    if (fd < 0 || fstat(fd, &st) < 0) {
        config_find(reading->findings, place, true, "cannot open: %s", strerror(errno));
        return true;
    }
    if (!S_ISREG(st.st_mode) || st.st_size > SIZE_LIMIT) {
        config_find(reading->findings, place, true,
                    S_ISREG(st.st_mode) ? "is larger than 1 MiB" : "is no file");
        return true;
    }
    text = malloc(SIZE_LIMIT);
    if (!text) {
        reading->findings->is_out_of_memory = true;
        return true;
    }
    while (at < SIZE_LIMIT) {
        ssize_t n = read(fd, text + at, SIZE_LIMIT - at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            config_find(reading->findings, place, true, "cannot read: %s", strerror(errno));
            return true;
        }
        if (n == 0)
            break;
        at += (size_t)n;
    }
    read_text(reading, path, text, at);
    return true;
}

static int is_dropin(const struct dirent *entry) {
    const char *dot = strrchr(entry->d_name, '.');

    return entry->d_name[0] != '.' && dot && strcmp(dot, ".conf") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void read_dropins(struct config_reading *reading, const char *path) {
    cleanup(freep) char *dir = NULL;
    struct dirent **entries = NULL;
    int n;

    if (asprintf(&dir, "%s.d", path) < 0) {
        dir = NULL;
        reading->findings->is_out_of_memory = true;
        return;
    }
    n = scandir(dir, &entries, is_dropin, by_name);
    if (n < 0) {
        if (errno != ENOENT)
            config_find(reading->findings, (struct config_place){ dir, 0 }, true, "cannot open: %s",
                        strerror(errno));
        return;
    }
    for (int i = 0; i < n; i++) {
        char *file = NULL;

        if (reading->n_files >= FILES_MAX)
            config_find(reading->findings, (struct config_place){ path, 0 }, true,
                        "has more than %d drop-ins; %s is left out", FILES_MAX - 1,
                        entries[i]->d_name);
        else if (asprintf(&file, "%s/%s", dir, entries[i]->d_name) < 0)
            reading->findings->is_out_of_memory = true;
        else
            read_file(reading, file);
        free(entries[i]);
    }
    free(entries);
}

int config_read(struct config **ret, const char *path, struct config_report *report,
                struct allot_error *err) {
    struct config_findings findings = { 0 };
    struct config_reading reading;
    char *copy;
    int r;

    r = reading_begin(&reading, &findings, err);
    if (r < 0)
        return r;
    copy = strdup(path);
    if (!copy)
        findings.is_out_of_memory = true;
    else if (!read_file(&reading, copy))
        config_find(&findings, (struct config_place){ copy, 0 }, strcmp(path, CONFIG_FILE) != 0,
                    strcmp(path, CONFIG_FILE) == 0
                        ? "there is no such file: the built-in defaults apply"
                        : "there is no such file");
    read_dropins(&reading, path);
    return reading_end(&reading, ret, report, err);
}

int config_check_main(const char *path) {
    struct config *config = NULL;
    struct config_report report = { 0 };
    struct allot_error err = { 0 };
    int r = config_read(&config, path, &report, &err);

    if (report.text)
        fputs(report.text, stdout);
    if (r < 0 && !report.n_errors)
        printf("%s: error: %s\n", path, err.text);
    else if (r < 0)
        printf("%s: %zu mistake%s: allotd would not start with it, and keeps its old configuration "
               "at a reload\n",
               path, report.n_errors, report.n_errors == 1 ? "" : "s");
    else
        printf("%s: fine%s\n", path, report.n_warnings ? ", but see above" : "");
    config_report_done(&report);
    config_free(config);
    return r < 0 ? 1 : 0;
}
