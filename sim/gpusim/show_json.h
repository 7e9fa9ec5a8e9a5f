/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The box as JSON on standard output, exact: bytes, not pictures. docs/simulator.md explains it.
 */
struct box;

void show_json(struct box *box); /* wants the box locked */
