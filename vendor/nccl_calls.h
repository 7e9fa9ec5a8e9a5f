/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The calls of NCCL that Allot makes, declared by ourselves: its package is huge and brings nothing
 * else that we need. Where nccl.h is installed, driver/nccl_check.c holds all of this against it.
 *
 * A line is X(needed, since, field, symbol, (parameters), (arguments)), or X0(…) without the last
 * two; `since` is the version of NCCL that first had the symbol, as ncclGetVersion() counts, 0
 * where all of version 2 have it.
 */
#include <cuda.h>
#include <stddef.h>

/* X(name, value): the vendor's constants that we use. */
/* clang-format off */
#define NCCL_CONSTANTS(X)                                                                          \
    X(ncclSum, 0)                                                                                  \
    X(ncclFloat16, 6)                                                                              \
    X(ncclFloat32, 7)                                                                              \
    X(ncclFloat64, 8)                                                                              \
    X(ncclBfloat16, 9)

#define NCCL_CALLS(X, X0)                                                                          \
    X(true, 0, get_version, ncclGetVersion, (int *version), (version))                             \
    X(true, 0, comm_init_all, ncclCommInitAll,                                                     \
      (ncclComm_t *comm, int ndev, const int *devlist), (comm, ndev, devlist))                     \
    X(true, 0, comm_destroy, ncclCommDestroy, (ncclComm_t comm), (comm))                           \
    X(false, 2400, comm_abort, ncclCommAbort, (ncclComm_t comm), (comm))                           \
    X(true, 0, all_reduce, ncclAllReduce,                                                          \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,                \
       ncclRedOp_t op, ncclComm_t comm, CUstream stream),                                          \
      (sendbuff, recvbuff, count, datatype, op, comm, stream))                                     \
    X0(true, 0, group_start, ncclGroupStart)                                                       \
    X0(true, 0, group_end, ncclGroupEnd)
/* clang-format on */

#ifndef NCCL_H_ /* the vendor's header has the same */
typedef struct ncclComm *ncclComm_t;
typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t;
enum {
    ncclSuccess = 0,
#define X(name, value) name = value,
    NCCL_CONSTANTS(X)
#undef X
};
#endif
