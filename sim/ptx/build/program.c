/* SPDX-License-Identifier: Apache-2.0 */
/* Programs: functions translated on first use. */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "sim/ptx/build/build.h"

void ptx_program_free(struct ptx_program *program) {
    if (!program)
        return;
    free(program->code);
    free(program->consts);
    ptx_ir_arena_done(&program->arena);
    free(program);
}

int ptx_program_get(struct ptx_function *function, const struct ptx_program **ret,
                    struct allot_error *err) {
    struct ptx_program *program = atomic_load_explicit(&function->program, memory_order_acquire);
    struct allot_error own = { 0 };
    int r = 0;

    if (program) {
        *ret = program;
        return 0;
    }
    if (!err)
        err = &own;
    err->code = 0;
    pthread_mutex_lock(&function->module->lock);
    program = atomic_load_explicit(&function->program, memory_order_acquire);
    if (!program && (!function->defined || !function->module->linked)) {
        r = error_set(err, -EBADMSG, "'%s' has no body", function->name);
    } else if (!program) {
        program = calloc(1, sizeof(*program));
        if (program) {
            program->function = function;
            r = ptx_build_program(function, program, err);
        } else {
            r = error_set(err, -ENOMEM, "out of memory");
        }
        if (r < 0) {
            ptx_program_free(program);
            if (!err->code)
                error_set(err, r, "cannot be translated");
            error_wrap(err, r, "'%s'", function->name);
        } else {
            atomic_store_explicit(&function->program, program, memory_order_release);
        }
    }
    pthread_mutex_unlock(&function->module->lock);
    if (!r)
        *ret = program;
    return r;
}
