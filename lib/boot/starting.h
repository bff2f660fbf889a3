/* SPDX-License-Identifier: BSD-3-Clause */
/* Warnings while MPI_Init waits for ranks. See starting.c. */
#ifndef TUTTI__BOOT_STARTING_H
#define TUTTI__BOOT_STARTING_H

#include "boot/marks.h"
#include "conf/conf.h"

typedef struct tutti__starting tutti__starting_t;

/* Call these before and after MPI_Init. marks: must be valid until _end; NULL: there are no marks.
   _begin returns NULL if warnings are off, or not possible. */
tutti__starting_t *tutti__starting_begin(const tutti__conf_t *conf, tutti__marks_t *marks);
void tutti__starting_end(tutti__starting_t *starting);

#endif
