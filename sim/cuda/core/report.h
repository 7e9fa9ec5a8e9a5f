/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Report: faults of kernels, in words on stderr, if GPUSIM_REPORT is set to 1.
 */
struct launch;
struct ptx_fault;

void report_fault(const struct launch *launch, const struct ptx_fault *fault);
/* A kernel that could not run at all. */
void report_error(const struct launch *launch, const char *text);
