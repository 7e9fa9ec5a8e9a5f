/* SPDX-License-Identifier: Apache-2.0 */
/* liballot's lease in a program that closes descriptors which it did not open. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/allot/lease.h"
#include "tests/support/libclient/lease/fake_allotd.h"
#include "tests/support/suite.h"

#define G(n) ((n)*WIRE_GRANULE)

/*
 * Numbers that the program took over: files, and sockets whose other ends tell what was sent. At
 * least as many as liballot had open.
 */
#define TAKEN 24

static int be_ruthless(int path_fd, const sigset_t *again) {
    char path[PATH_MAX] = "";
    struct allot_lease_share share;
    struct allot_error err = { 0 };
    int files[TAKEN], ends[TAKEN], others[TAKEN], number;
    struct allot_lease *lease;
    struct stat st;
    char byte;

    if (read(path_fd, path, sizeof(path) - 1) <= 0 || setenv("ALLOT_SOCKET", path, 1) < 0)
        return __LINE__;
    if (allot_lease_attach(&lease, FAKE_LEASE, FAKE_TOKEN, NULL, &err) != 0 ||
        allot_lease_grow(lease, NULL, G(7), 0, &err) != 0 ||
        allot_lease_shrink(lease, NULL, G(7), &err) != 0)
        return __LINE__;
    closefrom(3);
    for (size_t i = 0; i < TAKEN; i++) {
        int pair[2];

        files[i] = memfd_create("taken", MFD_CLOEXEC);
        if (files[i] < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
            return __LINE__;
        ends[i] = pair[0];
        others[i] = pair[1];
    }
    if (sigwait(again, &number) != 0)
        return __LINE__;
    if (allot_lease_grow(lease, NULL, G(3), 0, &err) != 0 ||
        allot_lease_shrink(lease, NULL, G(2), &err) != 0 ||
        allot_lease_shares(lease, &share, 1) != 1 || share.held_bytes != G(1))
        return __LINE__;
    allot_lease_free(lease);
    for (size_t i = 0; i < TAKEN; i++) {
        if (fstat(files[i], &st) < 0 || st.st_size != 0)
            return __LINE__;
        if (recv(ends[i], &byte, 1, MSG_DONTWAIT) != -1 || errno != EAGAIN ||
            recv(others[i], &byte, 1, MSG_DONTWAIT) != -1 || errno != EAGAIN)
            return __LINE__;
    }
    return 0;
}

START_TEST(a_program_that_closes_everything_keeps_its_files_and_its_lease) {
    struct allot_error err = { 0 };
    struct allot_lease *lease;
    struct fake_allotd *d;
    int status, path[2];
    sigset_t again;
    pid_t child;

#ifdef __SANITIZE_THREAD__
    printf("skipped: the thread sanitizer takes a descriptor's next owner for its last\n");
    return;
#endif
    unsetenv("ALLOT_LEASE");
    sigemptyset(&again);
    sigaddset(&again, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &again, NULL);

    /*
     * Forked before this process has threads: the sanitizers' allocators do not survive a fork
     * beside a thread that allocates.
     */
    ck_assert_int_eq(pipe(path), 0);
    child = fork();
    if (child == 0)
        _exit(be_ruthless(path[0], &again) & 0xff);
    d = fake_allotd_new();
    setenv("ALLOT_SOCKET", fake_allotd_path(d), 1);
    ck_assert_msg(allot_lease_acquire(&lease, NULL, &err) == 0, "%s", err.text);
    ck_assert_int_gt(write(path[1], fake_allotd_path(d), strlen(fake_allotd_path(d))), 0);
    fake_allotd_await_attached(d, 3); /* this process, the child, and the child once more */
    kill(child, SIGUSR1);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
    fake_allotd_await_holders(d, 1);
    allot_lease_free(lease);
    ck_assert_uint_eq(fake_allotd_mistakes(d), 0);
    fake_allotd_free(d);
    close(path[0]);
    close(path[1]);
}
END_TEST

SUITE("lease-descriptors", a_program_that_closes_everything_keeps_its_files_and_its_lease)
