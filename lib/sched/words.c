/* SPDX-License-Identifier: BSD-3-Clause */
/* Words of a text. See words.h. */
#include "sched/words.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WORD_SHOWN 32

typedef struct {
    const char *at;
    size_t n; /* length; 0: the line has ended */
} token_t;

int tutti__words_line(tutti__words_t *words)
{
    const char *comment;
    size_t n;

    if (words->end != NULL) {
        words->next = words->end + strcspn(words->end, "\n");
        words->next += *words->next == '\n';
    }
    if (*words->next == '\0')
        return 0;
    n = strcspn(words->next, "\n");
    comment = memchr(words->next, '#', n);
    words->end = comment != NULL ? comment : words->next + n;
    words->line++;
    return 1;
}

int tutti__words_bad(tutti__words_t *words, uint32_t line, const char *fmt, ...)
{
    char what[TUTTI__WORDS_WHY];
    va_list args;

    if (words->status != TUTTI_OK)
        return 0;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    words->status = TUTTI_ERR_INVALID_ARGUMENT;
    snprintf(words->why, sizeof(words->why), "%.100s, line %u: %.280s", words->name,
             line > 0 ? line : words->line, what);
    return 0;
}

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int is_wordly(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

/* Find the next word, without stepping over it. */
static token_t peek(tutti__words_t *words)
{
    token_t token;

    while (words->next < words->end && is_blank(*words->next))
        words->next++;
    token.at = words->next;
    token.n = 0;
    while (token.at + token.n < words->end && is_wordly(token.at[token.n]))
        token.n++;
    if (token.n == 0 && token.at < words->end)
        token.n = token.at + 1 < words->end && token.at[0] == '-' && token.at[1] == '>' ? 2 : 1;
    return token;
}

int tutti__words_expected(tutti__words_t *words, const char *what)
{
    token_t token = peek(words);

    if (token.n == 0)
        return tutti__words_bad(words, 0, "expected %s, but the line ends", what);
    return tutti__words_bad(words, 0, "expected %s, found \"%.*s\"", what,
                            (int)TUTTI__MIN(token.n, (size_t)WORD_SHOWN), token.at);
}

int tutti__words_at_end(tutti__words_t *words)
{
    return peek(words).n == 0;
}

int tutti__words_at_number(tutti__words_t *words)
{
    token_t token = peek(words);

    return token.n > 0 && is_digit(token.at[0]);
}

int tutti__words_take(tutti__words_t *words, const char *word)
{
    token_t token = peek(words);

    if (token.n != strlen(word) || memcmp(token.at, word, token.n) != 0)
        return 0;
    words->next = token.at + token.n;
    return 1;
}

int tutti__words_skip_name(tutti__words_t *words, const char *word)
{
    const char *colon = memchr(words->next, ':', (size_t)(words->end - words->next));
    tutti__words_t behind = *words;

    if (colon == NULL)
        return 0;
    behind.next = colon + 1;
    if (!tutti__words_take(&behind, word))
        return 0;
    words->next = colon + 1;
    return 1;
}

int tutti__words_need(tutti__words_t *words, const char *phrase)
{
    while (*phrase != '\0') {
        int n = (int)strcspn(phrase, " ");
        char word[WORD_SHOWN];

        snprintf(word, sizeof(word), "%.*s", n, phrase);
        if (!tutti__words_take(words, word)) {
            char quoted[WORD_SHOWN + 2];

            snprintf(quoted, sizeof(quoted), "\"%s\"", word);
            return tutti__words_expected(words, quoted);
        }
        phrase += n + (phrase[n] == ' ');
    }
    return 1;
}

int tutti__words_number(tutti__words_t *words, const char *phrase, uint32_t *ret_number)
{
    uint64_t value = 0;
    token_t token;

    if (!tutti__words_need(words, phrase))
        return 0;
    token = peek(words);
    if (token.n == 0)
        return tutti__words_expected(words, "a number");
    for (size_t i = 0; i < token.n; i++) {
        if (!is_digit(token.at[i]))
            return tutti__words_expected(words, "a number");
        value = value * 10 + (uint64_t)(token.at[i] - '0');
        if (value > UINT32_MAX)
            return tutti__words_expected(words, "a number below 2^32");
    }
    words->next = token.at + token.n;
    *ret_number = (uint32_t)value;
    return 1;
}

int tutti__words_end(tutti__words_t *words)
{
    return tutti__words_at_end(words) || tutti__words_expected(words, "the end of the line");
}
