/* SPDX-License-Identifier: Apache-2.0 */
/* Which commands are taken for container engines, and which are not. */
#include "ctl/job/container_engine.h"

#include <string.h>

#include "tests/support/suite.h"

#define WORDS 12

static const struct {
    const char *engine; /* NULL: none */
    const char *argv[WORDS];
} commands[] = {
    { "docker", { "docker", "run", "image" } },
    { "podman", { "/usr/bin/podman", "run", "image" } },
    { "docker", { "env", "docker" } },
    { "docker", { "env", "-i", "-u", "A", "--unset=B", "--chdir", "/", "C=1", "docker" } },
    { "docker", { "sudo", "-Eu", "root", "--group", "video", "A=1", "docker" } },
    { "docker", { "sudo", "-uroot", "docker" } },
    { "docker", { "timeout", "-k", "9", "--signal=INT", "60", "nice", "-n5", "docker" } },
    { "docker", { "nohup", "--", "setsid", "-w", "stdbuf", "-oL", "-e", "0", "docker" } },
    { "ctr", { "time", "-o", "docker", "taskset", "-c", "0-3", "ctr" } },
    { "docker", { "sh", "-c", "docker run image" } },
    { "docker", { "bash", "-e", "-xc", "cd /tmp && A=1 sudo -E docker run image; true" } },
    { "docker", { "env", "sh", "-c", "(exec docker)" } },
    { NULL, { "" } },
    { NULL, { NULL } },
    { NULL, { "python", "docker" } },
    { NULL, { "docker.py" } },
    { NULL, { "docker/python" } },
    { NULL, { "env" } },
    { NULL, { "env", "-u" } },
    { NULL, { "env", "-u", "docker" } },
    { NULL, { "env", "--", "echo", "docker" } },
    { NULL, { "timeout", "docker" } },
    { NULL, { "timeout", "-k" } },
    { NULL, { "sudo", "-u", "docker", "id" } },
    { NULL, { "sudo", "--user", "docker", "id" } },
    { NULL, { "sh" } },
    { NULL, { "sh", "-c" } },
    { NULL, { "sh", "-c", "" } },
    { NULL, { "sh", "-c", ";;&|(){}\n" } },
    { NULL, { "sh", "-c", "echo docker" } },
    { NULL, { "sh", "-c", "A=docker" } },
    { NULL, { "sh", "docker" } },
    { NULL, { "sh", "--norc", "docker" } },
};

START_TEST(engines_are_found_behind_wrappers) {
    for (size_t i = 0; i < ELEMENTSOF(commands); i++) {
        const char *engine = container_engine_find((char *const *)commands[i].argv);
        const char *wanted = commands[i].engine;

        ck_assert_msg(wanted ? engine && !strcmp(engine, wanted) : !engine, "row %zu (%s): %s", i,
                      commands[i].argv[0] ? commands[i].argv[0] : "nothing",
                      engine ? engine : "none");
    }
}
END_TEST

/* More words, and nested deeper, than in any real script. */
START_TEST(long_scripts_are_no_trouble) {
    static char script[1 << 16];
    char *const argv[] = { (char[]){ "sh" }, (char[]){ "-c" }, script, NULL };

    for (size_t i = 0; i + 9 < sizeof(script); i += 8)
        memcpy(script + i, i % 16 ? "sh -c sh" : "exec ;  ", 8);
    ck_assert_ptr_null(container_engine_find(argv));
    memset(script, 'a', sizeof(script) - 1);
    for (size_t i = 1; i < sizeof(script) - 1; i += 2)
        script[i] = ' ';
    ck_assert_ptr_null(container_engine_find(argv));
}
END_TEST

SUITE("container-engine", engines_are_found_behind_wrappers, long_scripts_are_no_trouble)
