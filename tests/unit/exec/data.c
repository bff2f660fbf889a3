/* SPDX-License-Identifier: BSD-3-Clause */
/* Each rank's input, and the required results. See data.h. */
#include "unit/exec/data.h"

#include <math.h>
#include <string.h>

static void put(tutti_dtype_t dtype, void *array, size_t i, double value)
{
    float narrow = (float)value;
    uint32_t bits;

    switch (dtype) {
    case TUTTI_FLOAT32:
        ((float *)array)[i] = narrow;
        return;
    case TUTTI_INT64:
        ((int64_t *)array)[i] = (int64_t)value;
        return;
    case TUTTI_UINT8:
        ((uint8_t *)array)[i] = (uint8_t)value;
        return;
    default: /* BFLOAT16, to nearest even */
        memcpy(&bits, &narrow, sizeof(bits));
        bits += 0x7fff + (bits >> 16 & 1);
        ((uint16_t *)array)[i] = (uint16_t)(bits >> 16);
    }
}

double data_get(const data_t *data, const void *array, size_t i)
{
    uint32_t bits;
    float wide;

    switch (data->dtype) {
    case TUTTI_FLOAT32:
        return ((const float *)array)[i];
    case TUTTI_INT64:
        return (double)((const int64_t *)array)[i];
    case TUTTI_UINT8:
        return ((const uint8_t *)array)[i];
    default:
        bits = (uint32_t)((const uint16_t *)array)[i] << 16;
        memcpy(&wide, &bits, sizeof(wide));
        return wide;
    }
}

/* The drawn number, before put() rounds it. */
static double draw(const data_t *data, uint32_t rank, size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + rank * 40503u + data->seed * 69069u;

    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    if (data->roundings > 0)
        return ((double)(x % 2000003) / 1000.0 - 1000) / 64;
    if (data->rough)
        return (double)(x % 2000003) / 1000.0 - 1000;
    /* A sum of eight of these numbers fits into 8 bits, which is the precision of BFLOAT16 as
       well. */
    if (data->dtype == TUTTI_UINT8 || data->dtype == TUTTI_BFLOAT16)
        return x % 32;
    return (double)(x % 2001) - 1000;
}

static double value(const data_t *data, uint32_t rank, size_t i)
{
    char stored[8];

    put(data->dtype, stored, 0, draw(data, rank, i));
    return data_get(data, stored, 0);
}

double data_fold(const data_t *data, size_t i)
{
    double fold = value(data, 0, i);

    for (uint32_t r = 1; r < data->nranks; r++) {
        double v = value(data, r, i);

        if (data->op == TUTTI_MIN)
            fold = v < fold ? v : fold;
        else if (data->op == TUTTI_MAX)
            fold = v > fold ? v : fold;
        else
            fold += v;
    }
    if (data->op == TUTTI_AVG)
        fold /= data->nranks;
    /* For integers put() truncates, as AVG does. */
    return fold;
}

/* The largest error of a sum that was rounded in messages: see docs/performance.md. */
static double error_of(const data_t *data, size_t i)
{
    double magnitudes = 0, divisor = data->op == TUTTI_AVG ? data->nranks : 1;

    for (uint32_t r = 0; r < data->nranks; r++)
        magnitudes += fabs(value(data, r, i));
    /* Allow a little more for the additions in float32. */
    return (pow(1 + data->unit, data->roundings) - 1 + data->nranks * 1e-7) * magnitudes / divisor +
           data->roundings * data->nranks * data->least;
}

static size_t esize(const data_t *data)
{
    return tutti_dtype_bytes(data->dtype);
}

static int is(const data_t *data, const void *array, size_t i, double expected)
{
    char stored[8];

    put(data->dtype, stored, 0, expected);
    return memcmp((const char *)array + i * esize(data), stored, esize(data)) == 0;
}

void data_put(const data_t *data, void *array, uint32_t rank, size_t i)
{
    put(data->dtype, array, i, draw(data, rank, i));
}

int data_is_fold(const data_t *data, const void *array, size_t i)
{
    double fold = data_fold(data, i);
    /* Each sum may be wrong by half a unit in the last place of a number of some thousands. */
    double unit = data->dtype == TUTTI_BFLOAT16 ? 1.0 / 256 : 1.0 / (1 << 24);

    if (!data->rough)
        return is(data, array, i, fold);
    if (data->roundings > 0)
        return fabs(data_get(data, array, i) - fold) <= error_of(data, i);
    return fabs(data_get(data, array, i) - fold) <= data->nranks * data->nranks * 1000 * unit;
}

int data_is_from(const data_t *data, const void *array, uint32_t rank, size_t i)
{
    return is(data, array, i, draw(data, rank, i));
}
