/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl/source/proc_owner.h"
#include "tests/support/suite.h"

START_TEST(this_process_is_ours) {
    struct proc_owner owner;

    proc_owner_read(&owner, getpid());
    ck_assert(owner.has_uid && owner.uid == getuid());
    ck_assert_str_ne(owner.user, "");
    ck_assert_ptr_nonnull(strstr(owner.command, "test-proc-owner"));
}
END_TEST

START_TEST(a_process_that_is_not_there_is_unknown) {
    struct proc_owner owner;

    proc_owner_read(&owner, 0x7ffffffe);
    ck_assert(!owner.has_uid);
    ck_assert_str_eq(owner.command, "?");
    ck_assert_str_eq(owner.container, "");
}
END_TEST

SUITE("proc-owner", this_process_is_ours, a_process_that_is_not_there_is_unknown)
