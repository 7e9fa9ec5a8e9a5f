/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Transcript: all that a broker told in a seeded walk, word for word, compared with what it told
 * when the walk was last read. Of each chapter the golden file has a checksum alone.
 *
 * If a change is meant: `ALLOT_TRANSCRIPT=FILE` writes the words; those of the trees before and
 * after it, compared, begin to differ where the change first shows. ALLOT_GOLDEN_WRITE=1 then
 * writes the checksums anew.
 */
#include <stdint.h>

struct broker_fixture;
struct transcript;

struct transcript *transcript_new(void);
/* The fixture writes into it from now on. */
void transcript_follow(struct transcript *transcript, struct broker_fixture *fixture);
/* What was written since the last chapter is one of this name. */
void transcript_end_chapter(struct transcript *transcript, uint64_t seed, unsigned step);
/* Fails the test with the first chapter that is not as in TEST_GOLDEN/`name`; frees it. */
void transcript_compare(struct transcript *transcript, const char *path);
