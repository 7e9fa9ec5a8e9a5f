/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Safe text: which characters of a text that others wrote may reach a terminal, a log or a file
 * that people open, and what stands in place of the rest.
 *
 * A user chooses the names of its leases and processes, and other users read them. Not safe is what
 * a terminal obeys (C0, DEL, C1), what ends a line (U+2028, U+2029 too), what turns the direction
 * of the text around it, what is not seen at all (zero-width, tags, fillers, interlinear marks),
 * and bytes that are no UTF-8.
 *
 * Pure, no state.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that an escape of one character or byte needs at most, with its NUL. */
#define SAFE_TEXT_ESCAPE_SIZE sizeof("\\U0010ffff")

/* Whether this character may stand as it is. */
bool safe_text_has(uint32_t c);

/*
 * Bytes of the character at `text`, of the `n` > 0 that are there; a byte that is no UTF-8 counts
 * as one. `*ret_is_safe`: whether it may stand as it is.
 */
size_t safe_text_next(const char *text, size_t n, bool *ret_is_safe);

/*
 * Copy `n` bytes of `text` into `size` > 0 bytes, with a NUL and cut between characters.
 * safe_text_clean() puts '?' for each character that is not safe, for names and columns;
 * safe_text_escape() puts \x1b (below U+0100, and a byte that is no UTF-8), \u202e or \U000e0041,
 * for logs and tables that programs read. Both return the length.
 */
size_t safe_text_clean(char *ret, size_t size, const char *text, size_t n);
size_t safe_text_escape(char *ret, size_t size, const char *text, size_t n);
