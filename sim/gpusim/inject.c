/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "sim/box/fault.h"
#include "sim/gpusim/gpusim.h"

static const struct option options[] = {
    { "help", no_argument, NULL, 'h' },       { "box", required_argument, NULL, 'b' },
    { "gpu", required_argument, NULL, 'g' },  { "times", required_argument, NULL, 't' },
    { "seed", required_argument, NULL, 's' }, { 0 },
};

struct injection {
    struct box *box;
    const char *gpu_text;
    bool has_gpu;
    unsigned gpu;
    uint64_t times, seed;
    int argc;
    char **argv; /* argv[0]: what */
};

static int parse_u64(const char *text, uint64_t max, uint64_t *ret) {
    char *end;

    errno = 0;
    *ret = strtoull(text, &end, 0);
    return errno || end == text || *end || *text == '-' || *ret > max ? -EINVAL : 0;
}

static int need_gpu(const struct injection *order, struct allot_error *err) {
    if (!order->has_gpu)
        return error_set(err, -EINVAL, "\"%s\" needs a GPU: name it with --gpu", order->argv[0]);
    return 0;
}

static int add(const struct injection *order, struct box_fault *fault, struct allot_error *err) {
    uint32_t id;
    int r;

    fault->gpu = order->has_gpu ? (int)order->gpu : -1;
    fault->remaining = order->times;
    r = fault_add(order->box, fault, &id);
    if (r < 0)
        return error_set(err, r, "%d faults are injected already: clear some", BOX_MAX_FAULTS);
    printf("%u\n", id);
    return 0;
}

static int do_xid(const struct injection *order, struct allot_error *err) {
    uint64_t xid;

    if (need_gpu(order, err) < 0)
        return err->code;
    if (parse_u64(order->argv[1], 999, &xid) < 0 || !xid)
        return error_set(err, -EINVAL, "\"%s\" is not an Xid (1 to 999)", order->argv[1]);
    fault_xid(order->box, order->gpu, xid);
    return 0;
}

static int do_ecc(const struct injection *order, struct allot_error *err) {
    const bool uncorrected = !strcmp(order->argv[1], "uncorrected");
    uint64_t n = 1;

    if (need_gpu(order, err) < 0)
        return err->code;
    if (!uncorrected && strcmp(order->argv[1], "corrected"))
        return error_set(err, -EINVAL, "\"%s\": ECC errors are corrected or uncorrected",
                         order->argv[1]);
    if (order->argc > 2 && (parse_u64(order->argv[2], 1000000, &n) < 0 || !n))
        return error_set(err, -EINVAL, "\"%s\" is not a number of errors", order->argv[2]);
    fault_ecc(order->box, order->gpu, uncorrected, n);
    return 0;
}

static int do_lost(const struct injection *order, struct allot_error *err) {
    if (need_gpu(order, err) < 0)
        return err->code;
    fault_lost(order->box, order->gpu);
    return 0;
}

static int do_recover(const struct injection *order, struct allot_error *err) {
    for (unsigned g = 0; g < order->box->n_gpus; g++)
        if (!order->has_gpu || order->gpu == g)
            fault_recover(order->box, g);
    return 0;
}

static int do_alloc_after(const struct injection *order, struct allot_error *err) {
    struct box_fault fault = { .kind = FAULT_ALLOC_AFTER };

    if (units_parse_bytes(&fault.argument, order->argv[1]) < 0)
        return error_set(err, -EINVAL, "\"%s\" is not a number of bytes (512M)", order->argv[1]);
    return add(order, &fault, err);
}

static int do_alloc_random(const struct injection *order, struct allot_error *err) {
    struct box_fault fault = { .kind = FAULT_ALLOC_RANDOM, .random = order->seed };
    uint32_t permyriad;

    if (units_parse_permyriad(&permyriad, order->argv[1]) < 0)
        return error_set(err, -EINVAL, "\"%s\" is not a probability (0.01, 1%%)", order->argv[1]);
    fault.argument = (UINT64_C(1) << 32) * permyriad / 10000;
    return add(order, &fault, err);
}

/* Every call of the two libraries. */
static const char *const calls[] = {
#define FUNCTION(name)    #name,
#define DATA(name, bytes) /* no call */
#include "vendor/cuda_names.def"
#undef FUNCTION
#undef DATA
#define X(name) #name,
#include "sim/nvml/names.def"
#undef X
};

static bool is_call(const char *pattern) {
    for (size_t i = 0; i < ELEMENTSOF(calls); i++)
        if (fault_names(pattern, calls[i]))
            return true;
    return false;
}

static int add_call(const struct injection *order, struct box_fault *fault,
                    struct allot_error *err) {
    const char *call = order->argv[1];

    if (!is_call(call))
        return error_set(err, -EINVAL,
                         "\"%s\" is not an NVML or CUDA call (nvmlDeviceGetName, cuMemAlloc*)",
                         call);
    if (strlen(call) >= sizeof(fault->call))
        return error_set(err, -EINVAL, "\"%s\" is too long for a call", call);
    strcpy(fault->call, call);
    return add(order, fault, err);
}

static int do_slow(const struct injection *order, struct allot_error *err) {
    struct box_fault fault = { .kind = FAULT_CALL_SLOW };
    uint64_t usec;

    if (units_parse_usec(&usec, order->argv[2]) < 0 || usec > UINT64_C(86400000000))
        return error_set(err, -EINVAL, "\"%s\" is not a time (200ms)", order->argv[2]);
    fault.argument = usec * 1000;
    return add_call(order, &fault, err);
}

static int do_hang(const struct injection *order, struct allot_error *err) {
    return add_call(order, &(struct box_fault){ .kind = FAULT_CALL_HANG }, err);
}

static int do_fail(const struct injection *order, struct allot_error *err) {
    struct box_fault fault = { .kind = FAULT_CALL_FAIL };
    uint64_t code;

    if (parse_u64(order->argv[2], 999, &code) < 0 || !code)
        return error_set(err, -EINVAL, "\"%s\" is not an error code of the library",
                         order->argv[2]);
    fault.code = code;
    return add_call(order, &fault, err);
}

static int do_clear(const struct injection *order, struct allot_error *err) {
    uint64_t id = 0;

    if (order->argc > 1 && (parse_u64(order->argv[1], UINT32_MAX, &id) < 0 || !id))
        return error_set(err, -EINVAL, "\"%s\" is not the number of a fault", order->argv[1]);
    if (fault_clear(order->box, id) < 0)
        return error_set(err, -ENOENT, "there is no fault %s; \"gpusim show\" lists them",
                         order->argv[1]);
    return 0;
}

static const struct {
    const char *name;
    int min_words, max_words; /* after the name */
    int (*run)(const struct injection *order, struct allot_error *err);
} kinds[] = {
    { "xid", 1, 1, do_xid },
    { "ecc", 1, 2, do_ecc },
    { "lost", 0, 0, do_lost },
    { "recover", 0, 0, do_recover },
    { "alloc-after", 1, 1, do_alloc_after },
    { "alloc-random", 1, 1, do_alloc_random },
    { "slow", 2, 2, do_slow },
    { "hang", 1, 1, do_hang },
    { "fail", 2, 2, do_fail },
    { "clear", 0, 1, do_clear },
};

static int run(int argc, char **argv) {
    struct injection order = { .seed = 1 };
    struct allot_error err = { 0 };
    const char *given = NULL;
    size_t k = 0;
    int c, r = 0;

    opterr = 0; /* one message is enough: ours */
    while ((c = getopt_long(argc, argv, "hb:g:t:s:", options, NULL)) >= 0) {
        if (c == 'h')
            return gpusim_print_help(&verb_inject);
        if (c == '?')
            return gpusim_complain_usage(
                &verb_inject, "no such option, or its argument is missing: %s", argv[optind - 1]);
        if (c == 'b')
            given = optarg;
        else if (c == 'g')
            order.gpu_text = optarg;
        else if (parse_u64(optarg, c == 't' ? UINT32_MAX : UINT64_MAX,
                           c == 't' ? &order.times : &order.seed) < 0)
            return gpusim_complain_usage(&verb_inject, "\"%s\" is not a number", optarg);
    }
    order.argc = argc - optind;
    order.argv = argv + optind;
    if (order.argc < 1)
        return gpusim_complain_usage(&verb_inject, "no fault given");
    while (k < ELEMENTSOF(kinds) && strcmp(kinds[k].name, order.argv[0]))
        k++;
    if (k == ELEMENTSOF(kinds))
        return gpusim_complain_usage(&verb_inject, "\"%s\" is not a kind of fault", order.argv[0]);
    if (order.argc - 1 < kinds[k].min_words || order.argc - 1 > kinds[k].max_words)
        return gpusim_complain_usage(&verb_inject, "too %s words after \"%s\"",
                                     order.argc - 1 < kinds[k].min_words ? "few" : "many",
                                     order.argv[0]);

    if (gpusim_open_locked(&order.box, given, &err) < 0)
        return gpusim_complain(&err);
    if (order.gpu_text) {
        r = gpusim_find_gpu(order.box, order.gpu_text, &order.gpu, &err);
        order.has_gpu = true;
    }
    if (r == 0)
        r = kinds[k].run(&order, &err);
    box_unlock(order.box);
    box_free(order.box);
    return r < 0 ? gpusim_complain(&err) : EXIT_SUCCESS;
}

const struct gpusim_verb verb_inject = {
    .name = "inject",
    .summary = "inject a fault, or undo it",
    .help = "usage: gpusim inject [--box FILE] [--gpu GPU] [--times N] [--seed N] WHAT\n"
            "\n"
            "On a GPU, reported through NVML's events:\n"
            "  xid N                        as the driver logs it; 79 also loses the GPU\n"
            "  ecc corrected|uncorrected [N]\n"
            "  lost                         fallen off the bus\n"
            "  recover                      health as new (without --gpu: of all)\n"
            "\n"
            "In calls, on any GPU or that of --gpu, always or --times N; prints a number:\n"
            "  alloc-after SIZE             allocations fail once SIZE more was given\n"
            "  alloc-random P               each fails with probability P; --seed fixes which\n"
            "  slow CALL TIME               CALL takes so much longer\n"
            "  hang CALL                    CALL does not return until the fault is cleared\n"
            "  fail CALL CODE               CALL answers CODE, of nvml.h or cuda.h\n"
            "  clear [NUMBER]               undo one, or all\n"
            "\n"
            "CALL is an NVML or CUDA name, in all its versions: cuMemAlloc is cuMemAlloc_v2 too.\n"
            "cuMem* is all that begin so.\n",
    .run = run,
};
