/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/job/job_env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "ctl/gpuctl.h"
#include "ctl/installed.h"

void job_env_init(struct job_env *env) {
    *env = (struct job_env){};
}

void job_env_done(struct job_env *env) {
    for (size_t i = 0; i < env->n; i++)
        free(env->list[i]);
    free(env->list);
    *env = (struct job_env){};
}

static size_t find(const struct job_env *env, const char *name) {
    const size_t length = strcspn(name, "=");

    for (size_t i = 0; i < env->n; i++)
        if (!strncmp(env->list[i], name, length) && env->list[i][length] == '=')
            return i;
    return SIZE_MAX;
}

const char *job_env_get(const struct job_env *env, const char *name) {
    const size_t at = find(env, name);

    return at == SIZE_MAX ? NULL : strchr(env->list[at], '=') + 1;
}

void job_env_unset(struct job_env *env, const char *name) {
    const size_t at = find(env, name);

    if (at == SIZE_MAX)
        return;
    free(env->list[at]);
    memmove(env->list + at, env->list + at + 1, (env->n - at) * sizeof(*env->list));
    env->n--;
}

/* Take over `word`, which is "NAME=value". */
static int put(struct job_env *env, char *word) {
    const size_t at = find(env, word);

    if (at != SIZE_MAX) {
        free(env->list[at]);
        env->list[at] = word;
        return 0;
    }
    if (env->n + 1 >= env->room) {
        const size_t room = env->room ? env->room * 2 : 64;
        char **list = reallocarray(env->list, room, sizeof(*list));

        if (!list) {
            free(word);
            return -ENOMEM;
        }
        env->list = list;
        env->room = room;
    }
    env->list[env->n++] = word;
    env->list[env->n] = NULL;
    return 0;
}

int job_env_set(struct job_env *env, const char *name, const char *value) {
    char *word;

    if (asprintf(&word, "%s=%s", name, value) < 0)
        return -ENOMEM;
    return put(env, word);
}

/* "0,1,…,n-1": with the device filter a job can open only its own devices, in bus order. */
static int set_indices(struct job_env *env, size_t n) {
    char list[64 * 4] = "";
    size_t length = 0;

    for (size_t i = 0; i < n && i < 64; i++)
        length += snprintf(list + length, sizeof(list) - length, "%s%zu", i ? "," : "", i);
    return job_env_set(env, "CUDA_VISIBLE_DEVICES", list);
}

int job_env_make(struct job_env *env, const struct wire_grant *grant, const char *socket,
                 bool by_index) {
    int r = 0;

    for (char **word = environ; r == 0 && *word; word++) {
        char *copy = strchr(*word, '=') ? strdup(*word) : NULL;

        if (copy)
            r = put(env, copy);
    }
    job_env_unset(env, "ALLOT_TOKEN");
    job_env_unset(env, "ALLOT_LEASE");
    if (r == 0)
        r = job_env_set(env, "ALLOT_SOCKET", socket);
    for (size_t i = 0; r == 0 && i < grant->n_environment; i++)
        r = job_env_set(env, grant->environment[i].name, grant->environment[i].value);
    /* A framework that takes all visible memory at once would leave nothing to other processes of
     * the job. */
    if (r == 0 && !job_env_get(env, "TF_FORCE_GPU_ALLOW_GROWTH"))
        r = job_env_set(env, "TF_FORCE_GPU_ALLOW_GROWTH", "true");
    if (r == 0 && by_index)
        r = set_indices(env, grant->n_shares);
    return r;
}

bool job_env_find_guard(char ret[static INSTALLED_PATH_SIZE]) {
    const char *given = getenv("ALLOT_GUARD");

    if (given && *given) {
        struct stat st;

        snprintf(ret, INSTALLED_PATH_SIZE, "%s", given);
        if (stat(ret, &st) < 0 || !S_ISREG(st.st_mode) || access(ret, R_OK) < 0) {
            gpuctl_say(
                "starting without the guard: the file that ALLOT_GUARD names cannot be read: %s",
                ret);
            return false;
        }
    } else if (!installed_find(ret, "../guard/liballot-guard.so", GPUCTL_GUARD)) {
        gpuctl_say("the guard is not installed (%s): tier 3 does not limit memory", GPUCTL_GUARD);
        return false;
    }
    if (strpbrk(ret, ": ")) {
        gpuctl_say(
            "starting without the guard: the linker cannot preload \"%s\", because its path has "
            "a blank or a colon",
            ret);
        return false;
    }
    return true;
}

/* Whether LD_PRELOAD, a list separated by blanks and colons, contains exactly this file. */
static bool has_entry(const char *list, const char *file) {
    while (*list) {
        size_t n = strcspn(list, ": ");

        if (n == strlen(file) && strncmp(list, file, n) == 0)
            return true;
        list += n;
        list += strspn(list, ": ");
    }
    return false;
}

int job_env_add_guard(struct job_env *env, const char *guard) {
    const char *before = job_env_get(env, "LD_PRELOAD");
    cleanup(freep) char *list = NULL;

    /* In a job within a job it is there already. */
    if (before && has_entry(before, guard))
        return 0;
    if (asprintf(&list, "%s%s%s", guard, before && *before ? ":" : "", before ? before : "") < 0) {
        list = NULL;
        return -ENOMEM;
    }
    return job_env_set(env, "LD_PRELOAD", list);
}
