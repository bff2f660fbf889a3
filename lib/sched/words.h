/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Words of a text, line by line, with errors that name the line and the word. For text.c.
 *
 * A word is a run of letters, digits and `_`, or "->", or one other character. `#` begins a
 * comment. Functions that can find an error return 1, or 0 after it was kept.
 */
#ifndef TUTTI__SCHED_WORDS_H
#define TUTTI__SCHED_WORDS_H

#include "base/status.h"

#include <stdint.h>

#define TUTTI__WORDS_WHY 400

typedef struct {
    const char *name; /* of the text */
    const char *next; /* where it goes on */
    const char *end;  /* of the current line, without its comment */
    uint32_t line;    /* counts from 1 */
    tutti_status_t status;
    char why[TUTTI__WORDS_WHY]; /* the first error */
} tutti__words_t;

/* The next line; 0: there is none. What was left of the current one is lost. */
int tutti__words_line(tutti__words_t *words);

/* Keep an error of line `line`, 0: of the current one. Returns 0, for
   `return tutti__words_bad(...)`. */
int tutti__words_bad(tutti__words_t *words, uint32_t line, const char *fmt, ...)
    TUTTI__PRINTF(3, 4);
/* The same: another word than the next one was expected. */
int tutti__words_expected(tutti__words_t *words, const char *what);

/* Does the line end here? */
int tutti__words_at_end(tutti__words_t *words);
/* Does a number come next? */
int tutti__words_at_number(tutti__words_t *words);
/* Step over `word` if it comes next; else 0, which is no error. */
int tutti__words_take(tutti__words_t *words, const char *word);
/* Step over what stands before the first `:` of the line, and over that, if `word` comes behind it;
   else 0, which is no error. */
int tutti__words_skip_name(tutti__words_t *words, const char *word);
/* Each word of `phrase` has to come; then, in the second one, a number below 2^32. */
int tutti__words_need(tutti__words_t *words, const char *phrase);
int tutti__words_number(tutti__words_t *words, const char *phrase, uint32_t *ret_number);
/* Nothing more may come in this line. */
int tutti__words_end(tutti__words_t *words);

#endif
