/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cgroup_owner.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tests/support/suite.h"

#define ID    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OWNER 4711

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

/* Make the folders of `path` below `root`; from the component that `owned` begins with they are a
 * user's. */
static void make(const char *root, const char *path, const char *owned) {
    char folder[512];

    for (const char *end = path; *end;) {
        end = strchrnul(end + 1, '/');
        snprintf(folder, sizeof(folder), "%s%.*s", root, (int)(end - path), path);
        if (mkdir(folder, 0755) == 0 && owned && strstr(folder, owned))
            ck_assert_int_eq(chown(folder, OWNER, OWNER), 0);
    }
}

START_TEST(containers_are_known_by_their_cgroup) {
    static const struct {
        const char *cgroup, *container;
    } cases[] = {
        { "/", "" },
        { "", "" },
        { "/user.slice/user-1000.slice/session-3.scope", "" },
        { "/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope", "" },
        { "/system.slice/docker-" ID ".scope", "0123456789ab" },
        { "/docker/" ID, "0123456789ab" },
        { "/machine.slice/libpod-" ID ".scope/container", "0123456789ab" },
        { "/kubepods.slice/kubepods-pod1.slice/cri-containerd-" ID ".scope", "0123456789ab" },
        { "/kubepods/besteffort/pod1/" ID, "0123456789ab" },
        { "/kubepods.slice/crio-" ID ".scope", "0123456789ab" },
        { "/kubepods/burstable/pod1/crio-" ID, "0123456789ab" },
        { "/lxc.payload.web", "web" },
        { "/lxc.payload.web/init.scope", "web" },
        { "/lxc.monitor.web", "" },
        { "/lxc/web", "web" },
        { "/system.slice/slurmstepd.scope/job_7", "" },
        { "/machine.slice/systemd-nspawn@box.service/payload", "box" },
        { "/machine.slice/machine-box.scope", "box" },
        { "/system.slice/docker-.scope", "" },
        { "/system.slice/docker.service", "" },
        { "/docker/0123456789abcdef", "" }, /* too short for an id */
        { "/lxc.payload.a\nb", "a?b" },
        { "/docker/" ID "/system.slice/docker-" ID ".scope", "0123456789ab" },
    };
    char text[80];

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        cgroup_owner_container(text, sizeof(text), cases[i].cgroup);
        ck_assert_msg(strcmp(text, cases[i].container) == 0, "%s: %s", cases[i].cgroup, text);
    }
}
END_TEST

START_TEST(a_name_counts_where_root_alone_can_have_given_it) {
    static const struct {
        const char *path, *owned;
        enum cgroup_owner owner;
    } cases[] = {
        { "/system.slice/slurmstepd.scope/job_7/step_0", NULL, CGROUP_OWNER_SLURM },
        { "/system.slice/node1_slurmstepd.scope/job_7", NULL, CGROUP_OWNER_SLURM },
        { "/slurm/uid_1000/job_7", NULL, CGROUP_OWNER_SLURM },
        { "/system.slice/docker-" ID ".scope", NULL, CGROUP_OWNER_DOCKER },
        { "/docker/" ID, NULL, CGROUP_OWNER_DOCKER },
        { "/machine.slice/libpod-" ID ".scope/container", NULL, CGROUP_OWNER_PODMAN },
        { "/kubepods.slice/kubepods-pod1.slice/cri-containerd-" ID ".scope", NULL,
          CGROUP_OWNER_KUBERNETES },
        { "/system.slice/nerdctl-" ID ".scope", NULL, CGROUP_OWNER_CONTAINERD },
        { "/machine.slice/machine-box.scope", NULL, CGROUP_OWNER_NSPAWN },
        { "/machine.slice/systemd-nspawn@box.service/payload", "payload", CGROUP_OWNER_NSPAWN },
        { "/lxc.payload.web", "lxc", CGROUP_OWNER_LXC }, /* delegated, in a folder of root's */
        { "/lxc.monitor.web", NULL, CGROUP_OWNER_LXC },
        { "/system.slice/slurmd.service", NULL, CGROUP_OWNER_SLURM },
        { "/custom/" ID, NULL, CGROUP_OWNER_OTHER },
        { "/batch.slice/" ID, NULL, CGROUP_OWNER_OTHER },
        { "/default/redis", NULL, CGROUP_OWNER_OTHER },

        { "/user.slice/user-1.slice/session-3.scope", NULL, CGROUP_OWNER_NONE },
        { "/system.slice/docker.service", NULL, CGROUP_OWNER_NONE },
        { "/user.slice/user-1.slice/user@1.service/" ID, "user@1", CGROUP_OWNER_NONE },
        { "/system.slice/ssh.service", NULL, CGROUP_OWNER_NONE },
        { "/init.scope", NULL, CGROUP_OWNER_NONE },
        { "/system.slice/docker-.scope", NULL, CGROUP_OWNER_NONE },
        { "/user.slice/user-1.slice/user@1.service/slurmstepd.scope", "user@1", CGROUP_OWNER_NONE },
        { "/user.slice/user-1.slice/user@1.service/app.slice/docker-" ID ".scope", "user@1",
          CGROUP_OWNER_NONE },
        { "/user.slice/user-1.slice/user@1.service/libpod-" ID ".scope", "user@1",
          CGROUP_OWNER_NONE },
    };
    char root[] = "/tmp/cgroup-owner-XXXXXX";

    if (getuid() != 0) {
        printf("skipped: only root can make folders that are another user's\n");
        return;
    }
    ck_assert_ptr_nonnull(mkdtemp(root));
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        make(root, cases[i].path, cases[i].owned);
        ck_assert_msg(cgroup_owner_find(root, cases[i].path) == cases[i].owner, "%s: %s",
                      cases[i].path, cgroup_owner_name(cgroup_owner_find(root, cases[i].path)));
    }
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
END_TEST

START_TEST(a_cgroup_that_cannot_be_read_has_no_owner) {
    static const char *const paths[] = { "", "slurm", "/..", "/../slurm", "//", "/no/such/slurm" };

    for (size_t i = 0; i < ELEMENTSOF(paths); i++) {
        ck_assert_int_eq(cgroup_owner_find("/nowhere", paths[i]), CGROUP_OWNER_NONE);
        ck_assert_int_eq(cgroup_owner_find(NULL, paths[i]), CGROUP_OWNER_NONE);
    }
}
END_TEST

START_TEST(a_folder_that_others_may_write_gives_no_names) {
    char root[] = "/tmp/cgroup-owner-XXXXXX";

    if (getuid() != 0) {
        printf("skipped: the folder has to be root's\n");
        return;
    }
    ck_assert_ptr_nonnull(mkdtemp(root));
    make(root, "/slurm", NULL);
    ck_assert_int_eq(cgroup_owner_find(root, "/slurm"), CGROUP_OWNER_SLURM);
    chmod(root, 0777);
    ck_assert_int_eq(cgroup_owner_find(root, "/slurm"), CGROUP_OWNER_NONE);
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
END_TEST

START_TEST(cgroup2_is_found_wherever_it_is_mounted) {
    static const struct {
        const char *text, *root;
    } cases[] = {
        { "26 25 0:24 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
          "/sys/fs/cgroup" },
        { "30 25 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"
          "31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
          "32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
          "/sys/fs/cgroup/unified" },
        { "26 25 0:24 /user.slice /srv/part rw - cgroup2 cgroup2 rw\n"
          "27 25 0:24 / /srv/a\\040b rw - cgroup2 cgroup2 rw\n",
          "/srv/a b" },
        { "26 25 0:24 / /cgroup2 rw - tmpfs cgroup2 rw\n", NULL },
        { "", NULL },
        { "cgroup2 - cgroup2 \n", NULL },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char file[] = "/tmp/mountinfo-XXXXXX", root[64] = "";
        int fd = mkstemp(file), r;

        ck_assert_int_eq(write(fd, cases[i].text, strlen(cases[i].text)),
                         (int)strlen(cases[i].text));
        close(fd);
        r = cgroup_owner_find_root(root, sizeof(root), file);
        unlink(file);
        ck_assert_int_eq(r, cases[i].root ? 0 : -ENOENT);
        ck_assert_str_eq(root, cases[i].root ? cases[i].root : "");
    }
}
END_TEST

SUITE("cgroup-owner", containers_are_known_by_their_cgroup,
      a_name_counts_where_root_alone_can_have_given_it, a_cgroup_that_cannot_be_read_has_no_owner,
      a_folder_that_others_may_write_gives_no_names, cgroup2_is_found_wherever_it_is_mounted)
