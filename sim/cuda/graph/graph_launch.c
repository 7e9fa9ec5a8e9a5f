/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches of executable graphs: each step becomes a piece of work in its lane. Memory that the
 * graph needs is charged before anything is submitted, so a launch that does not fit changes
 * nothing.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "sim/cuda/graph/capture.h"
#include "sim/cuda/graph/exec.h"

/* All objects that the graph uses must still exist. */
static CUresult check_launch(const struct exec *exec) {
    for (size_t i = 0; i < exec->n_steps; i++) {
        const struct graph_content *content = &exec->steps[i].content;

        if (content->task) {
            if (atomic_load(&content->task->context->id) != content->task->life)
                return CUDA_ERROR_CONTEXT_IS_DESTROYED;
            TRY(context_check(content->task->context));
        }
        if (content->event && !event_live(content->event))
            return CUDA_ERROR_INVALID_HANDLE;
        if (content->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && graph_memory_is_out(content->memory) &&
            !(exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH))
            return CUDA_ERROR_INVALID_VALUE;
        if (content->type == CU_GRAPH_NODE_TYPE_MEM_FREE && !exec->steps[i].within &&
            !graph_memory_is_out(content->memory))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* What a step does to memory, as a task; `*ret` is NULL for steps without any. */
static CUresult memory_task(const struct exec_step *step, const struct stream *stream,
                            struct submit_task **ret) {
    struct graph_memory *memory = step->content.memory;
    struct stream_order order;
    CUresult r;

    *ret = NULL;
    if (!memory)
        return CUDA_SUCCESS;
    TRY(graph_memory_change(memory,
                            step->content.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? GRAPH_MEMORY_BEGINS
                            : step->within                                     ? GRAPH_MEMORY_ENDS
                                                                               : GRAPH_MEMORY_FREED,
                            &order));
    r = submit_task_new(stream->context, &order, ret);
    if (r != CUDA_SUCCESS)
        graph_memory_change_undo(&order);
    return r;
}

static void task_unrefp(struct submit_task **task) {
    submit_task_unref(*task);
}

static CUresult launch_step(struct exec *exec, struct exec_step *step, const struct stream *stream,
                            const struct submit_list *first, struct work *const *works,
                            struct work **ret) {
    cleanup(submit_list_done) struct submit_list after = { 0 };
    cleanup(task_unrefp) struct submit_task *of_memory = NULL;
    struct submit_task *task = step->disabled ? NULL : step->content.task;
    struct work *before = step->follows != NO_STEP ? works[step->follows]
                          : step->lane == 0        ? stream->tail
                                                   : NULL;

    for (size_t i = 0; i < step->n_before; i++)
        if (step->before[i] != step->follows)
            TRY(submit_list_add(&after, works[step->before[i]]));
    if (!step->n_before) {
        for (size_t i = 0; i < first->n; i++)
            TRY(submit_list_add(&after, first->at[i]));
        for (size_t i = 0; i < exec->n_last; i++)
            TRY(submit_list_add(&after, exec->last[i]));
        if (stream->tail && before != stream->tail)
            TRY(submit_list_add(&after, stream->tail));
    }
    if (step->content.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT && event_work(step->content.event))
        TRY(submit_list_add(&after, event_work(step->content.event)));
    TRY(memory_task(step, stream, &of_memory));
    TRY(submit_to_lane(&exec->lanes[step->lane], of_memory ? of_memory : task, before, &after,
                       ret));
    if (step->content.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
        event_set_work(step->content.event, *ret);
    if (step->content.type == CU_GRAPH_NODE_TYPE_MEM_FREE && !step->within)
        graph_memory_take_back(step->content.memory);
    return CUDA_SUCCESS;
}

/* The rooms of one launch. */
struct launch_rooms {
    size_t n;
    struct {
        struct graph_room
            *room; /* of an executable graph, which waits for this launch before it is freed */
        struct graph_room_share *share;
    } at[];
};

static void launch_rooms_give(struct launch_rooms *rooms) {
    while (rooms->n) {
        rooms->n--;
        graph_room_give(rooms->at[rooms->n].room, rooms->at[rooms->n].share);
    }
}

static uint64_t launch_rooms_end(void *argument) {
    DRIVER_LOCKED();
    launch_rooms_give(argument);
    return 0;
}

static void launch_rooms_undo(struct exec *exec, struct launch_rooms *rooms) {
    launch_rooms_give(rooms);
    free(rooms);
    for (size_t i = 0; i < exec->n_steps; i++) {
        if (exec->steps[i].taken)
            graph_memory_free(exec->steps[i].content.memory);
        exec->steps[i].taken = false;
    }
}

/* Charge what a launch needs: all of it or nothing. */
static CUresult launch_rooms_begin(struct exec *exec, const struct stream *stream,
                                   struct launch_rooms **ret) {
    struct launch_rooms *rooms = calloc(1, sizeof(*rooms) + exec->n_rooms * sizeof(rooms->at[0]));
    CUresult r = rooms ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

    for (size_t i = 0; i < exec->n_rooms && r == CUDA_SUCCESS; i++) {
        rooms->at[i].room = exec->rooms[i];
        r = graph_room_take(exec->rooms[i], stream->number, &rooms->at[i].share);
        rooms->n += r == CUDA_SUCCESS;
    }
    for (size_t i = 0; i < exec->n_steps && r == CUDA_SUCCESS; i++) {
        struct exec_step *step = &exec->steps[i];

        /* Memory that an earlier launch left allocated is freed and allocated anew: one charge is
         * enough. */
        step->taken = step->content.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !step->within &&
                      !graph_memory_is_out(step->content.memory);
        if (step->taken)
            r = graph_memory_take_out(step->content.memory);
        step->taken &= r == CUDA_SUCCESS;
    }
    if (r == CUDA_SUCCESS)
        *ret = rooms;
    else if (rooms)
        launch_rooms_undo(exec, rooms);
    return r;
}

/* Release everything when all leaves of the launch are done; `rooms` is taken over on success. */
static CUresult launch_rooms_submit(struct exec *exec, const struct stream *stream,
                                    struct launch_rooms *rooms, struct work **ret) {
    cleanup(submit_list_done) struct submit_list leaves = { 0 };
    struct submit_task *task;
    CUresult r;

    for (size_t i = 0; i < exec->n_last; i++)
        TRY(submit_list_add(&leaves, exec->last[i]));
    TRY(submit_task_new(
        stream->context,
        &(struct stream_order){
            .run = launch_rooms_end, .argument = rooms, .release = free, .regardless = true },
        &task));
    r = submit_to_lane(&exec->memory_lane, task, NULL, &leaves, ret);
    if (r == CUDA_SUCCESS)
        submit_task_unref(task);
    else
        free(task); /* not its argument, which is still the caller's */
    return r;
}

/* Needs both locks. */
static CUresult launch(struct exec *exec, struct stream *stream) {
    cleanup(submit_list_done) struct submit_list first = { 0 };
    cleanup(freep) struct work **works = calloc(exec->n_steps + 1, sizeof(*works));
    struct work *tail = NULL, *end = NULL;
    struct launch_rooms *rooms = NULL;
    CUresult r = CUDA_SUCCESS;
    size_t n = 0;

    if (!works)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!exec->n_steps)
        return CUDA_SUCCESS;
    TRY(check_launch(exec));
    TRY(stream_awaits(stream, &first));
    if (exec->has_memory)
        TRY(launch_rooms_begin(exec, stream, &rooms));
    exec->lanes[0].number = stream->number;
    exec->lanes[0].sequence = stream->sequence;
    for (size_t i = 0; i < exec->n_lanes; i++)
        exec->lanes[i].priority = stream->priority;
    while (n < exec->n_steps && r == CUDA_SUCCESS) {
        r = launch_step(exec, &exec->steps[n], stream, &first, works, &works[n]);
        n += r == CUDA_SUCCESS;
    }
    for (size_t i = 0; i < n; i++)
        if (exec->steps[i].lane == 0)
            tail = works[i];
    if (tail)
        stream_advance(stream, work_ref(tail), exec->lanes[0].sequence);
    exec_forget_last(exec);
    for (size_t i = 0; i < n; i++) {
        if (exec->steps[i].is_leaf && r == CUDA_SUCCESS) {
            exec->last[exec->n_last++] = work_ref(works[i]);
            if (works[i] != tail)
                r = stream_await(stream, works[i]);
        }
        work_unref(driver.executor, works[i]);
    }
    if (rooms && r == CUDA_SUCCESS)
        r = launch_rooms_submit(exec, stream, rooms, &end);
    if (end) {
        exec->last[exec->n_last++] = end;
        return stream_await(stream, end);
    }
    if (rooms) {
        launch_rooms_give(rooms);
        free(rooms);
    }
    return r;
}

/* A launch into a stream that is captured becomes a child graph there. */
static CUresult launch_captured(struct exec *exec, struct stream *stream) {
    struct graph_content content = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
    cleanup(freep) struct graph_node **nodes = calloc(exec->n_steps + 1, sizeof(*nodes));
    cleanup(freep) struct graph_node **before = calloc(exec->n_steps + 1, sizeof(*before));
    CUresult r = nodes && before ? graph_new(&content.child) : CUDA_ERROR_OUT_OF_MEMORY;

    for (size_t i = 0; i < exec->n_steps && r == CUDA_SUCCESS; i++) {
        const struct exec_step *step = &exec->steps[i];
        struct graph_content copy;

        for (size_t k = 0; k < step->n_before; k++)
            before[k] = nodes[step->before[k]];
        r = step->content.memory ? CUDA_ERROR_NOT_SUPPORTED
                                 : graph_content_copy(&step->content, &copy);
        if (r != CUDA_SUCCESS)
            break;
        r = graph_add_locked(content.child, before, step->n_before, &copy, &nodes[i]);
        if (r != CUDA_SUCCESS)
            graph_content_done(&copy);
        else if (step->follows != NO_STEP)
            nodes[i]->follows = nodes[step->follows];
    }
    if (r == CUDA_SUCCESS) {
        content.child->is_child = true;
        r = capture_content(stream, &content, NULL);
    }
    if (r != CUDA_SUCCESS)
        graph_free(content.child);
    return r;
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
    struct stream *stream;
    struct exec *exec;
    bool captured;
    CUresult r;

    ENTER(context_gpu());
    TRY(stream_find(hStream, &stream, NULL));
    driver_lock();
    stream_lock();
    exec = exec_get(hGraphExec);
    r = exec ? capture_admit(stream, &captured) : CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        r = captured ? launch_captured(exec, stream) : launch(exec, stream);
    stream_unlock();
    driver_unlock();
    if (r == CUDA_SUCCESS)
        executor_throttle(driver.executor);
    return r;
}
PTSZ(cuGraphLaunch, (CUgraphExec exec, CUstream s), exec, stream_own(s))

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
    ENTER(context_gpu());
    TRY(stream_find(hStream, NULL, NULL));
    DRIVER_LOCKED();
    return exec_get(hGraphExec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
PTSZ(cuGraphUpload, (CUgraphExec exec, CUstream s), exec, stream_own(s))
