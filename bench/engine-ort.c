/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ONNX Runtime's arena, out of the onnxruntime wheel, by its C API. The wheel brings no header; the
 * API is a table that only ever grows at its end, so the places of the few calls used here stay.
 * The arena's regions are ordinary host memory that is never touched. -DASKED gives `ort-asked`,
 * which extends by what is asked for instead of by powers of two.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/engine.h"

#ifdef ASKED
#define NAME     "ort-asked"
#define STRATEGY 1
#else
#define NAME     "ort"
#define STRATEGY 0
#endif

/* Places in the table. */
enum {
    GET_ERROR_MESSAGE = 2,
    CREATE_ENV = 3,
    CREATE_SESSION_FROM_ARRAY = 8,
    CREATE_SESSION_OPTIONS = 10,
    CREATE_CPU_MEMORY_INFO = 69,
    ALLOCATOR_ALLOC = 75,
    ALLOCATOR_FREE = 76,
    RELEASE_STATUS = 93,
    ADD_SESSION_CONFIG_ENTRY = 130,
    CREATE_ALLOCATOR = 131,
    CREATE_AND_REGISTER_ALLOCATOR = 144,
    CREATE_ARENA_CFG_V2 = 164,
    GET_KEY_VALUE = 297,
    ALLOCATOR_GET_STATS = 319,
};
#define API_VERSION     23
#define ARENA_ALLOCATOR 1

/* An arena with a limit is reached through a session only: here of y = Identity(x). */
static const unsigned char model[] = {
    0x08, 0x08, 0x42, 0x02, 0x10, 0x0d, 0x3a, 0x37, 0x0a, 0x10, 0x0a, 0x01, 0x78, 0x12, 0x01, 0x79,
    0x22, 0x08, 0x49, 0x64, 0x65, 0x6e, 0x74, 0x69, 0x74, 0x79, 0x12, 0x01, 0x67, 0x5a, 0x0f, 0x0a,
    0x01, 0x78, 0x12, 0x0a, 0x0a, 0x08, 0x08, 0x01, 0x12, 0x04, 0x0a, 0x02, 0x08, 0x01, 0x62, 0x0f,
    0x0a, 0x01, 0x79, 0x12, 0x0a, 0x0a, 0x08, 0x08, 0x01, 0x12, 0x04, 0x0a, 0x02, 0x08, 0x01,
};

typedef void (*call)(void);

struct api_base {
    const call *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
};

struct ort {
    const call *api;
    void *env, *allocator;
    void *(*alloc)(void *allocator, size_t bytes, void **ret);
    void *(*free)(void *allocator, void *block);
    void (*release_status)(void *status);
};

static int failed(struct ort *ort, void *status) {
    if (!status)
        return 0;
    fprintf(stderr, "ort: %s\n",
            ((const char *(*)(const void *))ort->api[GET_ERROR_MESSAGE])(status));
    ort->release_status(status);
    return 1;
}

/* The calls by their types. */
typedef void *(*create_env)(int level, const char *name, void **ret);
typedef void *(*create_info)(int allocator_type, int memory_type, void **ret);
typedef void *(*create_config)(const char *const *keys, const size_t *values, size_t n, void **ret);
typedef void *(*register_allocator)(void *env, const void *info, const void *config);
typedef void *(*create_options)(void **ret);
typedef void *(*add_entry)(void *options, const char *key, const char *value);
typedef void *(*create_session)(const void *env, const void *data, size_t size, const void *options,
                                void **ret);
typedef void *(*create_allocator)(const void *session, const void *info, void **ret);

static void *start(uint64_t capacity) {
    static const char *const keys[] = { "max_mem", "arena_extend_strategy" };
    const size_t values[] = { capacity, STRATEGY };
    void *lib = dlopen(ORT_LIBRARY, RTLD_NOW | RTLD_LOCAL), *info = NULL, *config = NULL;
    void *options = NULL, *session = NULL;
    const struct api_base *(*get_base)(void);
    struct ort *ort = calloc(1, sizeof(*ort));
    const call *api;

    if (!lib || !ort) {
        fprintf(stderr, "ort: %s\n", lib ? "no memory" : dlerror());
        return NULL;
    }
    get_base = (const struct api_base *(*)(void))dlsym(lib, "OrtGetApiBase");
    api = ort->api = get_base ? get_base()->get_api(API_VERSION) : NULL;
    if (!api)
        return NULL;
    ort->alloc = (void *(*)(void *, size_t, void **))api[ALLOCATOR_ALLOC];
    ort->free = (void *(*)(void *, void *))api[ALLOCATOR_FREE];
    ort->release_status = (void (*)(void *))api[RELEASE_STATUS];
    if (failed(ort, ((create_env)api[CREATE_ENV])(4, "replay", &ort->env)) ||
        failed(ort, ((create_info)api[CREATE_CPU_MEMORY_INFO])(ARENA_ALLOCATOR, 0, &info)) ||
        failed(ort, ((create_config)api[CREATE_ARENA_CFG_V2])(keys, values, 2, &config)) ||
        failed(ort,
               ((register_allocator)api[CREATE_AND_REGISTER_ALLOCATOR])(ort->env, info, config)) ||
        failed(ort, ((create_options)api[CREATE_SESSION_OPTIONS])(&options)) ||
        failed(ort, ((add_entry)api[ADD_SESSION_CONFIG_ENTRY])(
                        options, "session.use_env_allocators", "1")) ||
        failed(ort, ((create_session)api[CREATE_SESSION_FROM_ARRAY])(ort->env, model, sizeof(model),
                                                                     options, &session)) ||
        failed(ort, ((create_allocator)api[CREATE_ALLOCATOR])(session, info, &ort->allocator)))
        return NULL;
    return ort;
}

static void end(void *arena) {
    free(arena); /* the process ends with it */
}

static uint64_t alloc(void *arena, uint64_t bytes) {
    struct ort *ort = arena;
    void *block = NULL, *status = ort->alloc(ort->allocator, bytes, &block);

    if (status)
        ort->release_status(status);
    return status ? 0 : (uint64_t)(uintptr_t)block;
}

static void free_block(void *arena, uint64_t block) {
    struct ort *ort = arena;

    ort->free(ort->allocator, (void *)(uintptr_t)block);
}

/* The arena never gives back, so what it has is the most it had. */
static uint64_t peak_reserved(void *arena) {
    struct ort *ort = arena;
    void *pairs = NULL;
    const char *text;

    if (failed(ort, ((void *(*)(const void *, void **))ort->api[ALLOCATOR_GET_STATS])(
                        ort->allocator, &pairs)))
        return 0;
    text = ((const char *(*)(const void *, const char *))ort->api[GET_KEY_VALUE])(pairs,
                                                                                  "TotalAllocated");
    return text ? strtoull(text, NULL, 10) : 0;
}

static const struct engine engine = {
    .name = NAME,
    .start = start,
    .end = end,
    .alloc = alloc,
    .free = free_block,
    .peak_reserved = peak_reserved,
};

extern const struct engine *const replay_engine;
__attribute__((visibility("default"))) const struct engine *const replay_engine = &engine;
