/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Show: single values as the views write them, short enough for a column.
 *
 * Each fills and returns the caller's buffer; an unknown value is "N/A".
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/message.h"

#define SHOW_SIZE 64

/* `12.8G`, `512M`, `0`: about three digits, rounded down. */
const char *show_bytes(uint64_t bytes, char text[static SHOW_SIZE]);
const char *show_maybe_bytes(struct wire_maybe bytes, char text[static SHOW_SIZE]);
/* A number and its unit: `31C`. */
const char *show_maybe(struct wire_maybe value, const char *unit, char text[static SHOW_SIZE]);
/* `52/400W` from milliwatts. */
const char *show_power(struct wire_maybe now, struct wire_maybe limit, char text[static SHOW_SIZE]);
/* The time between two times of CLOCK_REALTIME; 0s if they are in the wrong order. */
const char *show_age(uint64_t since_usec, uint64_t now_usec, char text[static SHOW_SIZE]);
/* The first eight digits: `GPU-1cb7d768`. */
const char *show_uuid(const char *uuid, char text[static SHOW_SIZE]);
/* The model without the vendor; an instance by its profile: `A100-SXM4-40GB`, `MIG 3g.20gb`. */
const char *show_name(const struct wire_device *device);
/* As lspci writes it: `0000:07:00.0`. */
const char *show_bus_id(const char *bus_id, char text[static SHOW_SIZE]);
/* The index of a device of the box by its UUID; otherwise its short UUID. */
const char *show_device(const struct wire_box *box, const char *uuid, char text[static SHOW_SIZE]);
/*
 * A sentence of the daemon with "GPU 0" instead of the UUID of each device; for free(). `box` may
 * be NULL: then it is a copy. NULL: out of memory.
 */
char *show_sentence(const struct wire_box *box, const char *text);
/* Local time, to the second: `2026-11-16 14:12:01`. */
const char *show_time(uint64_t usec, char text[static SHOW_SIZE]);

/* How a device's usable bytes are used, for a bar. */
struct show_bar {
    uint64_t usable_bytes;
    uint64_t held_bytes;     /* by leases */
    uint64_t promised_bytes; /* guaranteed to leases, but not held */
    uint64_t unmanaged_bytes;
    uint64_t releasing_bytes;
};
struct show_bar show_bar_of(const struct wire_device *device);
/*
 * The bar, `width` cells wide, for free(). A part that is not zero has at least one cell. NULL: out
 * of memory.
 */
char *show_bar(const struct show_bar *bar, size_t width, bool utf8);
const char *show_bar_legend(bool utf8);
