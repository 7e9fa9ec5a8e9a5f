/* SPDX-License-Identifier: Apache-2.0 */
/* What the placer says on boxes of many GPUs; what it decides is in tests/cases/placer. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "libclient/place/placer.h"
#include "tests/support/suite.h"

enum { GPUS = 16 };

START_TEST(an_unknown_device_is_called_so_however_many_there_are) {
    static const struct placer_kernel kernels[] = { { 0, 0 }, { 1, 0 } };
    static const enum placer_flow value = PLACER_VALUE;
    static const struct placer_op op = {
        .name = "Const", .outputs = &value, .n_outputs = 1, .kernels = kernels, .n_kernels = 2
    };
    static const struct placer_node node = { .name = "tower_16/layer/a",
                                             .requested = "/device:GPU:16" };
    const char *const types[] = { "GPU", "CPU" };
    char names[GPUS + 1][64];
    const char *devices[GPUS + 1];
    struct placer_problem problem = { .types = types,
                                      .n_types = 2,
                                      .devices = devices,
                                      .n_devices = GPUS + 1,
                                      .ops = &op,
                                      .n_ops = 1,
                                      .nodes = &node,
                                      .n_nodes = 1 };
    struct placer_error error = { 0 };
    struct allot_error told = { 0 };
    uint32_t placed;

    for (int i = 0; i <= GPUS; i++) {
        snprintf(names[i], sizeof(names[i]), "/job:localhost/replica:0/task:0/device:%s:%d",
                 i ? "GPU" : "CPU", i ? i - 1 : 0);
        devices[i] = names[i];
    }
    ck_assert_int_eq(placer_simple(&problem, &placed, NULL, &error), PLACER_INVALID_ARGUMENT);
    error_set(&told, -EINVAL, "%s", error.text);
    ck_assert_msg(strstr(told.text, "unknown device") != NULL, "%s", told.text);
    ck_assert_msg(strstr(told.text, "refers to a valid device") != NULL, "%s", told.text);
    ck_assert_msg(strstr(told.text, "was explicitly assigned to /device:GPU:16 but available "
                                    "devices are [ /job:localhost/replica:0/task:0/device:CPU:0, "),
                  "%s", told.text);
    ck_assert_msg(strcmp(told.text + strlen(told.text) - strlen("…"), "…") == 0, "%s", told.text);

    problem.n_devices = 3;
    placer_simple(&problem, &placed, NULL, &error);
    ck_assert_msg(strstr(error.text, "device:GPU:1 ]") != NULL, "%s", error.text);
}
END_TEST

/* A variable, its read, a plain op, and one that the user wants on a GPU that has no kernel. */
START_TEST(choices_are_all_that_the_rules_leave_open) {
    static const enum placer_flow handle = PLACER_RESOURCE, value = PLACER_VALUE;
    static const struct placer_kernel both[] = { { 0, 0 }, { 1, 0 } }, cpu[] = { { 1, 0 } };
    static const struct placer_op ops[] = {
        { .name = "Variable", .outputs = &handle, .n_outputs = 1, .kernels = both, .n_kernels = 2 },
        { .name = "Read",
          .inputs = &handle,
          .n_inputs = 1,
          .outputs = &value,
          .n_outputs = 1,
          .kernels = both,
          .n_kernels = 2 },
        { .name = "Add",
          .inputs = &value,
          .n_inputs = 1,
          .outputs = &value,
          .n_outputs = 1,
          .kernels = both,
          .n_kernels = 2 },
        { .name = "Host",
          .inputs = &value,
          .n_inputs = 1,
          .outputs = &value,
          .n_outputs = 1,
          .kernels = cpu,
          .n_kernels = 1 },
    };
    static const struct placer_edge of_variable = { 0, 0 }, of_read = { 1, 0 }, of_add = { 2, 0 };
    const char *const types[] = { "GPU", "CPU" };
    const char *const devices[] = { "/job:localhost/replica:0/task:0/device:CPU:0",
                                    "/job:localhost/replica:0/task:0/device:GPU:0",
                                    "/job:localhost/replica:0/task:0/device:GPU:1" };
    struct placer_node nodes[] = {
        { .name = "v", .op = 0, .requested = "/gpu" },
        { .name = "read", .op = 1, .inputs = &of_variable },
        { .name = "add", .op = 2, .inputs = &of_read },
        { .name = "host", .op = 3, .inputs = &of_add, .requested = "/gpu:0" },
    };
    struct placer_problem problem = { .types = types,
                                      .n_types = 2,
                                      .devices = devices,
                                      .n_devices = 3,
                                      .ops = ops,
                                      .n_ops = 4,
                                      .nodes = nodes,
                                      .n_nodes = 4,
                                      .soft = true };
    struct placer_choice choices[4];
    struct placer_error error;

    ck_assert_int_eq(placer_choices(&problem, choices, &error), PLACER_OK);
    ck_assert_uint_eq(choices[0].group, choices[1].group);
    ck_assert_uint_ne(choices[1].group, choices[2].group);
    ck_assert_uint_eq(choices[0].devices, 6);
    ck_assert_uint_eq(choices[1].devices, 6);
    ck_assert_uint_eq(choices[2].devices, 7);
    ck_assert_uint_eq(choices[3].devices, 1);
    ck_assert(choices[3].is_soft && !choices[0].is_soft);

    nodes[0].assigned = devices[2];
    ck_assert_int_eq(placer_choices(&problem, choices, &error), PLACER_OK);
    ck_assert_uint_eq(choices[1].devices, 4);
    problem.soft = false;
    ck_assert_int_eq(placer_choices(&problem, choices, &error), PLACER_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "host") != NULL, "%s", error.text);
}
END_TEST

SUITE("placer", an_unknown_device_is_called_so_however_many_there_are,
      choices_are_all_that_the_rules_leave_open)
