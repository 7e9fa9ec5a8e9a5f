/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Ptxgen: random PTX programs that mean something: they end, touch only their own memory, and what
 * they compute does not depend on the order in which threads run.
 *
 * The kernel is k(io, table, sums). Each thread loads its registers from its own record at io,
 * runs, and stores them there. One generator per process: the state is global.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PTXGEN_N_EACH  8 /* registers of each kind */
#define PTXGEN_N_KINDS 9
/* Of one thread's record: eight bytes per register, then the predicates as one word. */
#define PTXGEN_IO_BYTES    ((size_t)PTXGEN_N_KINDS * PTXGEN_N_EACH * 8 + 8)
#define PTXGEN_TABLE_BYTES 272
#define PTXGEN_SUMS_BYTES  64

struct ptxgen_kind {
    char kind; /* letter of the register's name */
    const char *type;
    unsigned bytes;
};
extern const struct ptxgen_kind ptxgen_kinds[PTXGEN_N_KINDS];

struct ptxgen_text {
    char bytes[1 << 17];
    size_t n;
};

void ptxgen_seed(uint64_t seed);
uint32_t ptxgen_pick(uint32_t n); /* below n */
/* `brief`: short enough to be read. `full_warps`: lanes may shuffle, none leaves early. */
void ptxgen_make(struct ptxgen_text *text, bool brief, bool full_warps);
