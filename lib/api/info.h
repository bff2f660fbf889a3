/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's report about itself, for tutti_info and tutti_tune.
 *
 * Both programs call the installed library, so the report describes this library and not a copy
 * inside the program. tutti__info has the symbol version TUTTI_PRIVATE: it may change with each
 * build, so only programs of the same build may call it. They compare tutti_version() before the
 * call.
 */
#ifndef TUTTI__API_INFO_H
#define TUTTI__API_INFO_H

#include <tutti/tutti.h>

/* The topics. The comments describe the fields of a topic's items (tutti__info_item_t), and the
   argument `what` if the topic has one. */
typedef enum {
    /* name, value: compiler, flags, kernels, ...; the path of the library */
    TUTTI__INFO_BUILD,
    /* what: a number of local ranks. name, value: of a setting; from: "default", "environment",
       "tuned file"; note: the allowed values, if the value is invalid.
       from "unknown": name is a TUTTI_* variable that is not a setting; note: the setting that
       the user may have meant.
       from "tuned", name "use": value: the tuned file in use, or the reason why none is used
       (tutti_tune compares the beginning of this text).
       from "tuned", name "place": value: the path of the tuned file for `what` local ranks */
    TUTTI__INFO_SETTINGS,
    /* name: a module of this version; value: how it was built, or that it was not. name "folder":
       the folder of the modules */
    TUTTI__INFO_MODULES,
    /* what: a module's file. name "library": value is the name of a library that the module uses,
       note is its path; name "version"; name "devices"; name "error". Request this topic in a new
       process for each file */
    TUTTI__INFO_PROBE,
    /* name "processors", value: the processors that this process may use; name "memory", value:
       the bytes that it can still allocate, note: the limit that applies */
    TUTTI__INFO_PLACE,
    /* what: the number of ranks on each host, such as "4,4". name: the collective; value: the
       algorithm, or "" for none; note: the reason; from_bytes, to_bytes: the sizes of the whole
       buffer, in host memory */
    TUTTI__INFO_ALGORITHMS
} tutti__info_topic_t;

/* An item of a topic. Texts that do not apply are "". All texts are valid during the callback. */
typedef struct {
    const char *name, *value, *from, *note;
    size_t from_bytes, to_bytes; /* to_bytes SIZE_MAX: no end */
} tutti__info_item_t;

typedef void (*tutti__info_put_t)(void *arg, const tutti__info_item_t *item);

/* Calls `put` for each item of a topic. INVALID_ARGUMENT: `what` is invalid. */
TUTTI_API tutti_status_t tutti__info(tutti__info_topic_t topic, const char *what,
                                     tutti__info_put_t put, void *arg);

#endif
