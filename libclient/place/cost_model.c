/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/place/cost_model.h"

#include <math.h>

double cost_model_usec(const struct machine_device *device, const struct cost_work *work) {
    double usec;

    if (work->is_nothing)
        return 0;
    usec = work->products / device->product_per_usec[work->format];
    usec = fmax(usec, work->ops / device->op_per_usec);
    usec = fmax(usec, work->bytes / device->bytes_per_usec);
    return usec + (1 + work->launches) * device->launch_usec;
}
