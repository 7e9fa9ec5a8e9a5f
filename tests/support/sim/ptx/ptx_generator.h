/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * PTX generator: random PTX programs that mean something: they end, touch only their own memory,
 * and what they compute does not depend on the order in which threads run.
 *
 * The kernel is k(io, table, sums). Each thread loads its registers from its own record at io,
 * runs, and stores them there. One generator per process: the state is global.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PTX_GENERATOR_N_EACH  8 /* registers of each kind */
#define PTX_GENERATOR_N_KINDS 9
/* Of one thread's record: eight bytes per register, then the predicates as one word. */
#define PTX_GENERATOR_IO_BYTES    ((size_t)PTX_GENERATOR_N_KINDS * PTX_GENERATOR_N_EACH * 8 + 8)
#define PTX_GENERATOR_TABLE_BYTES 272
#define PTX_GENERATOR_SUMS_BYTES  64

struct ptx_generator_kind {
    char kind; /* letter of the register's name */
    const char *type;
    unsigned bytes;
};
extern const struct ptx_generator_kind ptx_generator_kinds[PTX_GENERATOR_N_KINDS];

struct ptx_generator_text {
    char bytes[1 << 17];
    size_t n;
};

void ptx_generator_seed(uint64_t seed);
uint32_t ptx_generator_pick(uint32_t n); /* below n */
/* `brief`: short enough to be read. `full_warps`: lanes may shuffle, none leaves early. */
void ptx_generator_make(struct ptx_generator_text *text, bool brief, bool full_warps);
