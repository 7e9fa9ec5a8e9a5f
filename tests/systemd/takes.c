/* SPDX-License-Identifier: Apache-2.0 */
/*
 * takes WAY MIB: loads libcuda in its own way, takes so much of the first GPU, says what came of
 * it, and holds it until its standard input ends. test_without_guard.py compiles it.
 *
 *     plain      dlopen and dlsym
 *     deepbind   dlopen with RTLD_DEEPBIND, and dlsym
 *     plugin     dlopen with RTLD_DEEPBIND of $PLUGIN: this file with -DPLUGIN, linked to libcuda
 *     seccomp    plain, where a filter refuses every socket
 *
 * With -DRAISED, "raised COMMAND": a set-user-ID program that becomes its owner and runs a command.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef PLUGIN
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(uint64_t *pointer, size_t bytes);

int plugin_take(size_t bytes) {
    uint64_t pointer;
    void *context;
    int r = cuInit(0);

    if (r == 0)
        r = cuDevicePrimaryCtxRetain(&context, 0);
    if (r == 0)
        r = cuCtxSetCurrent(context);
    return r ? r : cuMemAlloc_v2(&pointer, bytes);
}
#elif defined(RAISED)
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (setresgid(getegid(), getegid(), getegid()) < 0 ||
        setresuid(geteuid(), geteuid(), geteuid()) < 0)
        return 1;
    setenv("LD_LIBRARY_PATH", LIBRARIES, 1); /* which was taken away with LD_PRELOAD */
    execvp(argv[1], argv + 1);
    return 127;
}
#else
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static int take(void *library, size_t bytes) {
    int (*init)(unsigned) = dlsym(library, "cuInit");
    int (*retain)(void **, int) = dlsym(library, "cuDevicePrimaryCtxRetain");
    int (*set_current)(void *) = dlsym(library, "cuCtxSetCurrent");
    int (*alloc)(uint64_t *, size_t) = dlsym(library, "cuMemAlloc_v2");
    uint64_t pointer;
    void *context;
    int r = init(0);

    if (r == 0)
        r = retain(&context, 0);
    if (r == 0)
        r = set_current(context);
    return r ? r : alloc(&pointer, bytes);
}

static void refuse_sockets(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv) {
    size_t bytes = (size_t)atoi(argv[2]) << 20;
    const char *way = argv[1], *plugin = getenv("PLUGIN");
    int flags = RTLD_NOW, r;
    void *library;

    if (strcmp(way, "seccomp") == 0)
        refuse_sockets();
#ifdef RTLD_DEEPBIND
    if (strcmp(way, "deepbind") == 0 || strcmp(way, "plugin") == 0)
        flags |= RTLD_DEEPBIND;
#endif
    library = dlopen(strcmp(way, "plugin") == 0 ? plugin : "libcuda.so.1", flags);
    if (!library) {
        printf("no library: %s\n", dlerror());
        return 1;
    }
    if (strcmp(way, "plugin") == 0) {
        int (*plugin_take)(size_t) = dlsym(library, "plugin_take");

        r = plugin_take(bytes);
    } else
        r = take(library, bytes);
    printf(r ? "refused %d\n" : "got it\n", r);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
#endif
