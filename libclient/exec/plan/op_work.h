/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Op work: how much a node computes and moves, from its op and its shapes.
 */
#include "libclient/place/cost_model.h"

struct compile;

struct cost_work op_work_of(const struct compile *compile, uint32_t local);
