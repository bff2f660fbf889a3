/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions of a fuzz target. A fuzzer (clang -fsanitize=fuzzer) calls LLVMFuzzerTestOneInput;
 * in normal checks driver.c calls it.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Write the n-th valid input with which a fuzzer begins. Returns its length, or 0 if there are no
   more. */
size_t fuzz_seed(unsigned n, uint8_t *ret_data, size_t room);

#endif
