/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is what lies between the key and the checksum of a file with a plan, of a small graph.
 * What is accepted is a plan that the simulator finds to fit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/crc32c.h"
#include "libclient/place/kept_plan.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/libclient/place/task_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct task_fixture_shape shape = {
        .n_tasks = 6, .n_devices = 3, .is_capped = true, .has_groups = true
    };
    static const struct dynamic_options options = { .seed = 1 };
    struct task_graph graph = { 0 };
    struct dynamic_result result;
    char key[KEPT_PLAN_KEY_SIZE];
    cleanup(freep) char *text = malloc(size + 128);
    enum timeline_fault fault;
    uint64_t random = 1;
    const char *why;
    int n;

    fuzz_check(text);
    task_fixture_random(&graph, &random, &shape);
    kept_plan_key(&graph, &options, "v1", key);
    n = snprintf(text, 128, "allot-plan 1 %s\n", key);
    memcpy(text + n, data, size);
    n += (int)size;
    n += snprintf(text + n, 16, "end %08x\n", crc32c(0, text, (size_t)n));
    if (kept_plan_parse(&graph, key, text, (size_t)n, &result, &why) == 0) {
        fuzz_check(timeline_run(&graph, &result.plan, NULL, &fault) == 0 && fault == TIMELINE_OK);
        assignment_done(&result.plan);
    } else
        fuzz_check(why && !result.plan.device);
    kept_plan_parse(&graph, key, (const char *)data, size, &result, &why);
    assignment_done(&result.plan);
    task_graph_done(&graph);
    return 0;
}
