/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Builder: the state that its files share while one function is translated to code. */
#include "base/error.h"
#include "sim/ptx/exec/exec.h"
#include "sim/ptx/build/flow.h"

struct ptx_builder {
    const struct ptx_function *f;
    struct ptx_program *program;
    struct ptx_flow_layout layout;
    const struct ptx_isa *isa;
    struct allot_error *err;
    uint32_t *code_of; /* instruction → code; n_insts + 1 */
    uint32_t n_accesses;
    char *consts;
    uint32_t const_bytes, const_cap;
    struct ptx_constant {
        uint64_t bits;
        uint32_t width; /* 0: free */
        int32_t ref;
    } * table;
    uint32_t n_table, cap_table;
};

/* The 32-lane array of a number. INT32_MIN: no memory. */
int32_t ptx_build_constant(struct ptx_builder *b, uint64_t bits, uint32_t width);
/* The ref of a source of `width` bytes: register, number, special register. */
int32_t ptx_build_source(struct ptx_builder *b, const struct ptx_operand *o, uint32_t width,
                         enum ptx_type type);
int32_t ptx_build_reg(struct ptx_builder *b, int32_t reg);
/* The word of a predicate that is written; -1: a sink. */
int32_t ptx_build_pred_word(struct ptx_builder *b, const struct ptx_operand *o);
/* A predicate that is read: its word and what to xor that with. Numbers use the word that is 0. */
void ptx_build_pred(struct ptx_builder *b, const struct ptx_operand *o, int32_t *word,
                    uint32_t *flip);
void *ptx_build_get(struct ptx_builder *b, size_t bytes); /* zeroed, lives with the program */

/* ld, st, atom, red, cp.async, and addresses of symbols; in build_memory.c. */
int ptx_build_access(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code);
int ptx_build_atomic(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code);
int ptx_build_mbarrier(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code);
int ptx_build_cp(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code);
int ptx_build_address(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code);
int ptx_build_sync(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code);
int ptx_build_bar(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code);
int ptx_build_call(struct ptx_builder *b, const struct ptx_inst *inst, struct ptx_code *code);

/* The whole function; `program` is freed by the caller when it fails. */
int ptx_build_program(struct ptx_function *f, struct ptx_program *program, struct allot_error *err);

/* Where the code of each instruction begins; entry n_insts is the end of the code. Returns how many
 * there are in all, or -ENOMEM. */
int64_t ptx_build_code_map(const struct ptx_function *f, uint32_t *code_of);

/* How run_address makes an address: code->op. */
enum { PTX_ADDRESS_LOCAL, PTX_ADDRESS_SHARED, PTX_ADDRESS_ADD };
/* code->op of an access whose address is an offset in the frame's local memory. */
#define PTX_IN_FRAME 1
