/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease PERMYRIAD BYTES: lease a fraction (in 1/10000) of one GPU's memory, take BYTES of it for
 * oneself, hold them until a line comes in on standard input, and say what one is told meanwhile.
 * Started by gpuctl run it takes the bytes from the lease of its job instead.
 *
 *     cc lease.c $(pkg-config --cflags --libs allot)
 */
#include <allot/lease.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static void on_progress(void *userdata, uint64_t place, const char *reason) {
    fprintf(stderr, "waiting at place %ju: %s\n", (uintmax_t)place, reason);
}

/* On a thread of the library's. A program with a cache would empty it here, then shrink. */
static void on_notice(void *userdata, const struct allot_lease_notice *notice) {
    fprintf(stderr, "notice: %s\n", notice->text);
}

int main(int argc, char **argv) {
    struct allot_lease_options options = ALLOT_LEASE_OPTIONS_INIT;
    struct allot_lease_share share;
    struct allot_lease *lease;
    struct allot_error err;
    int r;

    if (argc != 3) {
        fprintf(stderr, "usage: %s PERMYRIAD BYTES\n", argv[0]);
        return 2;
    }
    options.name = "example";
    options.gpus = 1;
    options.amount.mode = ALLOT_LEASE_FRACTION;
    options.amount.permyriad = (uint32_t)strtoul(argv[1], NULL, 10);
    options.progress = on_progress;
    options.notice = on_notice;
    r = allot_lease_attach(&lease, 0, NULL, &options, &err);
    if (r == -ENOENT)
        r = allot_lease_acquire(&lease, &options, &err);
    if (r < 0) {
        fprintf(stderr, "no lease: %s\n", err.text);
        return 1;
    }
    if (allot_lease_grow(lease, NULL, strtoull(argv[2], NULL, 10), 0, &err) < 0) {
        fprintf(stderr, "no memory: %s\n", err.text);
        allot_lease_free(lease);
        return 1;
    }
    allot_lease_shares(lease, &share, 1);
    printf("lease %ju: %ju of %ju bytes on %s\n", (uintmax_t)allot_lease_id(lease),
           (uintmax_t)share.held_bytes, (uintmax_t)share.limit_bytes, share.device);
    fflush(stdout);
    while (getchar() != '\n' && !feof(stdin))
        ;
    allot_lease_free(lease);
    return 0;
}
