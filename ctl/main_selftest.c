/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpuctl-selftest WHAT DRIVER: one part of "gpuctl doctor --selftest", in a process of its own,
 * since it loads the driver's libraries, makes contexts, and may hang with the driver. Prints rows
 * (ctl/selftest/row.h).
 *
 *     nvml      what NVML says, and what it costs
 *     visible   CUDA_VISIBLE_DEVICES against our rules; "see" is one case of it
 *     memory    every way to take memory, without a lease
 *     lease     the same in a lease with the guard, and what its tiers refuse; then itself as
 *               "unguarded", without the guard
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "ctl/selftest/memory_rows.h"
#include "ctl/selftest/nvml_rows.h"
#include "ctl/selftest/row.h"
#include "ctl/selftest/tier_rows.h"
#include "ctl/selftest/visible_rows.h"

#define SECONDS_MAX 90 /* a driver that hangs is left to the kernel */

static void with_context(const void *userdata) {
    tier_rows_try_watch(userdata);
}

static void try_lease(enum driver_choice choice, bool has_guard) {
    const char *preload = getenv("LD_PRELOAD");
    const char *again[] = { "gpuctl-selftest", "unguarded", driver_choice_name(choice), NULL };
    struct tier_rows tiers;

    if (has_guard && !(preload && strstr(preload, "liballot-guard")))
        return row_print(ROW_FAILED, "guard", "install the guard: \"gpuctl doctor\" names it",
                         "it is not preloaded into the job");
    if (!tier_rows_read(&tiers))
        return;
    memory_rows_try(&(struct memory_rows){
        .choice = choice,
        .where = has_guard ? "guard" : "no guard",
        .limit_bytes = tiers.limit_bytes,
        .expects_refusal = has_guard || tiers.has_driver_limit,
        .with_context = has_guard ? with_context : NULL,
        .userdata = &tiers,
    });
    if (!has_guard) {
        if (!tiers.has_driver_limit)
            row_print(ROW_SKIPPED, "tier 1: driver's limit", NULL,
                      "not in force for this lease: \"gpuctl doctor\" says why");
        return;
    }
    tier_rows_try_nodes(&tiers);
    /* The same without the guard: tier 1 remains, where it is in force. */
    unsetenv("LD_PRELOAD");
    execv("/proc/self/exe", (char **)again);
    row_print(ROW_FAILED, "no guard: start", "send the transcript", "%s", strerror(errno));
}

int main(int argc, char **argv) {
    enum driver_choice choice = DRIVER_AUTO;
    const char *what = argc > 1 ? argv[1] : "";

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* only gpuctl reads the rows */
    alarm(SECONDS_MAX);
    if (argc > 2 && driver_choice_parse(&choice, argv[2]) < 0)
        what = "";
    if (!strcmp(what, "nvml"))
        nvml_rows_try(choice);
    else if (!strcmp(what, "visible"))
        visible_rows_try(choice);
    else if (!strcmp(what, "see"))
        return visible_rows_list(choice);
    else if (!strcmp(what, "memory"))
        memory_rows_try(&(struct memory_rows){ .choice = choice, .where = "no lease" });
    else if (!strcmp(what, "lease") || !strcmp(what, "unguarded"))
        try_lease(choice, !strcmp(what, "lease"));
    else {
        fprintf(stderr, "gpuctl-selftest is an internal part of gpuctl: run \"gpuctl doctor "
                        "--selftest\" instead\n");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
