/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runtime: functions of CUDA's device runtime that can be written in PTX. NVIDIA ships them as
 * machine code in an archive; ours are one more input, which is linked if a module lacks one of
 * them.
 *
 * A grid-wide barrier: each block meets at its own barrier, its first thread counts up in the words
 * that a cooperative launch has at PTX_GRID_BASE (apart from those that the headers of cooperative
 * groups count in), and the one that completes the count begins the next round.
 */
#include <string.h>

#include "base/cleanup.h"
#include "sim/ptx/parse/parse.h"

static const char text[] =
    ".version 7.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    /* The only scope is the grid: 1. A launch that is not cooperative has no handle. */
    ".visible .func (.param .b64 ret) cudaCGGetIntrinsicHandle(.param .b32 scope)\n"
    "{\n"
    "    .reg .b32 %r<4>;\n"
    "    .reg .b64 %rd<3>;\n"
    "    .reg .pred %p<2>;\n"
    "    ld.param.u32 %r1, [scope];\n"
    "    mov.b32 %r2, %envreg1;\n"
    "    mov.b32 %r3, %envreg2;\n"
    "    mov.b64 %rd1, {%r3, %r2};\n"
    "    setp.eq.u32 %p1, %r1, 1;\n"
    "    selp.b64 %rd2, %rd1, 0, %p1;\n"
    "    st.param.b64 [ret], %rd2;\n"
    "    ret;\n"
    "}\n"
    ".visible .func (.param .b32 ret) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)\n"
    "{\n"
    "    .reg .b32 %r<16>;\n"
    "    .reg .b64 %rd<2>;\n"
    "    .reg .pred %p<5>;\n"
    "    ld.param.u64 %rd1, [handle];\n"
    "    setp.eq.u64 %p1, %rd1, 0;\n"
    "    @%p1 bra bad;\n"
    "    bar.sync 0;\n"
    "    mov.u32 %r1, %tid.x;\n"
    "    mov.u32 %r2, %tid.y;\n"
    "    mov.u32 %r3, %tid.z;\n"
    "    or.b32 %r1, %r1, %r2;\n"
    "    or.b32 %r1, %r1, %r3;\n"
    "    setp.ne.u32 %p2, %r1, 0;\n"
    "    @%p2 bra together;\n"
    "    mov.u32 %r4, %nctaid.x;\n"
    "    mov.u32 %r5, %nctaid.y;\n"
    "    mov.u32 %r6, %nctaid.z;\n"
    "    mul.lo.u32 %r4, %r4, %r5;\n"
    "    mul.lo.u32 %r4, %r4, %r6;\n"
    "    membar.gl;\n"
    "    ld.volatile.u32 %r7, [%rd1+36];\n" /* the round */
    "    atom.add.u32 %r8, [%rd1+32], 1;\n" /* blocks that have come */
    "    add.u32 %r8, %r8, 1;\n"
    "    setp.ne.u32 %p3, %r8, %r4;\n"
    "    @%p3 bra wait;\n"
    "    st.volatile.u32 [%rd1+32], 0;\n"
    "    membar.gl;\n"
    "    atom.add.u32 %r9, [%rd1+36], 1;\n"
    "    bra.uni together;\n"
    "wait:\n"
    "    ld.volatile.u32 %r9, [%rd1+36];\n"
    "    setp.eq.u32 %p4, %r9, %r7;\n"
    "    @%p4 bra wait;\n"
    "    membar.gl;\n"
    "together:\n"
    "    bar.sync 0;\n"
    "    mov.u32 %r10, 0;\n"
    "    st.param.b32 [ret], %r10;\n"
    "    ret;\n"
    "bad:\n"
    "    mov.u32 %r11, 1;\n" /* cudaErrorInvalidValue */
    "    st.param.b32 [ret], %r11;\n"
    "    ret;\n"
    "}\n";

static bool brings(const char *name) {
    static const char *const names[] = { "cudaCGGetIntrinsicHandle", "cudaCGSynchronize" };

    for (size_t i = 0; i < ELEMENTSOF(names); i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

int ptx_runtime_add(struct ptx_module *module, struct allot_error *err) {
    bool wanted = false;

    for (size_t i = 0; i < module->n_symbols; i++) {
        const struct ptx_symbol *sym = module->symbols[i];

        if (sym->kind != PTX_SYM_FUNCTION || !brings(sym->name))
            continue;
        if (sym->function->defined) /* the module brings its own */
            return 0;
        wanted = true;
    }
    return wanted ? ptx_module_add(module, "device runtime", text, sizeof(text) - 1, err) : 0;
}
