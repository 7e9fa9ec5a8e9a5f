/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What a function answers that this driver does not have: a CUresult, "not supported" or, before
 * cuInit(), "not initialized". Any thread.
 */
int stub_answer(const char *name);
