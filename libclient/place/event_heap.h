/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Event heap: what ends next in a simulated step. A resource (a device or a channel) has at most
 * one event, so the owner's array needs one entry for each. Events of one moment come in no
 * particular order.
 */
#include <stdbool.h>
#include <stdint.h>

struct event_heap_entry {
    double time;
    uint32_t resource;
};

struct event_heap {
    struct event_heap_entry *events; /* the owner's */
    uint32_t n;
};

static inline bool event_heap_is_due(const struct event_heap *heap, double now) {
    return heap->n > 0 && heap->events[0].time == now;
}

static inline void event_heap_put(struct event_heap *heap, double time, uint32_t resource) {
    struct event_heap_entry *events = heap->events;
    uint32_t i = heap->n++;

    while (i > 0 && time < events[(i - 1) / 2].time) {
        events[i] = events[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    events[i] = (struct event_heap_entry){ time, resource };
}

/* Take the first event, and return its resource. The heap must not be empty. */
static inline uint32_t event_heap_take(struct event_heap *heap) {
    struct event_heap_entry *events = heap->events, last = events[--heap->n];
    uint32_t taken = events[0].resource, i = 0;

    for (uint32_t child; (child = 2 * i + 1) < heap->n; i = child) {
        if (child + 1 < heap->n && events[child + 1].time < events[child].time)
            child++;
        if (events[child].time >= last.time)
            break;
        events[i] = events[child];
    }
    events[i] = last;
    return taken;
}
