/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * File: a graph as bytes (docs/graph-file.md). Input is untrusted: sizes are bounded, and nodes are
 * made with every check that a builder's call has.
 */
#include "libclient/graph/graph.h"

/* The bytes of a graph, to free(). -ENOMEM; -EOVERFLOW: a name is too long. */
int graph_encode(const struct allot_graph *graph, uint8_t **ret, size_t *ret_size,
                 struct allot_error *err);
/* -EBADMSG: these are not the bytes of a graph, or not all of them. -ENOTSUP: of a later version.
 * -ENOENT: an op is not registered. */
int graph_decode(struct allot_graph **ret, const uint8_t *bytes, size_t size,
                 struct allot_error *err);

/* To a new file beside it, synced and renamed: the old one stays until the new one is whole. */
int graph_file_save(const struct allot_graph *graph, const char *path, struct allot_error *err);
int graph_file_load(struct allot_graph **ret, const char *path, struct allot_error *err);
