/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simhold: a process that holds memory of the simulated box and keeps a GPU busy, without CUDA.
 *
 *     simhold GPU MIB [BUSY-PERCENT]
 *
 * Says "holds" and stays until it is ended. For what a CUDA program cannot be made to do exactly.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "sim/box/box.h"
#include "sim/box/utilization.h"
#include "sim/box/charge.h"
#include "sim/box/proc.h"

enum {
    STEP_NS = 20000000,
};

int main(int argc, char **argv) {
    const unsigned gpu = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    const uint64_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) << 20 : 0;
    const uint64_t busy = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    struct allot_error err = { 0 };
    struct box_usage *usage;
    struct box *box;
    uint32_t slot;

    if (box_open_default(&box, &err) < 0 || gpu >= box->n_gpus || box_lock(box) < 0 ||
        proc_join(box, &slot) < 0 ||
        charge_take(box, slot, (struct box_part){ gpu, 0 }, bytes, &err) < 0) {
        fprintf(stderr, "simhold: %s\n", err.text);
        return EXIT_FAILURE;
    }
    usage = &box->file->proc[slot].usage[gpu];
    usage->contexts = 1;
    usage->kinds = PROC_COMPUTE;
    usage->gi_id = usage->ci_id = UINT32_MAX;
    box_unlock(box);

    printf("holds %s MiB of GPU %u\n", argc > 2 ? argv[2] : "0", gpu);
    fflush(stdout);
    while (busy == 0)
        pause();
    for (;;) {
        const struct timespec step = { .tv_nsec = STEP_NS };
        const uint64_t start_ns = box_now_ns();

        nanosleep(&step, NULL);
        utilization_note(box, slot, gpu, UTILIZATION_COMPUTE, start_ns,
                         start_ns + (box_now_ns() - start_ns) * busy / 100);
    }
}
