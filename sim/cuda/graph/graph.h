/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Graph: work described once, to be launched any number of times.
 *
 * A node does what its content says. The task of a content (struct submit_task) never changes, so a
 * graph, its clones and its executable forms share it; new parameters are a new task. To add a kind
 * of node, fill in a content and call graph_add(); graph_set() and graph_exec_set() change its
 * parameters. sim/cuda/graph/node.c has all kinds except kernels.
 *
 * Guarded by driver.lock and stream_lock() together to change, either of them to look.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "sim/cuda/stream/submit.h"

struct graph_memory;

struct graph_content {
    CUgraphNodeType type;
    struct submit_task *task;    /* what it does; NULL: nothing */
    CUevent event;               /* of nodes that record one or wait for one */
    struct graph *child;         /* owned; not in an executable graph */
    struct graph_memory *memory; /* of nodes that allocate or free */
};
/* Take another reference to a content; drop one. */
CUresult graph_content_copy(const struct graph_content *content, struct graph_content *ret);
void graph_content_done(struct graph_content *content);

struct graph_node {
    struct slab_head head;
    struct graph *graph;
    struct list in_graph;
    struct graph_content content;
    struct graph_node **before; /* what it depends on */
    size_t n_before, n_before_allocated;
    struct graph_node *follows; /* of these, the one before it in its stream; NULL: none, or any */
    bool in_origin;             /* captured in the stream that the capture began in */
    bool captured;
    const struct graph_node *original; /* that it is a clone of; only to compare */
    size_t index;                      /* scratch: where it is in some array */
};

struct graph {
    struct slab_head head;
    struct list nodes; /* as they were added */
    size_t n_nodes;
    bool is_child;     /* belongs to a node: cannot be destroyed by itself */
    uint64_t captures; /* under way into it */
    uint64_t id, original_id;
};

/* Live objects of handles; NULL: they are none. */
struct graph *graph_get(CUgraph handle);
struct graph_node *graph_node_get(CUgraphNode handle);

CUresult graph_new(struct graph **ret);
struct graph *graph_free(struct graph *graph); /* accepts NULL, returns NULL */
CUresult graph_clone(const struct graph *graph, struct graph **ret);

/* Add a node; `content` is taken over on success. For API calls: takes the locks. */
CUresult graph_add(CUgraph graph, const CUgraphNode *before, size_t n_before,
                   const struct graph_content *content, CUgraphNode *ret);
/* The same with both locks held. */
CUresult graph_add_locked(struct graph *graph, struct graph_node *const *before, size_t n_before,
                          const struct graph_content *content, struct graph_node **ret);
/* Give a node other parameters of its type; `content` is taken over on success. Take the locks. */
CUresult graph_set(CUgraphNode node, const struct graph_content *content);
CUresult graph_exec_set(CUgraphExec exec, CUgraphNode node, const struct graph_content *content);

/*
 * Make a content for an order that works in `context` (NULL: the current one). Takes over
 * `argument` on success. graph_node_order() gives the order of a node, for calls that read its
 * parameters; NULL: not a node, or a node of another type.
 */
CUresult graph_content_of_order(struct context *context, const struct stream_order *order,
                                struct graph_content *ret);
const struct stream_order *graph_node_order(CUgraphNode node, CUgraphNodeType type);

/*
 * Memory of graphs: sim/cuda/graph/graph_memory.c. Need driver.lock.
 *
 * Memory is `out` when a launch allocated it and it was not freed since, both as submitted.
 */
CUresult graph_memory_new(struct cuda_device *device, uint64_t bytes, struct graph_memory **ret);
struct graph_memory *graph_memory_ref(struct graph_memory *memory);
struct graph_memory *graph_memory_unref(struct graph_memory *memory);
struct graph_memory *graph_memory_find(CUdeviceptr base); /* NULL: not of a graph */
CUdeviceptr graph_memory_base(const struct graph_memory *memory);
uint64_t graph_memory_bytes(const struct graph_memory *memory);
/* The bytes that it needs in a room. */
uint64_t graph_memory_room_bytes(const struct graph_memory *memory);
struct cuda_device *graph_memory_device(const struct graph_memory *memory);
bool graph_memory_is_out(const struct graph_memory *memory);
/* Whether kernels may touch the memory at `base` now. */
bool graph_memory_is_live(CUdeviceptr base);
/* A scratch mark, to find the memory that two lists have in common. */
void graph_memory_set_mark(struct graph_memory *memory, const void *mark);
bool graph_memory_has_mark(const struct graph_memory *memory, const void *mark);

/* A launch allocated this memory and did not free it: charge it, and let it outlive its graph. */
CUresult graph_memory_take_out(struct graph_memory *memory);
/* Submitted work will free this memory; GRAPH_MEMORY_FREED takes the charge back. */
void graph_memory_take_back(struct graph_memory *memory);
enum graph_change {
    GRAPH_MEMORY_BEGINS, /* kernels may touch it */
    GRAPH_MEMORY_ENDS,   /* no longer; it is charged as a part of its graph's room */
    GRAPH_MEMORY_FREED,  /* no longer, and a launch had left it allocated */
};
/* Make the order that changes memory so when a stream reaches it; submit or undo the order. */
CUresult graph_memory_change(struct graph_memory *memory, enum graph_change what,
                             struct stream_order *ret);
void graph_memory_change_undo(struct stream_order *order);
/* Free the memory that is out, at once or when the stream `handle` reaches this point; the latter
 * releases the lock meanwhile. */
CUresult graph_memory_free(struct graph_memory *memory);
CUresult graph_memory_free_async(struct graph_memory *memory, CUstream handle);

/* Memory of one device that a graph allocates and frees again: charged while launches are under
 * way. */
struct graph_room;
struct graph_room_share;
CUresult graph_room_new(struct cuda_device *device, uint64_t bytes, struct graph_room **ret);
struct graph_room *graph_room_free(struct graph_room *room);
CUresult graph_room_take(struct graph_room *room, uint32_t stream, struct graph_room_share **ret);
void graph_room_give(struct graph_room *room, struct graph_room_share *share);

/* What the event of a handle stands for, as a launch sees it. Need stream_lock(). */
struct work *event_work(CUevent event);                /* borrowed; NULL: nothing */
void event_set_work(CUevent event, struct work *work); /* referenced */
bool event_live(CUevent event);
