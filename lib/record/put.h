/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes text into a file descriptor, without stdio, malloc and locks: for dumps in signal
 * handlers. After an error nothing more is written. The buffer is small, because the alternate
 * stack of a signal handler is small.
 */
#ifndef TUTTI__RECORD_PUT_H
#define TUTTI__RECORD_PUT_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    int fd;
    int error; /* errno of the first failure; 0: none */
    size_t used;
    char buffer[256];
} tutti__put_t;

/* Write the content of the buffer. */
void tutti__put_flush(tutti__put_t *put);
void tutti__put_text(tutti__put_t *put, const char *text);
void tutti__put_number(tutti__put_t *put, int64_t number);
/* Put the inside of a JSON string, at most `most` bytes of text. */
void tutti__put_string(tutti__put_t *put, const char *text, size_t most);

/* Put ,"key":number or ,"key":"text". The text of _hex is a hexadecimal number. */
void tutti__put_key_number(tutti__put_t *put, const char *key, int64_t number);
void tutti__put_key_text(tutti__put_t *put, const char *key, const char *text);
void tutti__put_key_hex(tutti__put_t *put, const char *key, uint64_t number);

#endif
