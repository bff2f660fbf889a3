/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of the program `table`: each is a rank's function. */
#ifndef TUTTI_TESTS_GPU_TABLE_H
#define TUTTI_TESTS_GPU_TABLE_H

#include "gpu/gpu.h"

void table_memory(rank_t *self);
void table_streams(rank_t *self);
void table_casts(rank_t *self);
void table_pieces(rank_t *self);
void table_sums(rank_t *self);
/* This part also runs with several ranks. */
void table_nccl(rank_t *self);

#endif
