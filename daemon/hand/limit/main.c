/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allot-limit: makes one call of the driver that the hand needs, and ends. daemon/hand/exec/
 * driver_limit.h says why it is a process of its own. It gives up every capability that the call
 * does not need before it loads anything of NVIDIA's.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/capabilities.h"
#include "daemon/hand/limit/exit_status.h"
#include "driver/cuda.h"
#include "driver/nvml.h"
#include "driver/nvml_process.h"

#define TRY_BYTES (UINT64_C(16) << 20)

static int usage(FILE *f) {
    fprintf(f,
            "usage: allot-limit [--driver WHICH] set UUID CGROUP BYTES\n"
            "       allot-limit [--driver WHICH] check UUID CGROUP\n"
            "       allot-limit [--driver WHICH] try UUID\n\n"
            "Sets the driver's memory limit of a control group, for allot-hand; see allotd(8).\n");
    return f == stdout ? EXIT_SUCCESS : LIMIT_USAGE;
}

static int fail(int r, const struct allot_error *err) {
    puts(err->text);
    return r == -EOPNOTSUPP ? LIMIT_UNKNOWN : LIMIT_FAILED;
}

static int open_device(enum driver_choice driver, const char *uuid, struct nvml **ret_nvml,
                       struct nvml_device *ret, struct allot_error *err) {
    const struct driver_options options = driver_options_read(driver);
    int r = nvml_open(ret_nvml, &options, err);

    return r < 0 ? r : nvml_device_find(*ret_nvml, ret, uuid, err);
}

static int check(enum driver_choice driver, const char *uuid, const char *folder) {
    cleanup(nvml_closep) struct nvml *nvml = NULL;
    struct allot_error err = { 0 };
    struct nvml_device device;
    struct nvml_limit now;
    int r = open_device(driver, uuid, &nvml, &device, &err);

    if (r == 0)
        r = nvml_process_limit_get(nvml, &device, folder, &now, &err);
    return r < 0 ? fail(r, &err) : LIMIT_DONE;
}

static int set(enum driver_choice driver, const char *uuid, const char *folder, uint64_t bytes) {
    struct nvml_limit limit = { .hard_bytes = bytes }, now = { 0 };
    cleanup(nvml_closep) struct nvml *nvml = NULL;
    struct allot_error err = { 0 };
    struct nvml_device device;
    int r = open_device(driver, uuid, &nvml, &device, &err);

    if (r == 0)
        r = nvml_process_limit_set(nvml, &device, folder, &limit, &err);
    if (r == 0)
        r = nvml_process_limit_get(nvml, &device, folder, &now, &err);
    if (r == 0 && now.hard_bytes != bytes)
        r = error_set(&err, -EIO, "%s: the driver says %" PRIu64 " instead of %" PRIu64, uuid,
                      now.hard_bytes, bytes);
    return r < 0 ? fail(r, &err) : LIMIT_DONE;
}

/* Inside a cgroup with a limit: allocate more than it allows. */
static int try_memory(enum driver_choice driver, const char *uuid) {
    const struct driver_options options = driver_options_read(driver);
    cleanup(cuda_closep) struct cuda *cuda = NULL;
    CUdeviceptr pointer;
    CUcontext context;
    int r;

    if (setenv("CUDA_VISIBLE_DEVICES", uuid, 1) < 0 || cuda_open(&cuda, &options, NULL) < 0)
        return LIMIT_NOT_TRIED;
    r = cuda_primary_ctx_retain(cuda, NULL, &context, 0);
    if (r == 0)
        r = cuda_ctx_set_current(cuda, NULL, context);
    if (r == 0)
        r = cuda_mem_alloc(cuda, NULL, &pointer, TRY_BYTES);
    return r == 0 ? LIMIT_GRANTED : r == -ENOMEM ? LIMIT_REFUSED : LIMIT_NOT_TRIED;
}

static bool parse_bytes(const char *text, uint64_t *ret) {
    char *end;

    errno = 0;
    *ret = strtoull(text, &end, 10);
    return isdigit((unsigned char)text[0]) && !*end && errno == 0;
}

static int run(enum driver_choice driver, char **words, int n) {
    bool is_try = n == 2 && strcmp(words[0], "try") == 0;
    bool is_check = n == 3 && strcmp(words[0], "check") == 0;
    bool is_set = n == 4 && strcmp(words[0], "set") == 0;
    uint64_t bytes = 0;
    int r;

    if ((!is_try && !is_check && !is_set) || (is_set && !parse_bytes(words[3], &bytes)))
        return usage(stderr);
    r = capabilities_keep(is_try ? 0 : UINT64_C(1) << CAP_SYS_ADMIN);
    if (r < 0) {
        printf("capabilities cannot be given up: %s\n", strerror(-r));
        return LIMIT_FAILED;
    }
    if (is_try)
        return try_memory(driver, words[1]);
    return is_check ? check(driver, words[1], words[2]) : set(driver, words[1], words[2], bytes);
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        { "help", no_argument, NULL, 'h' },
        { "version", no_argument, NULL, 'V' },
        { "driver", required_argument, NULL, 'd' },
        { 0 },
    };
    enum driver_choice driver = DRIVER_AUTO;
    int c;

    while ((c = getopt_long(argc, argv, "+h", options, NULL)) >= 0)
        switch (c) {
        case 'h':
            return usage(stdout);
        case 'V':
            puts("allot-limit " ALLOT_VERSION);
            return EXIT_SUCCESS;
        case 'd':
            if (driver_choice_parse(&driver, optarg) < 0)
                return usage(stderr);
            break;
        default:
            return usage(stderr);
        }
    return run(driver, argv + optind, argc - optind);
}
