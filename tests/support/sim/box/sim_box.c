/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/sim/box/sim_box.h"

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/box/charge.h"
#include "sim/box/proc.h"

void sim_box_init(struct sim_box *ret, const struct box_spec *spec) {
    const struct box_spec two = { .n_gpus = 2, .models = "t4-16g", .seed = 7 };
    const char *tmp = getenv("TMPDIR");
    struct allot_error err = { 0 };

    snprintf(ret->dir, sizeof(ret->dir), "%s/allot-test-XXXXXX", tmp ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(ret->dir));
    ck_assert_int_lt(snprintf(ret->path, sizeof(ret->path), "%.4000s/box", ret->dir), PATH_MAX);
    ck_assert_msg(spec_create(spec ? spec : &two, ret->path, 0600, &err) == 0, "%s", err.text);
    ck_assert_msg(box_open(&ret->box, ret->path, &err) == 0, "%s", err.text);
    setenv("GPUSIM_BOX", ret->path, 1);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk) {
    return remove(path);
}

void sim_box_init_driver(struct sim_box *ret, const struct box_spec *spec, const char *sim_dir) {
    sim_box_init(ret, spec);
    setenv("ALLOT_SIM_DIR", sim_dir, 1);
    setenv("ALLOT_SOCKET", "/nonexistent", 1);
}

void sim_box_done(struct sim_box *sim_box) {
    box_free(sim_box->box);
    nftw(sim_box->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    unsetenv("GPUSIM_BOX");
}

pid_t sim_box_fork(int (*fn)(struct sim_box *sim_box, void *argument), struct sim_box *sim_box,
                   void *argument) {
    const pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that is cut off leaves no process behind */
        _exit(fn(sim_box, argument));
    }
    return pid;
}

void sim_box_expect_success(pid_t pid) {
    int status;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child ended with status %#x",
                  status);
}

void sim_box_kill(pid_t pid) {
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

uint64_t sim_box_used(struct sim_box *sim_box, unsigned gpu) {
    struct charge_sums sums;

    ck_assert_int_eq(box_lock(sim_box->box), 0);
    proc_reap(sim_box->box);
    charge_sums(sim_box->box, (struct box_part){ gpu, 0 }, &sums);
    box_unlock(sim_box->box);
    return sums.used_bytes;
}

bool sim_box_arenas_move(void) {
#if defined(__SANITIZE_THREAD__)
    printf("skipped: the thread sanitizer leaves no addresses for two arenas\n");
    return false;
#else
    return true;
#endif
}
