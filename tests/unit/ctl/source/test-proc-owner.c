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
        proc_owner_container(container, rows[i].path);
        ck_assert_str_eq(container, rows[i].container);
    }
    memset(longest + 11, 'x', 200);
    proc_owner_container(container, longest);
    ck_assert_str_eq(container, "");
}
END_TEST

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

SUITE("proc-owner", containers_are_known_by_their_cgroup, this_process_is_ours,
      a_process_that_is_not_there_is_unknown)
