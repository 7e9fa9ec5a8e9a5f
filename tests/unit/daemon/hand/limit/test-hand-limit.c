/* SPDX-License-Identifier: Apache-2.0 */
/* allot-limit as the hand runs it: its exit status, its words, and the rights that it keeps. */
#include "daemon/hand/limit/exit_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/gpuid.h"
#include "sim/box/fault.h"
#include "tests/support/daemon/hand/fake_machine.h"
#include "tests/support/sim/nvml/nvml_library.h"
#include "tests/support/suite.h"

static char output[512];

/* Run it with these words; its exit status. */
static int limit(const char *words) {
    char command[1024];
    FILE *f;
    int status;

    snprintf(command, sizeof(command), "%s %s 2>&1", ALLOT_LIMIT, words);
    f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    output[fread(output, 1, sizeof(output) - 1, f)] = 0;
    status = pclose(f);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void start(struct sim_box *s, const struct box_spec *spec,
                  char uuid[static GPUID_TEXT_SIZE]) {
    sim_box_init(s, spec);
    setenv("ALLOT_SIM_DIR", SIM_LIB_DIR, 1);
    snprintf(uuid, GPUID_TEXT_SIZE, "%s", s->box->file->gpu[0].uuid);
}

START_TEST(words_that_make_no_sense_are_refused) {
    static const char *const wrong[] = {
        "",          "set",           "set a b",
        "set a b c", "set a b 1x",    "set a b -1",
        "check a",   "check a b c",   "try",
        "try a b",   "more a",        "set a b 1 2",
        "--what",    "--driver none", "set a b ''",
        "trya a",    "--driver",      "set a b 99999999999999999999",
    };

    for (size_t i = 0; i < ELEMENTSOF(wrong); i++) {
        ck_assert_msg(limit(wrong[i]) == LIMIT_USAGE, "%s", wrong[i]);
        ck_assert_msg(strstr(output, "allot-limit"), "%s: %s", wrong[i], output);
    }
    ck_assert_int_eq(limit("--help"), 0);
    ck_assert_ptr_nonnull(strstr(output, "usage: allot-limit"));
    ck_assert_int_eq(limit("-h"), 0);
    ck_assert_int_eq(limit("--version"), 0);
    ck_assert_int_eq(strncmp(output, "allot-limit ", 12), 0);
}
END_TEST

START_TEST(a_limit_is_set_read_back_and_holds) {
    char uuid[GPUID_TEXT_SIZE], words[512], folder[256];
    struct sim_box s;

    if (!fake_machine_enter())
        return;
    start(&s, NULL, uuid);
    snprintf(folder, sizeof(folder), "%s", fake_machine_cgroup("/user.slice"));
    snprintf(words, sizeof(words), "--driver sim check %s %s", uuid, folder);
    ck_assert_int_eq(limit(words), LIMIT_FAILED); /* there is none */
    ck_assert_str_ne(output, "");
    snprintf(words, sizeof(words), "--driver sim try %s", uuid);
    ck_assert_int_eq(limit(words), LIMIT_GRANTED);
    snprintf(words, sizeof(words), "--driver sim set %s %s 2097152", uuid, folder);
    ck_assert_msg(limit(words) == LIMIT_DONE, "%s", output);
    snprintf(words, sizeof(words), "--driver sim check %s %s", uuid, folder);
    ck_assert_int_eq(limit(words), LIMIT_DONE);
    ck_assert_str_eq(output, "");
    ck_assert_int_eq(fake_machine_move("/user.slice", getpid()), 0); /* the next one is inside */
    snprintf(words, sizeof(words), "--driver sim try %s", uuid);
    ck_assert_int_eq(limit(words), LIMIT_REFUSED);
    ck_assert_int_eq(limit("--driver sim try GPU-99999999-0000-0000-0000-000000000000"),
                     LIMIT_NOT_TRIED);
    snprintf(words, sizeof(words), "--driver sim set GPU-99999999-0000-0000-0000-000000000000 %s 1",
             folder);
    ck_assert_int_eq(limit(words), LIMIT_FAILED);
    ck_assert_str_ne(output, "");
    snprintf(words, sizeof(words), "--driver sim set %s /nonexistent 1", uuid);
    ck_assert_int_eq(limit(words), LIMIT_FAILED);
    ck_assert_int_eq(unsetenv("GPUSIM_BOX"), 0);
    setenv("GPUSIM_BOX", "/nonexistent", 1);
    snprintf(words, sizeof(words), "--driver sim check %s %s", uuid, folder);
    ck_assert_int_eq(limit(words), LIMIT_FAILED);
    snprintf(words, sizeof(words), "--driver sim try %s", uuid);
    ck_assert_int_eq(limit(words), LIMIT_NOT_TRIED);
    setenv("GPUSIM_BOX", s.path, 1);
    sim_box_done(&s);
    fake_machine_leave();
}
END_TEST

START_TEST(a_driver_without_limits_is_told_from_one_that_fails) {
    struct box_spec spec = { .driver = "550" };
    char uuid[GPUID_TEXT_SIZE], words[512], folder[256];
    struct sim_box s;

    if (!fake_machine_enter())
        return;
    start(&s, &spec, uuid);
    snprintf(folder, sizeof(folder), "%s", fake_machine_cgroup("/user.slice"));
    snprintf(words, sizeof(words), "--driver sim check %s %s", uuid, folder);
    ck_assert_int_eq(limit(words), LIMIT_UNKNOWN);
    ck_assert_str_ne(output, "");
    snprintf(words, sizeof(words), "--driver sim set %s %s 4096", uuid, folder);
    ck_assert_int_eq(limit(words), LIMIT_UNKNOWN);
    sim_box_done(&s);
    fake_machine_leave();
}
END_TEST

SUITE_TIMEOUT("hand-limit", 60, words_that_make_no_sense_are_refused,
              a_limit_is_set_read_back_and_holds,
              a_driver_without_limits_is_told_from_one_that_fails)
