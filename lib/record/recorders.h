/* SPDX-License-Identifier: BSD-3-Clause */
/* All recorders of the process, for dumps. For files of this room only. */
#ifndef TUTTI__RECORD_RECORDERS_H
#define TUTTI__RECORD_RECORDERS_H

#include "record/record.h"

#define TUTTI__RECORDERS 256u

/* A reader increments `readers`, and then reads the table. tutti__record_close clears an entry, and
   then waits until `readers` is 0. So no lock is needed, and a signal handler may read. */
typedef struct {
    _Atomic(tutti__record_t *) record[TUTTI__RECORDERS];
    atomic_uint opened;   /* how many recorders were opened so far */
    atomic_uint left_out; /* open recorders without an entry, because the table was full */
    atomic_int readers;
    atomic_int is_busy;    /* a thread writes TUTTI_DUMP's file; signal handlers ignore this */
    atomic_int has_failed; /* TUTTI_DUMP's file has the dump of a failure, which is kept. Cleared in
                              a child, and when a recorder is opened while no other is open */
} tutti__recorders_t;

extern tutti__recorders_t tutti__recorders;

/* Write the dump that TUTTI_DUMP asks for. The dump of the first failure replaces the file; while
   has_failed is set, later dumps are appended. Returns 0, or the errno of a file that cannot be
   written. */
int tutti__record_dump_asked(const char *path, const char *reason, int is_failure);
/* Can PATH.RANK be written? Returns 0 or an errno; creates no file. */
int tutti__record_dump_check(const char *path, uint32_t rank);

#endif
