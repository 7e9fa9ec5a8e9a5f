/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NCCL may answer: X(code, name, -errno, what is wrong and what to do). No include guard: it
 * is a table, for nccl.c and nccl_check.c. New codes go here; what is not here is -EIO.
 */
/* clang-format off */
X(1, ncclUnhandledCudaError, -ENOTRECOVERABLE, "a call of CUDA failed in NCCL: NCCL_DEBUG=WARN says which")
X(2, ncclSystemError, -EACCES, "a system call failed in NCCL: NCCL_DEBUG=WARN says which; check the size of /dev/shm and the limit of locked memory")
X(3, ncclInternalError, -EIO, "NCCL failed in itself: NCCL_DEBUG=WARN says where")
X(4, ncclInvalidArgument, -EINVAL, "an argument is not valid")
X(5, ncclInvalidUsage, -EINVAL, "NCCL cannot be used like this: a device is named twice, or cannot be used")
X(6, ncclRemoteError, -ECONNRESET, "another process or device of the sum failed")
X(7, ncclInProgress, -EAGAIN, "not finished yet")
/* clang-format on */
