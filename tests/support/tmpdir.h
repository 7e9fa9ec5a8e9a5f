/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Tmpdir: a directory that a test has to itself and that is gone, with all in it, when its process
 * ends by itself. A test that fails leaves it behind for whoever looks into it.
 */

/* The directory of this process, made at the first call; NULL where that fails. */
const char *tmpdir(void);
