/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Op key: numbers by which measured costs are found: one for what an op is, with all that decides
 * how long its kernel takes, and one for a kind of device. 0 is none.
 */
#include <stdint.h>

struct compile;

/* Op, types, shapes and attributes of a node whose shapes are known, without seeds and factors. 0:
 * it is not to be measured, as it does nothing or its shape is not known. */
uint64_t op_key_of(const struct compile *compile, uint32_t local);

/* The items of the program that are measured: `program->cost_keys`, by item. A node that is more
 * than one item, or is done by another, has none. -ENOMEM. */
int op_key_items(struct compile *compile);

uint64_t op_key_of_kind(const char *kind);

/* A text that differs when the library, with its kernels, is another; no spaces. */
#define OP_KEY_VERSION_SIZE 96
void op_key_version(char ret[static OP_KEY_VERSION_SIZE]);
