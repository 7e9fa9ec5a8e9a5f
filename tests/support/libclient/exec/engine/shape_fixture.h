/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Shape fixture: graphs whose shapes come from data, run by a stage fixture and compared, whatever
 * its devices.
 */
#include "tests/support/libclient/exec/engine/stage_fixture.h"

/* Shapes that are fed, or follow from what is fed: one stage, a plan for each. */
void shape_fixture_feed(struct stage_fixture *fixture);
/* Shapes that have to be computed first: from variables, from many numbers, from each other. */
void shape_fixture_compute(struct stage_fixture *fixture);
/* Gradients through both. */
void shape_fixture_differentiate(struct stage_fixture *fixture);
