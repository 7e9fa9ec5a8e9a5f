/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * IPC event: the state that an event shares with the same event in other processes: its last
 * record, and which records have been reached. It is a page of memory that all of them map.
 *
 * Records are numbered from 1 on. Any process may record; one that ends has reached everything that
 * it recorded, so no process waits for a dead one. Times are not shared: each process has its own
 * clock.
 *
 * Functions need no lock unless they say so. What other processes write is not trusted: at worst
 * a broken event is reached too early or never.
 */
#include <stdbool.h>
#include <stdint.h>

#include "sim/cuda/core/api.h"

struct ipc_event;

/* CUDA_ERROR_OUT_OF_MEMORY: no descriptor, or no memory. Needs driver.lock. */
CUresult ipc_event_new(struct ipc_event **ret);
/*
 * The event of a handle that another process made. CUDA_ERROR_INVALID_HANDLE: not such a handle, or
 * that process or its event has gone. CUDA_ERROR_INVALID_CONTEXT: it is this process.
 */
CUresult ipc_event_open(struct ipc_event **ret, const CUipcEventHandle *handle);
/* A handle for other processes. CUDA_ERROR_INVALID_HANDLE: another process made the event. */
CUresult ipc_event_name(const struct ipc_event *event, CUipcEventHandle *ret);
struct ipc_event *ipc_event_ref(struct ipc_event *event);
struct ipc_event *ipc_event_unref(struct ipc_event *event); /* accepts NULL */

/* This process records the event; returns the number of that record, for ipc_event_reach(). */
uint64_t ipc_event_record(struct ipc_event *event);
void ipc_event_reach(struct ipc_event *event, uint64_t record);
/* The last record; 0: none. */
uint64_t ipc_event_last(const struct ipc_event *event);
/* Whether a record was reached. `look`: also whether the process that made it is gone, which costs
 * more. */
bool ipc_event_reached(const struct ipc_event *event, uint64_t record, bool look);
