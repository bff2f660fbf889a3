/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fashion-MNIST, or another data set in the same four files (MNIST, KMNIST).
 *
 * Images are in memory as on disk, one byte per pixel; they become numbers when a batch is gathered
 * (train_compute.h). Every rank reads all data, so it can compute any part of any batch.
 */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train_base.h"

#define TRAIN_CLASSES 10

typedef struct {
    size_t count;    /* images, and labels */
    size_t rows;     /* pixels */
    size_t columns;  /* pixels */
    uint8_t *images; /* count * rows * columns */
    uint8_t *labels; /* count, each below TRAIN_CLASSES */
} train_set_t;

typedef struct {
    train_set_t train;
    train_set_t test;
    float mean;      /* of all training pixels, 0 to 255 */
    float deviation; /* their standard deviation */
} train_data_t;

/*
 * Read {train,t10k}-{images-idx3,labels-idx1}-ubyte from a folder, each with .gz or without.
 *
 * train_data_free frees the data. On failure *ret_data is empty; train_data_free accepts this.
 */
bool train_data_load(const char *folder, train_data_t *ret_data, train_error_t *error);
void train_data_free(train_data_t *data);

/* A checksum of all data. */
uint32_t train_data_checksum(const train_data_t *data);

#endif
