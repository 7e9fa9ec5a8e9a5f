/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/units.h"
#include "sim/gpusim/gpusim.h"
#include "sim/box/spec.h"

enum {
    OPT_BOX = 256,
    OPT_MODEL,
    OPT_MEMORY,
    OPT_UUID,
    OPT_BUS,
    OPT_MINOR,
    OPT_NUMA,
    OPT_NVLINK,
    OPT_UPLINK,
    OPT_NO_P2P,
    OPT_MIG,
    OPT_DRIVER,
    OPT_DEV_DIR,
    OPT_RELEASE_DELAY,
    OPT_NVML_LAG,
    OPT_SEED,
    OPT_TIMING_ONLY,
    OPT_MODE,
};

static const struct option options[] = {
    { "help", no_argument, NULL, 'h' },
    { "box", required_argument, NULL, OPT_BOX },
    { "gpus", required_argument, NULL, 'g' },
    { "model", required_argument, NULL, OPT_MODEL },
    { "memory", required_argument, NULL, OPT_MEMORY },
    { "uuid", required_argument, NULL, OPT_UUID },
    { "bus", required_argument, NULL, OPT_BUS },
    { "minor", required_argument, NULL, OPT_MINOR },
    { "numa", required_argument, NULL, OPT_NUMA },
    { "nvlink", required_argument, NULL, OPT_NVLINK },
    { "uplink", required_argument, NULL, OPT_UPLINK },
    { "no-p2p", no_argument, NULL, OPT_NO_P2P },
    { "mig", required_argument, NULL, OPT_MIG },
    { "driver", required_argument, NULL, OPT_DRIVER },
    { "dev-dir", required_argument, NULL, OPT_DEV_DIR },
    { "release-delay", required_argument, NULL, OPT_RELEASE_DELAY },
    { "nvml-lag", required_argument, NULL, OPT_NVML_LAG },
    { "seed", required_argument, NULL, OPT_SEED },
    { "timing-only", no_argument, NULL, OPT_TIMING_ONLY },
    { "mode", required_argument, NULL, OPT_MODE },
    { 0 },
};

static int parse_count(const char *text, int base, unsigned long long max,
                       unsigned long long *ret) {
    char *end;

    errno = 0;
    *ret = strtoull(text, &end, base);
    return errno || end == text || *end || *text == '-' || *ret > max ? -EINVAL : 0;
}

static int parse_ns(const char *text, uint64_t *ret) {
    uint64_t usec;

    if (units_parse_usec(&usec, text) < 0 || usec > UINT64_C(3600000000))
        return -EINVAL;
    *ret = usec * 1000;
    return 0;
}

/* One option into the spec. -EINVAL: its argument makes no sense. */
static int take_option(int option, struct box_spec *spec, const char **box, unsigned *mode) {
    unsigned long long n;
    int r = 0;

    switch (option) {
    case OPT_BOX:
        *box = optarg;
        break;
    case 'g':
        r = parse_count(optarg, 10, BOX_MAX_GPUS, &n);
        spec->n_gpus = n;
        if (r == 0 && !n)
            r = -EINVAL;
        break;
    case OPT_MODEL:
        spec->models = optarg;
        break;
    case OPT_MEMORY:
        spec->memories = optarg;
        break;
    case OPT_UUID:
        spec->uuids = optarg;
        break;
    case OPT_BUS:
        spec->buses = optarg;
        break;
    case OPT_MINOR:
        spec->minors = optarg;
        break;
    case OPT_NUMA:
        spec->numa_nodes = optarg;
        break;
    case OPT_NVLINK:
        spec->nvlink = optarg;
        break;
    case OPT_UPLINK:
        spec->uplink = optarg;
        break;
    case OPT_NO_P2P:
        spec->no_p2p = true;
        break;
    case OPT_MIG:
        spec->mig = optarg;
        break;
    case OPT_DRIVER:
        spec->driver = optarg;
        break;
    case OPT_DEV_DIR:
        spec->dev_dir = optarg;
        break;
    case OPT_RELEASE_DELAY:
        r = parse_ns(optarg, &spec->release_delay_ns);
        break;
    case OPT_NVML_LAG:
        r = parse_ns(optarg, &spec->nvml_lag_ns);
        break;
    case OPT_SEED:
        r = parse_count(optarg, 0, UINT64_MAX, &n);
        spec->seed = n;
        break;
    case OPT_TIMING_ONLY:
        spec->timing_only = true;
        break;
    case OPT_MODE:
        r = parse_count(optarg, 8, 0777, &n);
        *mode = n;
        break;
    }
    return r;
}

static const char *option_name(int c) {
    const struct option *option = options;

    while (option->name && option->val != c)
        option++;
    return option->name;
}

/* The folder of the default box may not exist yet. */
static void make_folder(const char *path) {
    char copy[PATH_MAX];

    snprintf(copy, sizeof(copy), "%s", path);
    mkdir(dirname(copy), 0700);
}

static int run(int argc, char **argv) {
    struct allot_error err = { 0 };
    struct box_spec spec = { 0 };
    const char *given = NULL;
    char path[PATH_MAX];
    unsigned mode = 0600;
    int c, index = 0;

    opterr = 0; /* one message is enough: ours */
    while ((c = getopt_long(argc, argv, "hg:", options, &index)) >= 0) {
        if (c == 'h')
            return gpusim_print_help(&verb_create);
        if (c == '?')
            return gpusim_complain_usage(
                &verb_create, "no such option, or its argument is missing: %s", argv[optind - 1]);
        if (take_option(c, &spec, &given, &mode) < 0)
            return gpusim_complain_usage(&verb_create, "\"%s\" is not a value for --%s", optarg,
                                         option_name(c));
    }
    if (optind < argc)
        return gpusim_complain_usage(&verb_create, "unexpected argument \"%s\"", argv[optind]);

    if (gpusim_find_path(path, given, &err) < 0)
        return gpusim_complain(&err);
    if (!given && !getenv("GPUSIM_BOX"))
        make_folder(path);
    if (spec_create(&spec, path, mode, &err) < 0)
        return gpusim_complain(&err);
    printf("%s\n", path);
    return EXIT_SUCCESS;
}

const struct gpusim_verb verb_create = {
    .name = "create",
    .summary = "make a box",
    .help = "usage: gpusim create [OPTION…]\n"
            "\n"
            "  --box FILE            where; else GPUSIM_BOX, else the user's own\n"
            "  -g, --gpus N          how many GPUs, 1 to 16 (4)\n"
            "  --model LIST          t4-16g a100-40g a100-80g h100-80g rtx4090-24g (a100-40g)\n"
            "  --memory LIST         total memory of each GPU (that of its model)\n"
            "  --uuid LIST           GPU-… (made up)\n"
            "  --bus LIST            PCI bus ids (made up); GPUs are numbered in bus order\n"
            "  --minor LIST          minor numbers of the device nodes (0, 1, 2, …)\n"
            "  --numa LIST           NUMA nodes (half of the GPUs each on 0 and 1)\n"
            "  --nvlink KIND         none, pairs or all (all, where the models have NVLink)\n"
            "  --uplink KIND         own, pairs or one: which GPUs share a PCIe uplink (pairs)\n"
            "  --no-p2p              no copies between GPUs over PCIe but through the host\n"
            "  --mig LIST            instances: 0:3g.20gb+3g.20gb,1:2x1c.2g.10gb\n"
            "  --driver VERSION      615, 580, 570, 550 or 535 (615)\n"
            "  --dev-dir DIR         where device nodes are looked for (/dev)\n"
            "  --release-delay TIME  how long an ended process's memory stays taken (0)\n"
            "  --nvml-lag TIME       how far NVML's memory readings are behind (0)\n"
            "  --seed N              makes the same box each time\n"
            "  --timing-only         kernels cost time but compute nothing\n"
            "  --mode MODE           of the file, 0666 to share it among users (0600)\n"
            "\n"
            "Lists are separated by commas, one item for each GPU. Prints the path of the box.\n",
    .run = run,
};
