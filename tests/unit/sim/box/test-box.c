/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "sim/box/box.h"
#include "sim/box/charge.h"
#include "sim/box/proc.h"
#include "sim/box/spec.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

START_TEST(a_new_box_passes_its_own_check_and_has_the_models_it_was_ordered_with) {
    const struct box_spec spec = { .models = "t4-16g,a100-80g,h100-80g", .seed = 1 };
    struct allot_error err = { 0 };
    struct sim_box s;

    sim_box_init(&s, &spec);
    ck_assert_int_eq(box_check(s.box, &err), 0);
    ck_assert_uint_eq(s.box->n_gpus, 3);
    ck_assert_str_eq(box_model(s.box, 1)->key, "a100-80g");
    ck_assert_uint_eq(box_capacity(s.box, (struct box_part){ 0, 0 }), UINT64_C(14918) << 20);
    ck_assert_uint_eq(box_capacity(s.box, (struct box_part){ 3, 0 }), 0);
    sim_box_done(&s);
}
END_TEST

START_TEST(the_same_seed_makes_the_same_box) {
    const struct box_spec spec = { .n_gpus = 2, .seed = 42 };
    struct sim_box a, b;

    sim_box_init(&a, &spec);
    sim_box_init(&b, &spec);
    ck_assert_str_eq(a.box->file->gpu[1].uuid, b.box->file->gpu[1].uuid);
    ck_assert_str_ne(a.box->file->gpu[0].uuid, a.box->file->gpu[1].uuid);
    ck_assert(a.box->file->box_id != b.box->file->box_id);
    sim_box_done(&a);
    sim_box_done(&b);
}
END_TEST

START_TEST(a_box_is_not_made_over_another_file) {
    struct allot_error err = { 0 };
    struct sim_box s;

    sim_box_init(&s, NULL);
    ck_assert_int_eq(spec_create_default(s.path, &err), -EEXIST);
    ck_assert_ptr_nonnull(strstr(err.text, "exists already"));
    sim_box_done(&s);
}
END_TEST

START_TEST(opening_twice_gives_the_same_view_and_closing_keeps_presence) {
    struct allot_error err = { 0 };
    struct box *again;
    struct sim_box s;
    uint32_t slot;

    sim_box_init(&s, NULL);
    ck_assert_int_eq(box_open(&again, s.path, &err), 0);
    ck_assert_ptr_eq(again, s.box);
    box_lock(again);
    ck_assert_int_eq(proc_join(again, &slot), 0);
    box_unlock(again);
    box_free(again);
    ck_assert_int_eq(fcntl(s.box->fd, F_GETFD), FD_CLOEXEC);
    sim_box_done(&s);
}
END_TEST

/* Write `text` at `offset` of the box file, then expect that opening is refused with `word`. */
static void expect_refusal(long offset, const char *text, size_t n, const char *word) {
    struct allot_error err = { 0 };
    char copy[PATH_MAX];
    struct sim_box s;
    struct box *box;
    int fd;

    sim_box_init(&s, NULL);
    snprintf(copy, sizeof(copy), "%.4000s/copy", s.dir);
    ck_assert_int_eq(spec_create_default(copy, &err), 0);
    fd = open(copy, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, text, n, offset), (ssize_t)n);
    close(fd);
    ck_assert_int_eq(box_open(&box, copy, &err), -EPROTO);
    ck_assert_msg(strstr(err.text, word) != NULL, "\"%s\" lacks \"%s\"", err.text, word);
    sim_box_done(&s);
}

START_TEST(foreign_and_damaged_files_are_refused_in_words) {
    const uint32_t version = 99, many = 4000000000u;

#define AT(field) offsetof(struct box_file, field)
    expect_refusal(0, "ELF", 3, "not a simulated box");
    expect_refusal(AT(version), (const char *)&version, 4, "another version");
    expect_refusal(AT(n_gpus), (const char *)&many, 4, "damaged");
    expect_refusal(AT(gpu[0].uuid), "XXX", 3, "damaged");
    expect_refusal(AT(lock.__data.__kind), (const char *)&many, 4, "lock");
    expect_refusal(AT(proc_high), (const char *)&many, 4, "more processes");
    expect_refusal(AT(gpu[0].gi[0].in_use), "\1\0\0\0\1\0\0\0\0\0\0\0\11", 13, "lies outside");
#undef AT
}
END_TEST

START_TEST(what_is_no_file_of_the_right_size_is_refused) {
    struct allot_error err = { 0 };
    char path[PATH_MAX];
    struct sim_box s;
    struct box *box;
    int fd;

    sim_box_init(&s, NULL);
    ck_assert_int_eq(box_open(&box, s.dir, &err), -EPROTO);
    ck_assert_int_eq(box_open(&box, "/dev/null", &err), -EPROTO);
    ck_assert_int_eq(box_open(&box, "/nonexistent/box", &err), -ENOENT);
    snprintf(path, sizeof(path), "%.4000s/short", s.dir);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, BOX_MAGIC, 8), 8);
    close(fd);
    ck_assert_int_eq(box_open(&box, path, &err), -EPROTO);
    snprintf(path, sizeof(path), "%.4000s/pipe", s.dir);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(box_open(&box, path, &err), -EPROTO);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_box_that_was_named_must_exist_and_the_default_one_appears) {
    struct allot_error err = { 0 };
    struct sim_box s;
    struct box *box;
    struct stat st;

    sim_box_init(&s, NULL);
    setenv("GPUSIM_BOX", "/nonexistent/box", 1);
    ck_assert_int_eq(box_open_default(&box, &err), -ENOENT);
    ck_assert_ptr_nonnull(strstr(err.text, "gpusim create"));
    unsetenv("GPUSIM_BOX");
    setenv("XDG_RUNTIME_DIR", s.dir, 1);
    ck_assert_msg(box_open_default(&box, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(box->n_gpus, 4);
    ck_assert_int_eq(stat(box->path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    box_free(box);
    sim_box_done(&s);
}
END_TEST

static atomic_bool stop_opening;

static void *open_and_close(void *argument) {
    struct sim_box *s = argument;
    struct box *box;

    while (!atomic_load(&stop_opening))
        if (box_open(&box, s->path, NULL) == 0)
            box_free(box);
    return NULL;
}

static int open_once(struct sim_box *s, void *argument) {
    struct box *box;

    alarm(20); /* a lock that is never released */
    return box_open(&box, s->path, NULL) < 0;
}

START_TEST(a_child_opens_the_box_whatever_its_parent_was_doing_when_it_forked) {
    pthread_t thread;
    struct sim_box s;

    sim_box_init(&s, NULL);
    pthread_create(&thread, NULL, open_and_close, &s);
    for (int i = 0; i < 60; i++)
        sim_box_expect_success(sim_box_fork(open_once, &s, NULL));
    atomic_store(&stop_opening, true);
    pthread_join(thread, NULL);
    sim_box_done(&s);
}
END_TEST

/* Locks and writes until it is killed, wherever that may be. */
static int churn(struct sim_box *s, void *argument) {
    const struct box_part part = { 0, 0 };
    uint64_t random = (uintptr_t)argument;
    uint32_t slot;

    box_lock(s->box);
    proc_join(s->box, &slot);
    box_unlock(s->box);
    for (;;) {
        const uint64_t bytes = random_next(&random) % (64 << 20) + 1;

        if (box_lock(s->box) < 0)
            return 1;
        if (charge_take(s->box, slot, part, bytes, NULL) == 0) {
            uint64_t id;

            if (random_next(&random) % 2 && charge_segment_new(s->box, slot, part, bytes, &id) == 0)
                charge_segment_leave(s->box, slot, id);
            else
                charge_give(s->box, slot, part, bytes);
        }
        box_unlock(s->box);
    }
}

START_TEST(processes_killed_anywhere_leave_the_box_usable_and_empty) {
    struct allot_error err = { 0 };
    const int rounds = getenv("ALLOT_TEST_LONG") && *getenv("ALLOT_TEST_LONG") ? 400 : 40;
    uint64_t random = 11;
    struct sim_box s;

    sim_box_init(&s, NULL);
    for (int i = 0; i < rounds; i++) {
        pid_t pids[4];

        for (size_t k = 0; k < ELEMENTSOF(pids); k++)
            pids[k] = sim_box_fork(churn, &s, (void *)(uintptr_t)(i * 8 + k + 1));
        usleep(random_next(&random) % 8000);
        for (size_t k = 0; k < ELEMENTSOF(pids); k++)
            sim_box_kill(pids[k]);
        ck_assert_uint_eq(sim_box_used(&s, 0), 0);
        ck_assert_int_eq(box_lock(s.box), 0);
        ck_assert_msg(box_check(s.box, &err) == 0, "%s", err.text);
        box_unlock(s.box);
    }
    sim_box_done(&s);
}
END_TEST

SUITE_TIMEOUT("box", 120, a_new_box_passes_its_own_check_and_has_the_models_it_was_ordered_with,
              the_same_seed_makes_the_same_box, a_box_is_not_made_over_another_file,
              opening_twice_gives_the_same_view_and_closing_keeps_presence,
              foreign_and_damaged_files_are_refused_in_words,
              what_is_no_file_of_the_right_size_is_refused,
              a_box_that_was_named_must_exist_and_the_default_one_appears,
              a_child_opens_the_box_whatever_its_parent_was_doing_when_it_forked,
              processes_killed_anywhere_leave_the_box_usable_and_empty)
