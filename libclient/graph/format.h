/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Format: the numbers that the writer and the reader of graph files share (docs/graph-file.md). */

#define FORMAT_MAGIC                                                                               \
    "\x89"                                                                                         \
    "ALLOTG\n"
#define FORMAT_MAGIC_SIZE 8
#define FORMAT_VERSION    1
/* Of a name, a device or a text attribute. */
#define FORMAT_TEXT_MAX (1u << 20)
