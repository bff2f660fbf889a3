/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the library tells of itself, for tutti_info.
 *
 * Exported in a node of its own, TUTTI_PRIVATE: it is for the tutti_info of the same build and may
 * change with each one, so tutti_info compares tutti_version() before it calls. So the program
 * reports what the library that is installed has and does, not a copy of its own.
 */
#ifndef TUTTI__API_INFO_H
#define TUTTI__API_INFO_H

#include <tutti/tutti.h>

typedef enum {
    /* name, value: compiler, flags, kernels, ...; the library's own file */
    TUTTI__INFO_BUILD,
    /* name, value; from: "default", "environment", "tuned file"; note: what is wrong with it. And
       from "unknown": a TUTTI_* variable that is no setting; note: the one that may be meant. And
       from "tuned": name "use", value: which tuned file counts, or why none does; name "place",
       value: where the one for so many local ranks is looked for. what: their number */
    TUTTI__INFO_SETTINGS,
    /* name: a module that this version knows; value: how it was built, or that it was not. And name
       "folder": where modules are looked for */
    TUTTI__INFO_MODULES,
    /* what: a file in that folder. name "library", value: its name, note: its path; name "version";
       name "devices"; name "error". In a process of its own for each file */
    TUTTI__INFO_PROBE,
    /* name "processors", value: those that this process may use; name "memory", value: bytes that
       it could still get, note: by whose limit */
    TUTTI__INFO_PLACE,
    /* what: "4,4", ranks host by host. name: the collective; value: the algorithm; note: why;
       from_bytes, to_bytes: of the whole buffer, host memory. value "": there is none */
    TUTTI__INFO_ALGORITHMS
} tutti__info_topic_t;

/* Texts that do not apply are "". Valid during the call. */
typedef struct {
    const char *name, *value, *from, *note;
    size_t from_bytes, to_bytes; /* to_bytes SIZE_MAX: no end */
} tutti__info_item_t;

typedef void (*tutti__info_put_t)(void *arg, const tutti__info_item_t *item);

/* `put` is called for each item. INVALID_ARGUMENT: `what` makes no sense. */
TUTTI_API tutti_status_t tutti__info(tutti__info_topic_t topic, const char *what,
                                     tutti__info_put_t put, void *arg);

#endif
