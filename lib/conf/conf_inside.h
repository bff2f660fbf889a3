/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations shared by the files of this room; no other room includes this file. */
#ifndef TUTTI__CONF_CONF_INSIDE_H
#define TUTTI__CONF_CONF_INSIDE_H

#include "base/log.h"
#include "conf/conf.h"
#include "conf/tuned.h"

/* A line for the log, which is written later, when the log's level is known; text "": no line. */
typedef struct {
    tutti__log_level_t level;
    char text[TUTTI__LOG_BYTES];
    tutti__tuned_t used; /* the settings of the tuned file that are in use */
} tutti__conf_note_t;

/* A row of the table, as text. */
typedef struct {
    const char *name, *standard; /* standard: the default; "": not set */
    int is_secret;               /* the value must not be printed */
    char allowed[128];
} tutti__conf_row_t;

/* Get the i-th row. Returns 0 if the table has fewer rows. */
int tutti__conf_row(size_t i, tutti__conf_row_t *ret_row);
/* Set the field of row i from text. Returns 0 if the text is invalid. */
int tutti__conf_row_put(tutti__conf_t *conf, size_t i, const char *text);

/* Find the next variable after *at (NULL: the first variable) that begins with TUTTI_ and is not a
   setting. Returns 0 if there is none. ret_guess: the setting that the user may have meant, or
   NULL. */
int tutti__conf_next_unknown(char ***at, char ret_name[64], const char **ret_guess);

/* The value of row i's variable; NULL if the variable is not set, or empty. TUTTI_TRANSPORT may
   also be set by its old name. */
const char *tutti__conf_row_text(size_t i);

/* A variable's value as a whole number; -1: not set, or no number up to INT_MAX. */
int tutti__conf_int(const char *name);
/* Read RANK and WORLD_SIZE. Returns 0 if these variables are not valid, if there is only one rank,
   or if MASTER_ADDR is not set. */
int tutti__conf_env(uint32_t *ret_rank, uint32_t *ret_size);
/* This process's rank in env:// or in the launcher's variables; -1: not set. MPI may give this
   process another rank. */
int tutti__conf_launcher_rank(void);

/* Is `name` a setting that a tuned file may hold? */
int tutti__conf_is_tunable(const char *name);
/* Set a tunable setting. If the text is invalid, returns 0 and the allowed values. */
int tutti__conf_put(tutti__conf_t *conf, const char *name, const char *text, char *ret_allowed,
                    size_t capacity);

/* Is TUTTI_BOOT local:NAME? If so, all ranks are on this host. */
int tutti__conf_is_local(const tutti__conf_t *conf);

/* Replace settings of `conf`, which are from the environment, by settings of the tuned file. If one
   of these is invalid, replace none. Afterwards the caller applies the environment again. */
void tutti__conf_use_tuned(tutti__conf_t *conf, tutti__conf_note_t *ret_note);

#endif
