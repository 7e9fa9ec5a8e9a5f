/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The box as JSON on standard output, all sizes in bytes. docs/simulator.md explains it. */
struct box;

void show_json(struct box *box); /* needs the box locked */
