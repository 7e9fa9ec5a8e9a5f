/* SPDX-License-Identifier: Apache-2.0 */
/* Which driver is meant. Apart from driver/load.c, for programs that load none. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "driver/driver.h"

int driver_choice_parse(enum driver_choice *ret, const char *text) {
    for (enum driver_choice choice = DRIVER_AUTO; choice <= DRIVER_SIM; choice++)
        if (strcmp(text, driver_choice_name(choice)) == 0) {
            *ret = choice;
            return 0;
        }
    return -EINVAL;
}

const char *driver_choice_name(enum driver_choice choice) {
    static const char *const names[] = {
        [DRIVER_AUTO] = "auto",
        [DRIVER_NVIDIA] = "nvidia",
        [DRIVER_SIM] = "sim",
    };

    return names[choice];
}

struct driver_options driver_options_read(enum driver_choice choice) {
    const char *box = secure_getenv("GPUSIM_BOX");
    const char *dir = secure_getenv("ALLOT_SIM_DIR");

    return (struct driver_options){
        .choice = choice,
        .has_box = box && *box,
        .sim_dir = dir && *dir ? dir : NULL,
    };
}

enum driver_choice driver_resolve(const struct driver_options *options) {
    if (options->choice != DRIVER_AUTO)
        return options->choice;
    return options->has_box ? DRIVER_SIM : DRIVER_NVIDIA;
}
