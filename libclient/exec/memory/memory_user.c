/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/memory/memory_user.h"

#include <pthread.h>

#include "libclient/device/device.h"
#include "libclient/exec/plan/cache.h"

static struct {
    pthread_mutex_t lock;
    struct list tenants;
    unsigned generation; /* of processes: raised in the child of each fork */
} all = { .lock = PTHREAD_MUTEX_INITIALIZER, .tenants = LIST_INIT(all.tenants) };

/* The parent's runs are none of the child's. */
static void forget_in_child(void) {
    pthread_mutex_init(&all.lock, NULL);
    list_init(&all.tenants);
    all.generation++;
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forget_in_child);
}

void tenant_begin(struct tenant *tenant, const struct program *program, bool has_memory) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    *tenant = (struct tenant){ 0 };
    if (!program->has_gpu)
        return;
    pthread_once(&once, watch_forks);
    tenant->program = program;
    tenant->has_memory = has_memory;
    tenant->generation = all.generation;
    pthread_mutex_lock(&all.lock);
    list_append(&all.tenants, &tenant->link);
    pthread_mutex_unlock(&all.lock);
}

void tenant_end(struct tenant *tenant) {
    const struct program *program = tenant->program;

    if (!program || tenant->generation != all.generation)
        return;
    /* Told with the lock: who no longer finds it here has been told. */
    pthread_mutex_lock(&all.lock);
    list_remove(&tenant->link);
    tenant->program = NULL;
    cache_tell_idle(program);
    pthread_mutex_unlock(&all.lock);
}

/* Whether a run of the program has, or will have, some of the GPU's memory; be it the bytes of a
 * variable, which nobody can write in place while it reads them. */
static bool lives_on(const struct program *program, const struct gpu *gpu) {
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

/* What one who has no memory waits for comes, also from a tenant that waits; one who has some may
 * be what that one waits for. */
static enum tenant_hope hope_for(const struct tenant *other, const struct tenant *to) {
    if (other->has_memory)
        return other->n_waiting == 0 || !to->has_memory ? TENANT_END : TENANT_NO_HOPE;
    return other->n_waiting == 0 ? TENANT_MOMENT : TENANT_NO_HOPE;
}

enum tenant_hope tenant_waits(struct tenant *tenant, const struct gpu *gpu) {
    enum tenant_hope hope = TENANT_NO_HOPE;
    const struct tenant *other;

    pthread_mutex_lock(&all.lock);
    list_foreach (other, &all.tenants, link)
        if (other != tenant && hope_for(other, tenant) > hope && lives_on(other->program, gpu))
            hope = hope_for(other, tenant);
    tenant->n_waiting += hope != TENANT_NO_HOPE;
    pthread_mutex_unlock(&all.lock);
    return hope;
}

void tenant_stands(struct tenant *tenant) {
    pthread_mutex_lock(&all.lock);
    tenant->n_waiting++;
    pthread_mutex_unlock(&all.lock);
}

void tenant_goes_on(struct tenant *tenant) {
    pthread_mutex_lock(&all.lock);
    tenant->n_waiting--;
    pthread_mutex_unlock(&all.lock);
}
