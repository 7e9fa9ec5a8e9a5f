/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Explain: the dynamic placer's plan in words: the device of every op and why, the step that is
 * expected, copies and memory; and what is missing where no plan fits.
 */
#include <stdint.h>

struct allot_error;
struct dynamic_placement;
struct dynamic_placement_plan;

/* Through the log: a line for each op, and one for the whole. */
void explain_log(const struct dynamic_placement *dynamic);

/* The last plan as a text of several lines, to be freed. -ENODATA: there is none yet. -ENOMEM. */
int explain_text(const struct dynamic_placement *dynamic, char **ret);
/* The same as a page of HTML, with a picture. */
int explain_page(const struct dynamic_placement *dynamic, char **ret);

/* The parts of both: why a task of the last plan runs where it does; the whole in a sentence, to be
 * freed. -ENOMEM. */
#define EXPLAIN_WHY_SIZE 256
int explain_task(const struct dynamic_placement *dynamic, uint32_t task,
                 char ret[static EXPLAIN_WHY_SIZE]);
int explain_whole(const struct dynamic_placement *dynamic, char **ret);

/* The error of a session for whose task graph no plan fits: it names the device that lacks memory,
 * how many bytes are missing, and which lease would do. */
int explain_lack(const struct dynamic_placement *dynamic, const struct dynamic_placement_plan *plan,
                 struct allot_error *err);
