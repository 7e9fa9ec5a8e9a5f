/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Installed: where the programs and libraries that belong to gpuctl are.
 */
#include <stdbool.h>

#define INSTALLED_PATH_SIZE 4096

/* Find a program or library of ours: `built` beside this program, as in a build tree, or else
 * `installed`. False: it cannot be read. */
bool installed_find(char ret[static INSTALLED_PATH_SIZE], const char *built, const char *installed);
