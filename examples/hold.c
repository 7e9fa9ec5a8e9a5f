/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hold: a CUDA program as anybody might have written it, which takes memory of a GPU and keeps it.
 *
 *     hold --device 1 8GiB
 *
 * It asks nobody for leave: it opens libcuda.so.1 as the dynamic linker finds it, so it runs on a
 * real box and on a simulated one alike. It says what it holds and ends on SIGTERM, SIGINT, or when
 * its time (--seconds) is over.
 */
#include <dlfcn.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cuda.h>

#include "base/units.h"

#define STRING2(x) #x
#define STRING(x)  STRING2(x) /* the name cuda.h gives a call: cuMemAlloc is cuMemAlloc_v2 */

#define CUDA_CALLS(X)                                                                              \
    X(cuInit)                                                                                      \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetName)                                                                             \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuCtxSetCurrent)                                                                             \
    X(cuMemAlloc)                                                                                  \
    X(cuGetErrorName)

#define X(name) static __typeof__(name) *p_##name;
CUDA_CALLS(X)
#undef X

static void fail(const char *what, CUresult result) {
    const char *name = NULL;

    if (p_cuGetErrorName)
        p_cuGetErrorName(result, &name);
    fprintf(stderr, "hold: %s: %s\n", what, name ? name : "unknown error");
    exit(EXIT_FAILURE);
}

static void load_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    if (!library) {
        fprintf(stderr, "hold: %s\n", dlerror());
        exit(EXIT_FAILURE);
    }
#define X(name)                                                                                    \
    p_##name = (__typeof__(p_##name))dlsym(library, STRING(name));                                 \
    if (!p_##name) {                                                                               \
        fprintf(stderr, "hold: %s\n", dlerror());                                                  \
        exit(EXIT_FAILURE);                                                                        \
    }
    CUDA_CALLS(X)
#undef X
}

static void usage(FILE *out) {
    fputs(
        "usage: hold [--device N] [--seconds N] SIZE\n"
        "Take SIZE (bytes, or 512MiB, 8GiB) of GPU N, as CUDA counts them, until SIGTERM or for so "
        "many seconds.\n",
        out);
}

/* A whole number from 0 to `max`; -1: it is none. */
static int parse_number(const char *text, long max) {
    char *end;
    const long n = strtol(text, &end, 10);

    return end == text || *end || n < 0 || n > max ? -1 : (int)n;
}

/* Also from inside a driver that hangs: the driver takes back what a process held, however it
 * ends. */
static void leave(int signal) {
    _exit(EXIT_SUCCESS);
}

int main(int argc, char **argv) {
    static const struct option options[] = { { "device", required_argument, NULL, 'd' },
                                             { "seconds", required_argument, NULL, 's' },
                                             { "help", no_argument, NULL, 'h' },
                                             {} };
    char name[128] = "";
    CUdeviceptr memory;
    CUcontext context;
    CUdevice device;
    CUresult result;
    uint64_t bytes;
    int index = 0, seconds = -1, option;

    while ((option = getopt_long(argc, argv, "d:s:h", options, NULL)) != -1)
        switch (option) {
        case 'd':
            index = parse_number(optarg, 1023);
            break;
        case 's':
            seconds = parse_number(optarg, 1000000000);
            if (seconds < 0)
                index = -1;
            break;
        case 'h':
            usage(stdout);
            return EXIT_SUCCESS;
        default:
            usage(stderr);
            return 2;
        }
    if (index < 0 || optind + 1 != argc || units_parse_bytes(&bytes, argv[optind]) < 0) {
        usage(stderr);
        return 2;
    }

    signal(SIGTERM, leave);
    signal(SIGINT, leave);

    load_driver();
    if ((result = p_cuInit(0)) || (result = p_cuDeviceGet(&device, index)) ||
        (result = p_cuDeviceGetName(name, sizeof(name), device)) ||
        (result = p_cuDevicePrimaryCtxRetain(&context, device)) ||
        (result = p_cuCtxSetCurrent(context)))
        fail("no context on the GPU", result);
    if ((result = p_cuMemAlloc(&memory, bytes)))
        fail("no memory", result);
    printf("pid %d holds %" PRIu64 " MiB on GPU %d, %s\n", getpid(), bytes >> 20, index, name);
    fflush(stdout);

    if (seconds >= 0)
        sleep((unsigned)seconds);
    else
        for (;;)
            pause();
    return EXIT_SUCCESS;
}
