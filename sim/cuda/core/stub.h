/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The CUresult of a function that this driver does not implement: "not supported" or, before
 * cuInit(), "not initialized". Any thread.
 */
int stub_answer(const char *name);
