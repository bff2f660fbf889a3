/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The launcher's process manager: through it, rank 0 passes a text to all ranks.
 *
 * PMIx and PMI-2 are libraries that a launcher provides. Both are opened at run time. They stay
 * open and connected until the process ends, because a process cannot connect a second time. Tutti
 * uses only functions with a stable binary interface, so a build needs no headers.
 */
#ifndef TUTTI__BOOT_PM_H
#define TUTTI__BOOT_PM_H

#include "base/status.h"

/* Longest text, with the final 0 byte. PMI-2 accepts up to 1024 bytes. */
#define TUTTI__PM_TEXT_BYTES 512

typedef struct {
    const char *name; /* "PMIx" */
    /* Load the library, and connect to the launcher on this host. TUTTI_ERR_UNSUPPORTED: one of
       these steps is not possible. A repeated call returns the same values. One thread at a
       time. */
    tutti_status_t (*open)(uint32_t *ret_rank, uint32_t *ret_size);
    /* All ranks receive rank 0's text. Collective; waits without a deadline until all ranks have
       called it. key: a new key for each call. Any thread. */
    tutti_status_t (*share)(const char *key, uint32_t rank, char text[TUTTI__PM_TEXT_BYTES]);
    /* Disconnect. If a connected process ends without this call, the launcher assumes a crash. */
    void (*close)(void);
} tutti__pm_t;

extern const tutti__pm_t tutti__pm_pmix, tutti__pm_pmi2;

#endif
