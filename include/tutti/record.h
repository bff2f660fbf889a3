/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flight recorder: what is pending, and what happened last.
 *
 * Each communicator keeps its last events in memory, and what each pending tensor, each bucket
 * in flight and each waiting thread waits for. It is always on. A dump writes this into a file, and
 * the program tutti_report reads the dumps of all ranks and says what went wrong.
 *
 * If TUTTI_DUMP is set, the library writes a dump when a communicator fails, and when it reports a
 * stall.
 */
#ifndef TUTTI_RECORD_H
#ifndef TUTTI_H
#include <tutti/tutti.h> /* includes this file, in its place */
#else
#define TUTTI_RECORD_H

/*
 * Write the flight recorder of all communicators of this process.
 *
 * path  the file is PATH.RANK, with this process's rank in the world; it is replaced. NULL: the
 *       path of TUTTI_DUMP, where the dump of a failure stays, and this one is added behind it; or,
 *       if TUTTI_DUMP is not set, stderr
 *
 * Waits for no other rank. It may be called in a signal handler of the program's: it takes no lock,
 * allocates no memory, and keeps errno. It does not set tutti_last_error(). Any thread.
 *
 * TUTTI_ERR_INVALID_ARGUMENT  there is no communicator, or the path has more than 4000 bytes
 * TUTTI_ERR_SYSTEM            the file cannot be written. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_dump(const char *path);

#endif
#endif
