/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/daemon/hand/fake_machine.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/bpf.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cgroup_owner.h"
#include "base/cleanup.h"

#define ROOT "/run/cgroup" /* where the tree of this machine is mounted */

/* Seen from outside: removed at the end. */
static char outside[512];
static int outside_parent = -1, warden_pipe = -1;
static pid_t warden;

static int write_text(const char *path, int flags, const char *text) {
    cleanup(closep) int fd = open(path, flags | O_WRONLY | O_CLOEXEC, 0644);
    size_t n = strlen(text);

    if (fd < 0)
        return -errno;
    return write(fd, text, n) == (ssize_t)n ? 0 : -errno;
}

static void make_parents(const char *path) {
    char part[512];

    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        mkdir(part, 0755);
    }
}

static bool cannot(const char *what) {
    printf("skipped: %s: %s\n", what, strerror(errno));
    return false;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
    if (type == FTW_DP)
        rmdir(path);
    return 0;
}

/*
 * Outside, in a session of its own: when the test says so, or has ended in whatever way, end what
 * is left in its cgroups and remove them.
 */
static void start_warden(void) {
    struct pollfd fds[2] = { { .events = POLLIN }, { .events = POLLIN } };
    pid_t test = getpid();
    char path[600];
    int pipe_fds[2];

    ck_assert_int_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
    warden = fork();
    ck_assert_int_ge(warden, 0);
    warden_pipe = pipe_fds[1];
    if (warden > 0) {
        close(pipe_fds[0]);
        return;
    }
    setsid();
    fds[0].fd = pipe_fds[0];
    fds[1].fd = (int)syscall(SYS_pidfd_open, test, 0);
    poll(fds, 2, -1);
    snprintf(path, sizeof(path), "%s/cgroup.kill", outside);
    for (int i = 0; i < 400 && access(outside, F_OK) == 0; i++) {
        write_text(path, 0, "1");
        nftw(outside, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        poll(NULL, 0, 5);
    }
    _exit(0);
}

bool fake_machine_enter(void) {
    static const struct {
        const char *name;
        unsigned minor;
    } nodes[] = { { "null", 3 }, { "zero", 5 }, { "urandom", 9 }, { "kmsg", 11 } };
    char root[256], pid[16], procs[600];

    if (geteuid() != 0) {
        printf("skipped: only root makes cgroups and device nodes\n");
        return false;
    }
    if (cgroup_owner_find_root(root, sizeof(root), "/proc/self/mountinfo") < 0) {
        printf("skipped: cgroup2 is not mounted here\n");
        return false;
    }
    snprintf(outside, sizeof(outside), "%s/allot-test-XXXXXX", root);
    if (!mkdtemp(outside))
        return cannot("cgroups cannot be made here");
    chmod(outside, 0755);
    start_warden();
    outside_parent = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(procs, sizeof(procs), "%s/cgroup.procs", outside);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    if (write_text(procs, 0, pid) < 0 || unshare(CLONE_NEWNS | CLONE_NEWCGROUP) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("run", "/run", "tmpfs", 0, NULL) < 0)
        return cannot("namespaces are not to be had here");
    ck_assert_int_eq(mkdir(ROOT, 0755), 0);
    ck_assert_int_eq(mount("cgroup2", ROOT, "cgroup2", 0, NULL), 0);
    make_parents("/run/systemd/system/x");
    ck_assert_int_eq(mount("dev", "/dev", "tmpfs", 0, "mode=755"), 0);
    for (size_t i = 0; i < ELEMENTSOF(nodes); i++)
        fake_machine_node(nodes[i].name, 1, nodes[i].minor);
    return true;
}

void fake_machine_leave(void) {
    char pid[16], procs[64];

    snprintf(procs, sizeof(procs), "/proc/self/fd/%d/cgroup.procs", outside_parent);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    ck_assert_int_eq(write_text(procs, 0, pid), 0);
    ck_assert_int_eq(write(warden_pipe, "", 1), 1);
    ck_assert_int_eq(waitpid(warden, NULL, 0), warden);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

void fake_machine_node(const char *name, unsigned major, unsigned minor) {
    char path[128];

    snprintf(path, sizeof(path), "/dev/%s", name);
    make_parents(path);
    ck_assert_msg(mknod(path, S_IFCHR | 0666, makedev(major, minor)) == 0, "%s: %s", path,
                  strerror(errno));
    chmod(path, 0666);
}

void fake_machine_file(const char *path, const char *text) {
    make_parents(path);
    ck_assert_msg(write_text(path, O_CREAT | O_TRUNC, text) == 0, "%s", path);
}

void fake_machine_cover(const char *path, const char *text) {
    static unsigned n;
    char file[64];

    snprintf(file, sizeof(file), "/run/cover-%u", n++);
    fake_machine_file(file, text);
    ck_assert_int_eq(mount(file, path, NULL, MS_BIND, NULL), 0);
}

void fake_machine_cover_folder(const char *path) {
    ck_assert_int_eq(mount("cover", path, "tmpfs", 0, NULL), 0);
}

const char *fake_machine_cgroup(const char *cgroup) {
    static char folder[700];

    snprintf(folder, sizeof(folder), ROOT "%s/", cgroup);
    make_parents(folder);
    folder[strlen(folder) - 1] = 0;
    return folder;
}

int fake_machine_move(const char *cgroup, pid_t pid) {
    char path[720], text[16];

    snprintf(path, sizeof(path), "%s/cgroup.procs", fake_machine_cgroup(cgroup));
    snprintf(text, sizeof(text), "%d", (int)pid);
    return write_text(path, 0, text);
}

static void add(struct bpf_insn *code, size_t *n, uint8_t op, uint8_t to, uint8_t from, int16_t off,
                int32_t imm) {
    code[(*n)++] = (struct bpf_insn){ op, to, from, off, imm };
}

void fake_machine_filter(const char *cgroup, const dev_t *allow, size_t n) {
    const dev_t always[] = { makedev(1, 3), makedev(1, 5), makedev(1, 9) };
    struct bpf_insn code[200];
    union bpf_attr attr;
    size_t len = 0;
    int program, folder;

    ck_assert_uint_le(n, 40);
    add(code, &len, BPF_LDX | BPF_MEM | BPF_W, 2, 1, 4, 0); /* major */
    add(code, &len, BPF_LDX | BPF_MEM | BPF_W, 3, 1, 8, 0); /* minor */
    for (size_t i = 0; i < n + ELEMENTSOF(always); i++) {
        dev_t node = i < n ? allow[i] : always[i - n];

        add(code, &len, BPF_JMP | BPF_JNE | BPF_K, 2, 0, 3, (int32_t)major(node));
        add(code, &len, BPF_JMP | BPF_JNE | BPF_K, 3, 0, 2, (int32_t)minor(node));
        add(code, &len, BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 1);
        add(code, &len, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    }
    add(code, &len, BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0);
    add(code, &len, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    memset(&attr, 0, sizeof(attr));
    attr.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
    attr.insns = (uint64_t)(uintptr_t)code;
    attr.insn_cnt = (uint32_t)len;
    attr.license = (uint64_t)(uintptr_t) "Apache-2.0";
    program = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
    ck_assert_msg(program >= 0, "no device filter: %s", strerror(errno));
    folder = open(fake_machine_cgroup(cgroup), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    memset(&attr, 0, sizeof(attr));
    attr.target_fd = (uint32_t)folder;
    attr.attach_bpf_fd = (uint32_t)program;
    attr.attach_type = BPF_CGROUP_DEVICE;
    attr.attach_flags = BPF_F_ALLOW_MULTI;
    ck_assert_msg(syscall(SYS_bpf, BPF_PROG_ATTACH, &attr, sizeof(attr)) == 0,
                  "no device filter: %s", strerror(errno));
    close(folder);
    close(program);
}

pid_t fake_machine_process(const char *cgroup, uid_t uid, const char *const *environment) {
    int ready[2];
    pid_t pid;
    char c;

    ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGTERM, SIG_DFL);
        if (fake_machine_move(cgroup, getpid()) < 0 || setresuid(uid, uid, uid) < 0)
            _exit(1);
        if (environment) {
            execle("/bin/sleep", "sleep", "1000", (char *)NULL, environment);
            _exit(1);
        }
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    /* Becoming another program closes the pipe. */
    ck_assert_int_eq(read(ready[0], &c, 1), environment ? 0 : 1);
    close(ready[0]);
    return pid;
}

void fake_machine_end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
