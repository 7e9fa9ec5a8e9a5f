/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Words: the closed sets of words that interface, configuration, broker, liballot and gpuctl share.
 *
 * One list per set, X(name, value, word). Values begin at 1: 0 is none, or not given. liballot's
 * public enums have the same values (libclient/lease asserts it), the daemon's state holds a mode
 * less 1: new words go to the end.
 */
#include <stddef.h>

/* How much of a device a lease is for. */
#define LEASE_MODES(X)                                                                             \
    X(FRACTION, 1, "fraction")                                                                     \
    X(GROW, 2, "grow")                                                                             \
    X(FIXED, 3, "fixed")                                                                           \
    X(EXCLUSIVE, 4, "exclusive")
#define LEASE_MODES_TEXT "fraction, grow, fixed or exclusive"

/* How devices are chosen where a request names none. */
#define CHOICES(X)                                                                                 \
    X(PACK, 1, "pack")     /* the fullest that still fits: keeps whole devices free */             \
    X(SPREAD, 2, "spread") /* the emptiest */                                                      \
    X(LINKS, 3, "links")   /* those with the fastest links between them, then as PACK */
#define CHOICES_TEXT "pack, spread or links"

/* What the daemon tells the holders of a lease. */
#define NOTICE_KINDS(X)                                                                            \
    X(RECALL, 1, "recall")     /* give back `bytes` of `device` if you can; answer by Shrink */    \
    X(IDLE, 2, "idle")         /* holds memory and computes nothing */                             \
    X(OVER, 3, "over")         /* uses more than the lease allows; the watch says so */            \
    X(DRAINING, 4, "draining") /* `device` is being drained */                                     \
    X(ENDING, 5, "ending")     /* the lease ends */                                                \
    X(LOST, 6, "lost")         /* `device` is lost, or the lease */

#define X(name, value, word) LEASE_##name = value,
enum lease_mode { LEASE_MODES(X) };
#undef X
#define X(name, value, word) CHOICE_##name = value,
enum choice { CHOICES(X) };
#undef X
#define X(name, value, word) NOTICE_##name = value,
enum notice_kind { NOTICE_KINDS(X) };
#undef X

/* The words of a list in its order: [value - 1]. Arrays of words end with NULL. */
#define WORDS_OF(list)                  list(WORDS_OF_ROW) NULL
#define WORDS_OF_ROW(name, value, word) word,
extern const char *const lease_mode_words[];
extern const char *const choice_words[];
extern const char *const notice_kind_words[];

/* The word of a value, "?" for none; and back, 0 for a text that is no word of the list. */
const char *words_name(const char *const *words, int value);
int words_find(const char *const *words, const char *text);
