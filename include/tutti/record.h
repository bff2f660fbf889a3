/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flight recorder (pending work, and the last events), and traces.
 *
 * Each communicator keeps its last events in memory. It also keeps the reason why each pending
 * tensor, each bucket in flight (async.h) and each waiting thread waits. The recorder is always on.
 * A dump writes the recorder's content into a file. tutti_report reads all ranks' dumps and reports
 * the cause.
 *
 * If TUTTI_DUMP is set, the library writes a dump when a communicator fails, and when it warns of a
 * stall (TUTTI_STALL_WARNING).
 */
#ifndef TUTTI_RECORD_H
#ifndef TUTTI_H
#include <tutti/tutti.h> /* includes this file, in the right order */
#else
#define TUTTI_RECORD_H

/*
 * Write the flight recorder of all communicators of this process.
 *
 * path  the dump replaces the file PATH.RANK; RANK is this process's rank in the world. NULL: the
 *       path of TUTTI_DUMP, or stderr if TUTTI_DUMP is not set. If the library has already written
 *       the dump of a failure to the path of TUTTI_DUMP, the new dump is appended to that file,
 *       unless the process has closed all its communicators after the failure
 *
 * Waits for no other rank. It may be called in a signal handler of the program: it takes no lock,
 * allocates no memory, and keeps errno. Besides the kernel's frame of the signal, it needs at most
 * 4 KiB of stack, so SIGSTKSZ suffices (8 KiB). It does not set tutti_last_error(). Any thread.
 *
 * TUTTI_ERR_INVALID_ARGUMENT  there is no communicator, or the path has more than 4000 bytes
 * TUTTI_ERR_SYSTEM            the file cannot be written. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_dump(const char *path);

/*
 * Start a trace of this process: every asynchronous call with its submission, agreement, packing,
 * chunks to other hosts, unpacking and wait, until tutti_trace_stop or tutti_finalize.
 *
 * path  equal on all ranks. While the trace is on, each rank writes PATH.RANK.part. When the trace
 *       stops, each rank appends its events to PATH: Chrome's JSON, which Perfetto opens. The
 *       clocks of several hosts are aligned. Ranks without a common file system write a file for
 *       each host
 *
 * Call this function on all ranks. When the lowest rank of each host starts its trace, it removes
 * an older file PATH, so no rank should stop its trace before all have started. TUTTI_TRACE starts
 * the trace in tutti_init. A killed process leaves PATH.RANK.part, which `tutti_report --trace`
 * converts. Waits for no other rank. Any thread.
 *
 * TUTTI_ERR_INVALID_ARGUMENT  there is no communicator, a trace is on, or the path is too long
 * TUTTI_ERR_SYSTEM            PATH.RANK.part cannot be written. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_trace_start(const char *path);

/*
 * Stop the trace of this process, and append its events to the trace's file. Does nothing if no
 * trace is on. Waits only for other processes that append at the same time. If the file does not
 * grow for a minute during this wait, this rank gives up. Any thread.
 *
 * TUTTI_ERR_SYSTEM: the file cannot be written or locked; PATH.RANK.part still exists. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_trace_stop(void);

#endif
#endif
