/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpuctl-bare DRIVER: the box as NVML shows it, on stdout, as GetBox would answer it. gpuctl runs
 * it where allotd does not answer; what went wrong is one line on stderr.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "ctl/source/nvml_box.h"
#include "wire/snapshot.h"

int main(int argc, char **argv) {
    cleanup(nvml_box_freep) struct nvml_box *reading = NULL;
    struct allot_error err = {};
    struct json_writer w = {};
    enum driver_choice choice;
    bool failed;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* only gpuctl reads the result */
    if (argc != 2 || driver_choice_parse(&choice, argv[1]) < 0) {
        fprintf(stderr, "gpuctl-bare is started by gpuctl\n");
        return EXIT_FAILURE;
    }
    if (nvml_box_read(&reading, choice, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return EXIT_FAILURE;
    }
    snapshot_write(&w, nvml_box_get(reading));
    failed = w.failed || fwrite(w.data, 1, w.len, stdout) != w.len || fflush(stdout) != 0;
    json_writer_done(&w);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
