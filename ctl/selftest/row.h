/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Row: one thing that the self-test tried, and how it came out.
 *
 * gpuctl-selftest prints rows as lines of four fields with tabs between them; gpuctl reads them,
 * shows them, counts them and writes them into the transcript.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum row_result {
    ROW_PASSED,
    ROW_FAILED,
    ROW_SKIPPED, /* it cannot be tried here, which is no fault of this box */
};

#define ROW_TEXT_SIZE 512

/* Borrowed texts; `remedy` is "" where nothing is to be done. */
struct row {
    enum row_result result;
    const char *name, *text, *remedy;
};

/* Print a row on stdout, as safe text. `remedy` may be NULL. */
void row_print(enum row_result result, const char *name, const char *remedy, const char *format,
               ...) __attribute__((format(printf, 4, 5)));

/* Read a line of row_print(), in place and without its end. False: it is none. */
bool row_read(struct row *ret, char *line);

/* The middle of `n` > 0 measurements, which are sorted for it. */
uint64_t row_median(uint64_t *values, size_t n);
/* "850 ns", "12.3 us", "4.5 ms", "1.2 s". */
#define ROW_TIME_SIZE 32
const char *row_time(uint64_t nsec, char text[static ROW_TIME_SIZE]);
