/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "ctl/job/request_options.h"
#include "tests/support/suite.h"

#define GI (INT64_C(1) << 30)

static const struct option_def options_table[] = { REQUEST_OPTIONS };
static const struct verb verb = {
    .name = "test", .operands = "", .summary = "", VERB_OPTIONS(options_table)
};

/* The words after the verb, by blanks, through the same road as a command line. */
static int parse(struct request_options *wanted, const char *line) {
    static struct gpuctl ctl;
    static char copy[256];
    char *argv[32] = { (char[]){ "test" } }, *rest = NULL;
    struct option_parser options;
    int argc = 1, id;

    strcpy(copy, line);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    request_options_init(wanted);
    option_parser_init(&options, &ctl, &verb, argc, argv);
    while ((id = option_parser_next(&options)) > 0)
        if (request_options_add(wanted, &verb, id, options.value) < 0)
            return -1;
    return id < 0 ? -1 : request_options_finish(wanted, &verb);
}

static void forget_environment(void) {
    static const char *const names[] = { "SLURM_JOB_ID", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS",
                                         "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER" };

    for (size_t i = 0; i < ELEMENTSOF(names); i++)
        unsetenv(names[i]);
}

START_TEST(amounts_are_what_people_write) {
    static const struct {
        const char *line;
        enum lease_mode mode;
        int64_t permyriad, bytes, min, max; /* -1: absent */
    } rows[] = {
        { "--fraction 0.4", LEASE_FRACTION, 4000, -1, -1, -1 },
        { "-f 40%", LEASE_FRACTION, 4000, -1, -1, -1 },
        { "--mem 8G", LEASE_FIXED, -1, 8 * GI, -1, -1 },
        { "--mem=512MiB", LEASE_FIXED, -1, GI / 2, -1, -1 },
        { "-m 25%", LEASE_FRACTION, 2500, -1, -1, -1 },
        { "--grow", LEASE_GROW, -1, -1, -1, -1 },
        { "--grow --min 2G --max 8G", LEASE_GROW, -1, -1, 2 * GI, 8 * GI },
        { "--grow --max 50%", LEASE_GROW, 5000, -1, -1, -1 },
        { "--grow --fraction 0.5", LEASE_GROW, 5000, -1, -1, -1 },
        { "--exclusive", LEASE_EXCLUSIVE, -1, -1, -1, -1 },
    };

    forget_environment();
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        struct request_options wanted;
        const struct wire_amount *amount;

        ck_assert_int_eq(parse(&wanted, rows[i].line), 0);
        amount = wanted.request.amount;
        ck_assert_ptr_nonnull(amount);
        ck_assert_int_eq(amount->mode, rows[i].mode);
        ck_assert_int_eq(amount->permyriad.has ? amount->permyriad.value : -1, rows[i].permyriad);
        ck_assert_int_eq(amount->bytes.has ? amount->bytes.value : -1, rows[i].bytes);
        ck_assert_int_eq(amount->min_bytes.has ? amount->min_bytes.value : -1, rows[i].min);
        ck_assert_int_eq(amount->max_bytes.has ? amount->max_bytes.value : -1, rows[i].max);
        request_options_done(&wanted);
    }
}
END_TEST

START_TEST(contradictions_are_refused) {
    static const char *const lines[] = {
        "--fraction 0.4 --mem 8G",
        "--fraction 0.4 --exclusive",
        "--grow --mem 8G",
        "--min 2G",
        "--max 2G --mem 4G",
        "--grow --min 8G --max 2G",
        "--gpus 2 --devices 0,1",
        "--gpus 0",
        "--gpus 65",
        "--gpus two",
        "--devices 0,,1",
        "--devices=",
        "--fraction 0",
        "--fraction 1.1",
        "--fraction 40",
        "--mem 0",
        "--mem 0.4",
        "--mem lots",
        "--wait=soon",
        "--priority high",
        "--choose best",
        "--time-limit never",
        "--mem 1G,2G --devices 0",
        "--mem 1G,2G --gpus 2",
        "--fraction 0.1,x --devices 0,1",
        "--nonsense",
        "--gpus",
        "--grow=8G",
        "-Z",
    };

    forget_environment();
    for (size_t i = 0; i < ELEMENTSOF(lines); i++) {
        struct request_options wanted;

        ck_assert_msg(parse(&wanted, lines[i]) < 0, "%s was taken", lines[i]);
        request_options_done(&wanted);
    }
}
END_TEST

START_TEST(devices_may_have_amounts_of_their_own) {
    struct request_options wanted;

    forget_environment();
    ck_assert_int_eq(parse(&wanted, "--devices GPU-12,1 --mem 1G,50%"), 0);
    ck_assert_uint_eq(wanted.request.n_devices, 2);
    ck_assert_str_eq(wanted.request.devices[0], "GPU-12");
    ck_assert_ptr_null(wanted.request.amount);
    ck_assert_uint_eq(wanted.request.n_amounts, 2);
    ck_assert_int_eq(wanted.request.amounts[0].bytes.value, GI);
    ck_assert_int_eq(wanted.request.amounts[1].permyriad.value, 5000);
    request_options_done(&wanted);
}
END_TEST

START_TEST(waiting_is_asked_for_in_time) {
    struct request_options wanted;

    forget_environment();
    ck_assert_int_eq(parse(&wanted, "--wait=2h"), 0);
    ck_assert(wanted.request.wait.has && wanted.request.wait.value == 1);
    ck_assert_int_eq(wanted.request.timeout_usec.value, INT64_C(7200000000));
    request_options_done(&wanted);
    ck_assert_int_eq(parse(&wanted, "--wait"), 0);
    ck_assert(!wanted.request.timeout_usec.has);
    request_options_done(&wanted);
    ck_assert_int_eq(parse(&wanted, "--wait=infinity"), 0);
    ck_assert(wanted.request.wait.has && !wanted.request.timeout_usec.has);
    request_options_done(&wanted);
    ck_assert_int_eq(parse(&wanted, "--wait=5m --no-wait"), 0); /* the last one counts */
    ck_assert(wanted.request.wait.has && wanted.request.wait.value == 0);
    ck_assert(!wanted.request.timeout_usec.has);
    request_options_done(&wanted);
    ck_assert_int_eq(parse(&wanted, ""), 0);
    ck_assert(!wanted.request.wait.has && !wanted.request.amount && !wanted.request.gpus.has);
    request_options_done(&wanted);
}
END_TEST

START_TEST(what_is_visible_already_is_passed_on) {
    struct request_options wanted;

    forget_environment();
    setenv("CUDA_VISIBLE_DEVICES", "2,1", 1);
    setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST", 1);
    ck_assert_int_eq(parse(&wanted, "--gpus 2"), 0);
    ck_assert_str_eq(wanted.request.visible_devices, "2,1");
    ck_assert_str_eq(wanted.request.device_order, "FASTEST_FIRST");
    request_options_done(&wanted);
    /* Named devices are devices of the box, not of what is visible here. */
    ck_assert_int_eq(parse(&wanted, "--devices 3"), 0);
    ck_assert_ptr_null(wanted.request.visible_devices);
    request_options_done(&wanted);
}
END_TEST

START_TEST(slurm_is_respected) {
    struct request_options wanted;

    forget_environment();
    setenv("CUDA_VISIBLE_DEVICES", "0,1", 1); /* counted within the job's own cgroup */
    setenv("SLURM_JOB_ID", "77", 1);
    setenv("SLURM_JOB_GPUS", "4,6", 1);
    ck_assert_int_eq(parse(&wanted, "--fraction 0.4"), 0);
    ck_assert(wanted.is_slurm);
    ck_assert_str_eq(wanted.request.visible_devices, "4,6");
    ck_assert_str_eq(wanted.request.device_order, "PCI_BUS_ID");
    ck_assert_int_eq(wanted.request.gpus.value, 2);
    request_options_done(&wanted);
    setenv("SLURM_STEP_GPUS", "6", 1);
    ck_assert_int_eq(parse(&wanted, "--gpus 1"), 0);
    ck_assert_str_eq(wanted.request.visible_devices, "6");
    ck_assert_int_eq(wanted.request.gpus.value, 1);
    request_options_done(&wanted);
    /* A job without GPUs of Slurm's is no such job. */
    unsetenv("SLURM_STEP_GPUS");
    unsetenv("SLURM_JOB_GPUS");
    ck_assert_int_eq(parse(&wanted, ""), 0);
    ck_assert(!wanted.is_slurm);
    ck_assert_str_eq(wanted.request.visible_devices, "0,1");
    request_options_done(&wanted);
}
END_TEST

START_TEST(slurm_counts_by_minor_numbers) {
    const struct wire_device devices[] = {
        { .uuid = "GPU-a", .kind = WIRE_DEVICE_GPU, .index = 0, .minor = { true, 3 } },
        { .uuid = "GPU-b", .kind = WIRE_DEVICE_GPU, .index = 1, .minor = { true, 0 } },
        { .uuid = "MIG-c", .kind = WIRE_DEVICE_MIG, .index = 2, .minor = { true, 1 } },
        { .uuid = "GPU-d", .kind = WIRE_DEVICE_GPU, .index = 3 },
    };
    const struct wire_box box = { .devices = devices, .n_devices = ELEMENTSOF(devices) };
    static const struct {
        const char *gpus, *uuids; /* NULL: refused */
    } rows[] = {
        { "0", "GPU-b" }, { "3,0", "GPU-a,GPU-b" }, { "0,3", "GPU-b,GPU-a" },
        { "1", NULL },    { "0,,3", NULL },         { "0x", NULL },
        { "a", NULL },    { "0,9", NULL },          { "0;3", NULL },
    };

    forget_environment();
    setenv("SLURM_JOB_ID", "77", 1);
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        struct request_options wanted;

        setenv("SLURM_JOB_GPUS", rows[i].gpus, 1);
        ck_assert_int_eq(parse(&wanted, "--fraction 0.4"), 0);
        ck_assert_int_eq(request_options_resolve(&wanted, &box) < 0, rows[i].uuids == NULL);
        if (rows[i].uuids)
            ck_assert_str_eq(wanted.request.visible_devices, rows[i].uuids);
        request_options_done(&wanted);
    }
    /* Where it is no job of Slurm's nothing is touched. */
    forget_environment();
    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    {
        struct request_options wanted;

        ck_assert_int_eq(parse(&wanted, ""), 0);
        ck_assert_int_eq(request_options_resolve(&wanted, &box), 0);
        ck_assert_str_eq(wanted.request.visible_devices, "7");
        request_options_done(&wanted);
    }
}
END_TEST

SUITE("request-options", amounts_are_what_people_write, contradictions_are_refused,
      devices_may_have_amounts_of_their_own, waiting_is_asked_for_in_time,
      what_is_visible_already_is_passed_on, slurm_is_respected, slurm_counts_by_minor_numbers)
