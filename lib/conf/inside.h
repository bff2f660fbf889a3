/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of this room share; nobody else includes it. */
#ifndef TUTTI__CONF_INSIDE_H
#define TUTTI__CONF_INSIDE_H

#include "base/log.h"
#include "conf/conf.h"

/* What there is to say, once the log's level is known; `text` is "" if nothing. */
typedef struct {
    tutti__log_level_t level;
    char text[TUTTI__LOG_BYTES];
} tutti__conf_note_t;

/* Is a variable of this name set, and not empty? */
int tutti__conf_is_set(const char *name);

/* Is it a setting that a tuned file may hold? */
int tutti__conf_is_tunable(const char *name);
/* Set one of those. 0, and what is allowed, if the text makes no sense. */
int tutti__conf_put(tutti__conf_t *conf, const char *name, const char *text, char *ret_allowed,
                    size_t room);

/* Is this TUTTI_BOOT=local:NAME? Then all ranks are on this host. */
int tutti__conf_is_local(const tutti__conf_t *conf);

/* Put the tuned file's settings over those in `conf`, which holds the environment's already; all
   or nothing. The caller puts the environment's over them again. */
void tutti__conf_use_tuned(tutti__conf_t *conf, tutti__conf_note_t *ret_note);

#endif
