/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/enforce/privilege.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/enforce/process.h"
#include "tests/support/suite.h"

START_TEST(only_the_map_of_all_ids_to_themselves_is_whole) {
    static const struct {
        const char *map;
        int is_whole;
    } cases[] = {
        { "         0          0 4294967295\n", 1 },
        { "0 0 4294967295", 1 },
        { "", 0 },
        { "         0          0          1\n", 0 },
        { "         0       1000          1\n", 0 },
        { "         0     100000 4294967295\n", 0 },
        { "         0          0 4294967294\n", 0 },
        { "         0          0 4294967295\n         0          0          1\n", 0 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_msg(privilege_is_whole_map(cases[i].map) == cases[i].is_whole, "%s",
                      cases[i].map);
}
END_TEST

START_TEST(capabilities_are_read_from_a_status) {
    unsigned long long caps = 7;

    ck_assert_int_eq(
        privilege_read_caps("Name:\tx\nCapEff:\t00000000a80425fb\nCapBnd:\t0\n", &caps), 0);
    ck_assert_uint_eq(caps, 0xa80425fbull);
    /* A name may look like anything, but a newline in it is written as \n. */
    ck_assert_int_lt(privilege_read_caps("Name:\tCapEff: 1ffffffffff\n", &caps), 0);
    ck_assert_int_lt(privilege_read_caps("Name:\tx\nCapEff:\t\n", &caps), 0);
}
END_TEST

/* What is said of a child that did something first. */
static int check_child(void (*change)(void), const char **why) {
    int ready[2];
    struct process_id id;
    char byte;
    pid_t child;
    int r;

    ck_assert_int_eq(pipe(ready), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        if (change)
            change();
        (void)!write(ready[1], "", 1);
        pause();
        _exit(0);
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert_int_eq(process_identify(&id, child), 0);
    r = privilege_check(&id, why);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    return r;
}

static void drop_capabilities(void) {
    struct {
        uint32_t version;
        int pid;
    } head = { 0x20080522, 0 };
    uint32_t none[6] = { 0 };

    syscall(SYS_capset, &head, none);
}

static void leave_namespace(void) {
    if (unshare(CLONE_NEWUSER) < 0)
        _exit(1);
}

START_TEST(root_is_what_has_capabilities_here) {
    struct process_id self, wrong;
    const char *why = NULL;

    ck_assert_int_eq(process_identify(&self, getpid()), 0);
    wrong = self;
    wrong.start++;
    ck_assert_int_eq(privilege_check(&wrong, &why), -ESRCH);
    wrong.start = 0;
    ck_assert_int_eq(privilege_check(&wrong, &why), -EACCES);
    ck_assert(!privilege_is_at_home(&wrong));
    ck_assert(privilege_is_at_home(&self));
    if (geteuid() != 0 || privilege_check(&self, &why) != 0) {
        printf("skipped: root of this namespace is needed\n");
        return;
    }
    ck_assert_int_eq(check_child(NULL, &why), 0);
    ck_assert_int_eq(check_child(drop_capabilities, &why), -EPERM);
    ck_assert_str_eq(why, "it has no CAP_SYS_ADMIN");
    ck_assert_int_eq(check_child(leave_namespace, &why), -EPERM);
    ck_assert_str_eq(why, "it is in a user namespace of its own");
}
END_TEST

SUITE("privilege", only_the_map_of_all_ids_to_themselves_is_whole,
      capabilities_are_read_from_a_status, root_is_what_has_capabilities_here)
