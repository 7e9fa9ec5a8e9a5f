/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Blocks: the sections of the configuration while it is being read, and the table of their keys.
 *
 * A section that comes again, in the same file or in a drop-in, is the same block. Internal to
 * daemon/config/.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "daemon/config/config.h"

enum block_kind {
    BLOCK_ALLOTD,
    BLOCK_WATCH,
    BLOCK_HEALTH,
    BLOCK_ACCOUNTS,
    BLOCK_DEFAULTS,
    BLOCK_USER,
    BLOCK_GROUP,
    BLOCK_DEVICE,
};
#define BLOCK_KINDS (BLOCK_DEVICE + 1)
const char *block_kind_name(enum block_kind kind); /* "allotd", … */

struct config_place {
    const char *file; /* borrowed; NULL: nowhere */
    unsigned line;
};

/* Findings of one reading, for people. */
struct config_findings {
    struct config_report report;
    struct allot_error first; /* the first mistake */
    bool is_out_of_memory;
};
void config_find(struct config_findings *findings, struct config_place place, bool is_error,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

/* More keys than any section has. */
#define BLOCK_KEYS_MAX 64

struct block {
    struct list in_blocks;
    enum block_kind kind;
    char *name;    /* owned; of a user, group or device; else NULL */
    bool is_known; /* the user or group exists here; `id` is its number */
    uint32_t id;
    struct config_place at;                   /* where it came first */
    struct config_place keys[BLOCK_KEYS_MAX]; /* where each key of the table was last given */
    struct policy_rules rules;                /* users, groups, defaults */
    struct policy_device device;              /* devices */
    char *exclusive_for;                      /* owned; NULL: not given */
};

struct block *block_free(struct block *block); /* unlinks it; accepts NULL, returns NULL */

/* "[user alice]", cut if it is long. */
#define BLOCK_LABEL_SIZE 128
const char *block_label(const struct block *block, char text[static BLOCK_LABEL_SIZE]);

/*
 * Set `key` of `block` to `value`; settings that do not belong to a user go to `config`. Findings
 * say what is wrong, with `place`.
 */
void block_set(struct block *block, struct config *config, const char *key, const char *value,
               struct config_place place, struct config_findings *findings);

/* Where `key` was given in this block; `file` is NULL where it was not. */
struct config_place block_place(const struct block *block, const char *key);

/* Check what only the whole block shows: contradictions, and keys that need each other. */
void block_check(struct block *block, const struct block *defaults,
                 struct config_findings *findings);

/* A text of a stranger for a message: short and printable. */
#define BLOCK_QUOTE_SIZE 64
const char *block_quote(const char *value, char text[static BLOCK_QUOTE_SIZE]);
