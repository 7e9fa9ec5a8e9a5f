/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Shaper: graphs whose shapes come from data, run by a stager and compared, whatever its devices.
 */
#include "tests/support/libclient/exec/stage_fixture.h"

/* Shapes that are fed, or follow from what is fed: one stage, a plan for each. */
void shaper_feed(struct stager *stager);
/* Shapes that have to be computed first: from variables, from many numbers, from each other. */
void shaper_compute(struct stager *stager);
/* Gradients through both. */
void shaper_differentiate(struct stager *stager);
