/* SPDX-License-Identifier: Apache-2.0 */
#include "allocator/lock.h"

#include <sched.h>
#include <time.h>

void lock_take_slowly(struct lock *lock) {
    for (unsigned round = 0; !lock_try_hard(lock); round++)
        if (round < 64)
            sched_yield();
        else
            nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
}
