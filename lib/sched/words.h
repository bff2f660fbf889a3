/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads the words of a text, line by line, for text.c. Errors name the line and the word.
 *
 * A word is a sequence of letters, digits and `_`, or "->", or one other character. `#` begins a
 * comment. Functions that can find an error return 1, or 0 after they have kept the error.
 */
#ifndef TUTTI__SCHED_WORDS_H
#define TUTTI__SCHED_WORDS_H

#include "base/status.h"

#include <stdint.h>

#define TUTTI__WORDS_WHY 400

typedef struct {
    const char *name; /* name of the text */
    const char *next; /* the next character to read */
    const char *end;  /* end of the current line, without its comment */
    uint32_t line;    /* counts from 1 */
    tutti_status_t status;
    char why[TUTTI__WORDS_WHY]; /* the first error */
} tutti__words_t;

/* Skip the rest of the current line, and go to the next line. Returns 0 if there is none. */
int tutti__words_line(tutti__words_t *words);

/* Keep an error of line `line` (0: of the current line). Returns 0, for
   `return tutti__words_bad(...)`. */
int tutti__words_bad(tutti__words_t *words, uint32_t line, const char *fmt, ...)
    TUTTI__PRINTF(3, 4);
/* Keep the error that `what` was expected instead of the next word. Returns 0. */
int tutti__words_expected(tutti__words_t *words, const char *what);

int tutti__words_at_end(tutti__words_t *words);
/* Is the next word a number? */
int tutti__words_at_number(tutti__words_t *words);
/* Step over the next word if it is `word`; otherwise return 0, which is no error. */
int tutti__words_take(tutti__words_t *words, const char *word);
/* If `word` follows the line's first `:`, step over this `:`. Otherwise return 0: no error. */
int tutti__words_skip_name(tutti__words_t *words, const char *word);
/* need: step over `phrase`, which must follow. number: then read a number below 2^32. */
int tutti__words_need(tutti__words_t *words, const char *phrase);
int tutti__words_number(tutti__words_t *words, const char *phrase, uint32_t *ret_number);
/* Check that the line ends here. */
int tutti__words_end(tutti__words_t *words);

#endif
