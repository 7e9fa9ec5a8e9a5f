/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bare MIB: a static program. The dynamic linker does not start it, so nothing is preloaded; it
 * speaks to the (simulated) driver without libcuda, takes so much of the first GPU, says what came
 * of it, and holds it until its standard input ends.
 *
 * bare NODE...: opens device nodes, by the system call itself, and says what came of each.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sim/box/box.h"
#include "sim/box/charge.h"
#include "sim/box/proc.h"

static int take(uint64_t bytes) {
    struct allot_error err = { 0 };
    struct box_usage *usage;
    struct box *box;
    uint32_t slot;
    int r;

    if (box_open_default(&box, &err) < 0 || box_lock(box) < 0 || proc_join(box, &slot) < 0) {
        fprintf(stderr, "bare: %s\n", err.text);
        return 1;
    }
    r = charge_take(box, slot, (struct box_part){ 0, 0 }, bytes, &err);
    usage = &box->file->proc[slot].usage[0];
    usage->contexts = 1;
    usage->kinds = PROC_COMPUTE;
    box_unlock(box);
    printf("%s\n", r < 0 ? "refused" : "got it");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return r < 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && argv[1][0] != '/')
        return take(strtoull(argv[1], NULL, 10) << 20);
    for (int i = 1; i < argc; i++) {
        long fd = syscall(SYS_openat, AT_FDCWD, argv[i], O_RDWR);

        printf("%s: %s\n", argv[i], fd >= 0 ? "open" : strerror(errno));
    }
    return 0;
}
