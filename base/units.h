/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Units: bytes, shares and durations as people write them.
 *
 * Locale-free and exact: no floating point anywhere. A number is `8`, `0.5` or `.5`; blanks may
 * stand around it and before its unit. -ERANGE: the value does not fit; -EINVAL: the text is no
 * such value. On failure the result is untouched. Every text that is formatted here can be parsed
 * here.
 */
#include <stdbool.h>
#include <stdint.h>

/* Enough for every text made here. */
#define UNITS_TEXT_SIZE 32

/*
 * `8G`, `8GB`, `8GiB` and `8 gib` are all 8 × 2³⁰ bytes, because a 40 GB card has 40 GiB: K M G T P
 * E are powers of 1024 whether or not the i is written. Without a unit, or with `B`: bytes. A part
 * of a byte is dropped (`0.3K` is 307), but a fraction of plain bytes is refused.
 */
int units_parse_bytes(uint64_t *ret, const char *text);

/* A share of a whole in 1/10000: `40%`, `0.4`, `12.34 %`, at most `100%` or `1`. Rounded down. */
int units_parse_permyriad(uint32_t *ret, const char *text);

/* An amount of memory on a device that is not known yet. */
struct units_amount {
    bool is_share;      /* `permyriad` of the whole, otherwise `bytes` */
    uint32_t permyriad; /* 0–10000 */
    uint64_t bytes;
};

/* Bytes as above, or a percentage. `0.4` alone is refused, because it could mean either. */
int units_parse_amount(struct units_amount *ret, const char *text);
uint64_t units_amount_of(const struct units_amount *amount, uint64_t whole_bytes);

/* permyriad / 10000 of `bytes`, rounded down, without overflow for permyriad ≤ 10000. */
uint64_t units_share(uint32_t permyriad, uint64_t bytes);

/* `infinity` as a duration. */
#define UNITS_FOREVER UINT64_MAX

/* a + b, or UINT64_MAX if that overflows: for bytes and deadlines. */
static inline uint64_t units_add(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/*
 * `90s`, `1.5h`, `1h30m`, `1h 30min`, `500ms`, `infinity`; a number alone is seconds. Units: us ms
 * s (sec) m (min) h (hour) d (day) w (week). A part of a microsecond is dropped.
 */
int units_parse_usec(uint64_t *ret, const char *text);

/* For people, with one decimal unless it is whole: `8 GiB`, `1.5 GiB`, `17 B`. Rounded down. */
const char *units_format_bytes(uint64_t bytes, char text[static UNITS_TEXT_SIZE]);

/* The same, rounded up: for an amount that must be enough. */
const char *units_format_bytes_up(uint64_t bytes, char text[static UNITS_TEXT_SIZE]);

const char *units_format_permyriad(uint32_t permyriad,
                                   char text[static UNITS_TEXT_SIZE]); /* `12.5%` */

/* The two largest units that are not zero, the rest dropped: `1h30m`, `2d`, `infinity`, `0s`. */
const char *units_format_usec(uint64_t usec, char text[static UNITS_TEXT_SIZE]);
