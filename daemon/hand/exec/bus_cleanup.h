/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Bus cleanup: release by scope of what sd-bus hands out. */
#include <systemd/sd-bus.h>

static inline void bus_cleanup_errorp(sd_bus_error *error) {
    sd_bus_error_free(error);
}
static inline void bus_cleanup_messagep(sd_bus_message **message) {
    sd_bus_message_unref(*message);
}
