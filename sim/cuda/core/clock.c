/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clock: the two symbols beyond NVIDIA's that a program may look for, to take part in modelled
 * time. Both may be called at any time; before cuInit() there is no clock yet, and it reads 0.
 */
#include "sim/cuda/core/clock.h"

#include "sim/cuda/core/driver.h"
#include "sim/time/executor.h"

void gpusimHostWork(unsigned long long ns) {
    if (atomic_load(&driver.state) == DRIVER_READY)
        executor_host_work(driver.executor, ns);
}

unsigned long long gpusimHostClock(void) {
    return atomic_load(&driver.state) == DRIVER_READY ? executor_host_ns(driver.executor) : 0;
}
