/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * If there is a device that Tutti can use, prints the number of devices and the libraries'
 * versions. Otherwise prints the reason, and ends with 77. Opens the module as the library does,
 * and makes a first stream.
 */
#include "gpu/gpu.h"

#include <stdlib.h>

int main(void)
{
    const tutti__device_ops_t *ops = NULL;
    tutti__dstream_t *stream = NULL;
    const char *versions = "";
    int count = 0;
    tutti_status_t status = gpu_module(&ops, &versions);

    if (status == TUTTI_OK && ops == NULL) {
        printf("TUTTI_TEST_DEVICE=%s is no device\n", gpu_name());
        return 77;
    }
    if (status == TUTTI_OK)
        status = ops->count(&count);
    if (status == TUTTI_OK && count == 0) {
        printf("there is no %s device\n", gpu_name());
        return 77;
    }
    if (status == TUTTI_OK)
        status = ops->use(0);
    if (status == TUTTI_OK)
        status = ops->stream_make(0, &stream);
    if (status != TUTTI_OK) {
        printf("no %s device: %s\n", gpu_name(), tutti_last_error());
        return 77;
    }
    ops->stream_drop(stream);
    printf("%d %s\n", count, versions);
    return 0;
}
