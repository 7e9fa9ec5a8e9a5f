/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Cost model: how long an op takes before it was ever measured: the longer of its arithmetic and
 * its memory traffic at the rates of the device, and what a launch costs. Pure.
 */
#include "libclient/place/machine.h"

/* What an op does, whatever runs it. */
struct cost_work {
    double products; /* multiply-adds of matrix products */
    double ops;      /* operations on single elements */
    double bytes;    /* read and written */
    double launches; /* besides the first */
    enum machine_format format;
    bool is_nothing; /* it only names or orders what others compute */
};

double cost_model_usec(const struct machine_device *device, const struct cost_work *work);
