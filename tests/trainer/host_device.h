/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A GPU on the host: train_cuda_open (examples/train_device.h) for machines without one.
 */
#ifndef HOST_DEVICE_H
#define HOST_DEVICE_H

#include "train_device.h"

/* Accesses to the memory from outside of operations fault. Set it before a device is opened. */
extern bool host_device_locked;

/* The number of operations until one fails; 0: none fails. */
extern int host_device_fail_in;

#endif
