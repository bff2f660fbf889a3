/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The job's secret, and the codes that prove it (HMAC-SHA-256).
 *
 * HMAC comes from libcrypto, which is opened at run time if a secret is set, so the library links
 * no libcrypto. Without a secret the code is a plain hash: it separates jobs, but proves nothing.
 *
 * Rejected: a hash function of our own. A job with a secret relies on it, and distributions keep
 * libcrypto up to date.
 */
#ifndef TUTTI__BOOT_SECRET_H
#define TUTTI__BOOT_SECRET_H

#include "base/status.h"
#include "conf/conf.h"

#define TUTTI__CODE_BYTES 16

typedef struct {
    size_t bytes; /* 0: the job has no secret */
    unsigned char key[4096];
} tutti__secret_t;

/* The secret of TUTTI_JOB_SECRET or TUTTI_JOB_SECRET_FILE, if one is set. UNSUPPORTED, with the
   package's name, if libcrypto cannot be opened. */
tutti_status_t tutti__secret_read(const tutti__conf_t *conf, tutti__secret_t *ret_secret);

/* The code of some bytes: the first TUTTI__CODE_BYTES bytes of HMAC-SHA-256, or without a secret
   the plain hash. */
tutti_status_t tutti__secret_code(const tutti__secret_t *secret, const void *data, size_t bytes,
                                  unsigned char ret_code[TUTTI__CODE_BYTES]);

#endif
