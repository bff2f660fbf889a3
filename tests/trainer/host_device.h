/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A GPU that is the host: train_cuda_open (examples/train_device.h) for machines without one.
 */
#ifndef HOST_DEVICE_H
#define HOST_DEVICE_H

#include "train_device.h"

/* Its memory faults when touched from outside; set before a device is opened. */
extern bool host_device_locked;

/* After so many more operations one fails; 0: none. */
extern int host_device_fail_in;

#endif
