/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/broker/device_facts.h"

#include <stddef.h>

#include "base/cleanup.h"

const char *device_facts_state_name(enum device_state state) {
    static const char *const names[] = {
        [DEVICE_READY] = "ready",
        [DEVICE_DRAINING] = "draining",
        [DEVICE_LOST] = "lost",
    };

    return (size_t)state < ELEMENTSOF(names) ? names[state] : "unknown";
}
