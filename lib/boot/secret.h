/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The job's secret, and the codes that prove it (HMAC-SHA-256).
 *
 * HMAC is a function of libcrypto. If a secret is set, libcrypto is opened at run time, so this
 * library does not link libcrypto. Without a secret, a code is a plain hash: it separates jobs, but
 * proves nothing.
 *
 * Rejected: a hash function of our own. The security of a job with a secret depends on the hash
 * function, and distributions keep libcrypto up to date.
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

/* Read the secret of TUTTI_JOB_SECRET or TUTTI_JOB_SECRET_FILE, if one of them is set. UNSUPPORTED:
   libcrypto cannot be opened; the text has the package's name. */
tutti_status_t tutti__secret_read(const tutti__conf_t *conf, tutti__secret_t *ret_secret);

/* Compute the code of `data`: the first bytes of HMAC-SHA-256, or without a secret a plain hash. */
tutti_status_t tutti__secret_code(const tutti__secret_t *secret, const void *data, size_t bytes,
                                  unsigned char ret_code[TUTTI__CODE_BYTES]);

#endif
