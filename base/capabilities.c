/* SPDX-License-Identifier: Apache-2.0 */
#include "base/capabilities.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int capabilities_keep(uint64_t mask) {
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    bool is_less = false;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capget, &header, data) < 0)
        return -errno;
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); /* none before Linux 4.3 */
    for (unsigned i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
        uint32_t kept = (uint32_t)(mask >> (32 * i));

        is_less |= data[i].inheritable || data[i].permitted & ~kept;
        data[i].permitted &= kept;
        data[i].effective = data[i].permitted;
        data[i].inheritable = 0;
    }
    /* Filters of system calls may refuse a call that changes nothing. */
    return is_less && syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}
