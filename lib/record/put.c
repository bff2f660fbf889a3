/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes text into a file descriptor, without stdio, malloc and locks. See put.h. */
#include "record/put.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void tutti__put_flush(tutti__put_t *put)
{
    size_t done = 0;

    while (done < put->used && put->error == 0) {
        ssize_t n = write(put->fd, put->buffer + done, put->used - done);

        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            put->error = errno;
    }
    put->used = 0;
}

static void put_byte(tutti__put_t *put, char byte)
{
    if (put->used == sizeof(put->buffer))
        tutti__put_flush(put);
    put->buffer[put->used++] = byte;
}

void tutti__put_text(tutti__put_t *put, const char *text)
{
    while (*text != '\0')
        put_byte(put, *text++);
}

static void put_digits(tutti__put_t *put, uint64_t number, unsigned base)
{
    char digits[24];
    size_t n = 0;

    do {
        digits[n++] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number > 0);
    while (n > 0)
        put_byte(put, digits[--n]);
}

void tutti__put_number(tutti__put_t *put, int64_t number)
{
    if (number < 0)
        put_byte(put, '-');
    put_digits(put, number < 0 ? 0 - (uint64_t)number : (uint64_t)number, 10);
}

void tutti__put_string(tutti__put_t *put, const char *text, size_t most)
{
    for (size_t i = 0; i < most && text[i] != '\0'; i++) {
        unsigned char byte = (unsigned char)text[i];

        if (byte == '"' || byte == '\\')
            put_byte(put, '\\');
        /* The text may have control characters, and its last character may be incomplete. */
        put_byte(put, byte < 0x20 || byte > 0x7e ? '?' : (char)byte);
    }
}

void tutti__put_key_number(tutti__put_t *put, const char *key, int64_t number)
{
    tutti__put_text(put, ",\"");
    tutti__put_text(put, key);
    tutti__put_text(put, "\":");
    tutti__put_number(put, number);
}

void tutti__put_key_text(tutti__put_t *put, const char *key, const char *text)
{
    tutti__put_text(put, ",\"");
    tutti__put_text(put, key);
    tutti__put_text(put, "\":\"");
    tutti__put_string(put, text, SIZE_MAX);
    tutti__put_text(put, "\"");
}

void tutti__put_key_hex(tutti__put_t *put, const char *key, uint64_t number)
{
    tutti__put_text(put, ",\"");
    tutti__put_text(put, key);
    tutti__put_text(put, "\":\"");
    put_digits(put, number, 16);
    tutti__put_text(put, "\"");
}
