/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of this room share. */
#ifndef TUTTI__EXEC_INSIDE_H
#define TUTTI__EXEC_INSIDE_H

#include "exec/exec.h"

#define TUTTI__NO_LOOP UINT32_MAX

/* Tell each receiving end how many messages this run brings. Not before the ranks have met. */
tutti_status_t tutti__run_expect(tutti__run_t *run);

#endif
