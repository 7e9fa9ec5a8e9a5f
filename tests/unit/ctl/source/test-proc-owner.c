/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl/source/proc_owner.h"
#include "tests/support/suite.h"

#define ID "3f2a9c81d0e4b5a697887766554433221100ffeeddccbbaa9988776655443322"

START_TEST(containers_are_known_by_their_cgroup) {
    static const struct {
        const char *path, *container;
    } rows[] = {
        { "0::/system.slice/docker-" ID ".scope", "3f2a9c81d0e4" },
        { "0::/docker/" ID, "3f2a9c81d0e4" },
        { "0::/machine.slice/libpod-" ID ".scope/container", "3f2a9c81d0e4" },
        { "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-" ID ".scope", "3f2a9c81d0e4" },
        { "0::/lxc.payload.web1/init.scope", "web1" },
        { "0::/machine.slice/machine-web.scope", "web" },
        { "0::/user.slice/user-1000.slice/session-1.scope", "" },
        { "0::/", "" },
        { "", "" },
        { "0::/docker-", "" },
    };
    char container[72], longest[256] = "0::/docker/";

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        whose_container(container, rows[i].path);
        ck_assert_str_eq(container, rows[i].container);
    }
    memset(longest + 11, 'x', 200);
    whose_container(container, longest);
    ck_assert_str_eq(container, "");
}
END_TEST

START_TEST(this_process_is_ours) {
    struct whose whose;

    whose_read(&whose, getpid());
    ck_assert(whose.has_uid && whose.uid == getuid());
    ck_assert_str_ne(whose.user, "");
    ck_assert_ptr_nonnull(strstr(whose.command, "test-proc-owner"));
}
END_TEST

START_TEST(a_process_that_is_not_there_is_unknown) {
    struct whose whose;

    whose_read(&whose, 0x7ffffffe);
    ck_assert(!whose.has_uid);
    ck_assert_str_eq(whose.command, "?");
    ck_assert_str_eq(whose.container, "");
}
END_TEST

SUITE("whose", containers_are_known_by_their_cgroup, this_process_is_ours,
      a_process_that_is_not_there_is_unknown)
