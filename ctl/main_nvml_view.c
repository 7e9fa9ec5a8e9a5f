/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpuctl-nvml-view DRIVER: print the box as NVML shows it, in the form of GetBox's reply. gpuctl
 * runs it if allotd does not answer. An error is one line on stderr.
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
        fprintf(stderr, "gpuctl-nvml-view is an internal part of gpuctl: run gpuctl instead\n");
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
