/* SPDX-License-Identifier: Apache-2.0 */
/* Faults: the first fault of a launch is kept for its result and ends the launch. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/ptx/exec/block.h"

void ptx_fault(struct ptx_warp *w, const struct ptx_code *in, enum ptx_fault_kind kind,
               unsigned lane, uint64_t address, const char *format, ...) {
    struct ptx_run *run = w->worker->run;
    const struct ptx_launch *launch = w->worker->launch;
    struct ptx_fault *fault = &run->result->fault;
    uint32_t thread = w->index * PTX_LANES + lane;
    va_list args;

    w->worker->stop = true;
    pthread_mutex_lock(&run->lock);
    if (fault->kind == PTX_FAULT_NONE) {
        *fault = (struct ptx_fault){ .kind = kind,
                                     .kernel = w->worker->program->function->name,
                                     .address = address,
                                     .line = in ? in->line : 0 };
        memcpy(fault->block, w->block->id, sizeof(fault->block));
        fault->thread[0] = thread % launch->block[0];
        fault->thread[1] = thread / launch->block[0] % launch->block[1];
        fault->thread[2] = thread / launch->block[0] / launch->block[1];
        if (in && (kind == PTX_FAULT_ADDRESS || kind == PTX_FAULT_MISALIGNED)) {
            fault->bytes = (uint32_t)in->bytes * MAX(in->n, (uint8_t)1);
        }
        va_start(args, format);
        vsnprintf(fault->text, sizeof(fault->text), format, args);
        va_end(args);
        fault->store = !strncmp(fault->text, "store", 5) || !strncmp(fault->text, "atomic", 6);
    }
    pthread_mutex_unlock(&run->lock);
    atomic_store(&run->stop, true);
}
