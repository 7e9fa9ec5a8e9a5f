/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * CUDA library: the simulated libcuda.so.1 as its clients have it, by dlopen.
 */
#include <check.h>

#include "sim/cuda/core/api.h"
#include "tests/support/sim/box/sim_box.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* A symbol of the library; fails the test if there is none. */
void *cuda_library_symbol(const char *name);
/* CU(cuMemAlloc_v2)(&p, n): with the vendor's prototype. */
#define CU(name)                                                                                   \
    ({                                                                                             \
        static __typeof__(&name) kept_;                                                            \
        __typeof__(&name) found_ = __atomic_load_n(&kept_, __ATOMIC_RELAXED);                      \
                                                                                                   \
        if (!found_) {                                                                             \
            found_ = (__typeof__(&name))cuda_library_symbol(#name);                                \
            __atomic_store_n(&kept_, found_, __ATOMIC_RELAXED);                                    \
        }                                                                                          \
        found_;                                                                                    \
    })

const char *cuda_library_name(CUresult result);
#define ck_assert_cuda(call, expected)                                                             \
    do {                                                                                           \
        CUresult answered_ = (call);                                                               \
                                                                                                   \
        ck_assert_msg(answered_ == (expected), "%s: %s instead of %s", #call,                      \
                      cuda_library_name(answered_), #expected);                                    \
    } while (0)
#define ck_assert_cuda_ok(call) ck_assert_cuda(call, CUDA_SUCCESS)

/* Make a box and initialise CUDA on it. */
void cuda_library_init(struct sim_box *ret, const struct box_spec *spec);
/* The same, with the primary context of device 0 current. */
void cuda_library_start(struct sim_box *ret, const struct box_spec *spec);
/* Initialise CUDA with a primary context of `device`, on the box that GPUSIM_BOX names. */
void cuda_library_use(CUdevice device);

CUdeviceptr cuda_library_alloc(uint64_t bytes);
/* What cuMemGetInfo() says is free. */
uint64_t cuda_library_free_bytes(void);

/* For tests with two processes: a byte there, a byte back. */
struct cuda_library_pair {
    int to_child[2], to_parent[2];
};
void cuda_library_pair_init(struct cuda_library_pair *pair);
void cuda_library_send(int fd, const void *data, size_t bytes);
void cuda_library_receive(int fd, void *data, size_t bytes);
/* Send or receive a descriptor over a socket. */
void cuda_library_send_fd(int socket, int fd);
int cuda_library_receive_fd(int socket);
