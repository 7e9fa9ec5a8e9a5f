/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Clock: the host clock of modelled time, for programs that look for these symbols with dlsym().
 *
 * The clock advances when the program waits for work, to the end of that work, and with blocking
 * copies. Computing on the host takes no modelled time unless the program reports it.
 */
#ifdef __cplusplus
extern "C" {
#endif

/* Report that the host computed for `ns` nanoseconds. */
__attribute__((visibility("default"))) void gpusimHostWork(unsigned long long ns);
/* The host clock, in nanoseconds since cuInit(). */
__attribute__((visibility("default"))) unsigned long long gpusimHostClock(void);

#ifdef __cplusplus
}
#endif
