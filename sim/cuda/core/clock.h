/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Clock: the host clock of modelled time, for programs that look for these symbols with dlsym().
 *
 * The clock goes on when the program waits for work, up to its end, and with blocking copies. What
 * the host itself computes takes no modelled time unless the program says so.
 */
#ifdef __cplusplus
extern "C" {
#endif

/* The host was busy for so many nanoseconds. */
__attribute__((visibility("default"))) void gpusimHostWork(unsigned long long ns);
/* The host clock, in nanoseconds since cuInit(). */
__attribute__((visibility("default"))) unsigned long long gpusimHostClock(void);

#ifdef __cplusplus
}
#endif
