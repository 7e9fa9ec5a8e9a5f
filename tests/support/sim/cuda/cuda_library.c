/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/sim/cuda/cuda_library.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void *cuda_library_symbol(const char *name) {
    void *library = dlopen(SIM_CUDA, RTLD_NOW | RTLD_LOCAL); /* the same each time */
    void *symbol;

    ck_assert_msg(library != NULL, "%s", dlerror());
    symbol = dlsym(library, name);
    ck_assert_msg(symbol != NULL, "%s is missing", name);
    return symbol;
}

const char *cuda_library_name(CUresult result) {
    const char *name;

    return CU(cuGetErrorName)(result, &name) == CUDA_SUCCESS ? name : "no known result";
}

void cuda_library_init(struct sim_box *ret, const struct box_spec *spec) {
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_DEVICE_ORDER");
    sim_box_init(ret, spec);
    ck_assert_cuda_ok(CU(cuInit)(0));
}

void cuda_library_use(CUdevice device) {
    CUcontext context;

    ck_assert_cuda_ok(CU(cuInit)(0));
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&context, device));
    ck_assert_cuda_ok(CU(cuCtxSetCurrent)(context));
}

void cuda_library_start(struct sim_box *ret, const struct box_spec *spec) {
    cuda_library_init(ret, spec);
    cuda_library_use(0);
}

CUdeviceptr cuda_library_alloc(uint64_t bytes) {
    CUdeviceptr p;

    ck_assert_cuda_ok(CU(cuMemAlloc_v2)(&p, bytes));
    return p;
}

uint64_t cuda_library_free_bytes(void) {
    size_t free_bytes, total;

    ck_assert_cuda_ok(CU(cuMemGetInfo_v2)(&free_bytes, &total));
    return free_bytes;
}

void cuda_library_pair_init(struct cuda_library_pair *pair) {
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair->to_child), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair->to_parent), 0);
}

void cuda_library_send(int fd, const void *data, size_t bytes) {
    ck_assert_int_eq(write(fd, data, bytes), (ssize_t)bytes);
}

void cuda_library_receive(int fd, void *data, size_t bytes) {
    ck_assert_int_eq(recv(fd, data, bytes, MSG_WAITALL), (ssize_t)bytes);
}

void cuda_library_send_fd(int socket, int fd) {
    char byte = 0, control[CMSG_SPACE(sizeof(fd))] = { 0 };
    struct iovec piece = { &byte, 1 };
    struct msghdr message = {
        .msg_iov = &piece,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control),
    };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);

    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(head), &fd, sizeof(fd));
    ck_assert_int_eq(sendmsg(socket, &message, 0), 1);
}

int cuda_library_receive_fd(int socket) {
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec piece = { &byte, 1 };
    struct msghdr message = {
        .msg_iov = &piece,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control),
    };
    int fd;

    ck_assert_int_eq(recvmsg(socket, &message, 0), 1);
    ck_assert_ptr_nonnull(CMSG_FIRSTHDR(&message));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}
