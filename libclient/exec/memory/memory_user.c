/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/memory/memory_user.h"

#include <pthread.h>

#include "libclient/core/wait.h"
#include "libclient/device/device.h"
#include "libclient/exec/plan/program.h"

static struct {
    pthread_mutex_t lock;
    struct list users;
    unsigned generation; /* of processes: raised in the child of each fork */
} all = { .lock = PTHREAD_MUTEX_INITIALIZER, .users = LIST_INIT(all.users) };

/* The runs of the parent do not exist in the child. */
static void forget_in_child(void) {
    pthread_mutex_init(&all.lock, NULL);
    list_init(&all.users);
    all.generation++;
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forget_in_child);
}

void memory_user_tell_idle(const struct program *program) {
    for (uint32_t d = 0; d < program->n_devices; d++)
        if (program->devices[d]->gpu)
            wait_news(program->devices[d]->gpu);
}

void memory_user_begin(struct memory_user *user, const struct program *program, bool has_memory) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    *user = (struct memory_user){ 0 };
    if (!program->has_gpu)
        return;
    pthread_once(&once, watch_forks);
    user->program = program;
    user->has_memory = has_memory;
    user->generation = all.generation;
    pthread_mutex_lock(&all.lock);
    list_append(&all.users, &user->link);
    pthread_mutex_unlock(&all.lock);
}

void memory_user_end(struct memory_user *user) {
    const struct program *program = user->program;

    if (!program || user->generation != all.generation)
        return;
    /* Wake waiters with the lock held: a waiter that no longer finds this user has been woken. */
    pthread_mutex_lock(&all.lock);
    list_remove(&user->link);
    user->program = NULL;
    memory_user_tell_idle(program);
    pthread_mutex_unlock(&all.lock);
}

/* Whether a run of the program holds, or will take, memory of the GPU; even the bytes of a
 * variable, which cannot be written in place while the run reads them. */
static bool is_of_this_process(const struct program *program, const struct gpu *gpu) {
    for (uint32_t d = 0; d < program->n_devices; d++)
        if (program->devices[d]->gpu == gpu && program->slab_bytes[d] > 0)
            return true;
    for (uint32_t v = 0; v < program->n_values; v++) {
        const struct program_value *value = &program->values[v];

        if (program->devices[value->space]->gpu == gpu &&
            (value->where == VALUE_READ || value->where == VALUE_OPEN ||
             value->where == VALUE_CONSTANT))
            return true;
    }
    return false;
}

/* A run without memory can be served by any run that will release some, even one that is itself
 * waiting. A run that holds memory may be the one that such a run waits for. */
static enum memory_user_release release_by_others(const struct memory_user *other,
                                                  const struct memory_user *to) {
    if (other->has_memory)
        return other->n_waiting == 0 || !to->has_memory ? MEMORY_USER_RELEASES_AT_END
                                                        : MEMORY_USER_RELEASES_NONE;
    return other->n_waiting == 0 ? MEMORY_USER_RELEASES_SOON : MEMORY_USER_RELEASES_NONE;
}

enum memory_user_release memory_user_wait(struct memory_user *user, const struct gpu *gpu) {
    enum memory_user_release release = MEMORY_USER_RELEASES_NONE;
    const struct memory_user *other;

    pthread_mutex_lock(&all.lock);
    list_foreach (other, &all.users, link)
        if (other != user && release_by_others(other, user) > release &&
            is_of_this_process(other->program, gpu))
            release = release_by_others(other, user);
    user->n_waiting += release != MEMORY_USER_RELEASES_NONE;
    pthread_mutex_unlock(&all.lock);
    return release;
}

void memory_user_queue(struct memory_user *user) {
    pthread_mutex_lock(&all.lock);
    user->n_waiting++;
    pthread_mutex_unlock(&all.lock);
}

void memory_user_resume(struct memory_user *user) {
    pthread_mutex_lock(&all.lock);
    user->n_waiting--;
    pthread_mutex_unlock(&all.lock);
}
