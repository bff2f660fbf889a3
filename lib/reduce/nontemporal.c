/* SPDX-License-Identifier: BSD-3-Clause */
#include "reduce/nontemporal.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

enum {
    LINE = 64
};

void tutti__nontemporal_copy(void *dst, const void *src, size_t bytes)
{
    char *to = dst;
    const char *from = src;
    size_t head = -(uintptr_t)to % LINE;

    if (bytes < head + LINE) {
        memcpy(to, from, bytes);
        return;
    }
    memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= LINE; bytes -= LINE) {
        __m128i a = _mm_loadu_si128((const __m128i *)from);
        __m128i b = _mm_loadu_si128((const __m128i *)(from + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(from + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(from + 48));

        _mm_stream_si128((__m128i *)to, a);
        _mm_stream_si128((__m128i *)(to + 16), b);
        _mm_stream_si128((__m128i *)(to + 32), c);
        _mm_stream_si128((__m128i *)(to + 48), d);
        to += LINE;
        from += LINE;
    }
    memcpy(to, from, bytes);
}

void tutti__nontemporal_end(void)
{
    _mm_sfence();
}

#else

void tutti__nontemporal_copy(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

void tutti__nontemporal_end(void)
{
}

#endif
