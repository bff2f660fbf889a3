/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The log: to stderr, or to a function of the program's.
 *
 * TUTTI_LOG sets a level: messages of this level and of the more severe levels are logged. Until
 * tutti_init or tutti_comm_connect reads TUTTI_LOG, errors and warnings are logged. The list of
 * TUTTI_HELP=1 and the table of TUTTI_STATS=1 are not part of the log; they always go to stderr.
 */
#ifndef TUTTI_LOG_H
#ifndef TUTTI_H
#include <tutti/tutti.h> /* includes this file, in the right order */
#else
#define TUTTI_LOG_H

/*
 * The levels, and how often messages of each level are logged.
 *
 * ERROR, WARN  the user must act
 * INFO         once per job
 * DEBUG        once per communicator, and each failing call
 * TRACE        once per round
 * DATA         once per message
 */
typedef enum {
    TUTTI_LOG_ERROR = 1,
    TUTTI_LOG_WARN = 2,
    TUTTI_LOG_INFO = 3,
    TUTTI_LOG_DEBUG = 4,
    TUTTI_LOG_TRACE = 5,
    TUTTI_LOG_DATA = 6,
    TUTTI_LOG_FORCE_INT = 0x7fffffff
} tutti_log_level_t;

/*
 * A function of the program that receives one message of the log.
 *
 * arg    as given to tutti_log_set_callback
 * level  the message's level
 * text   one line, without level, rank and line end; valid until the callback returns
 *
 * The library calls the function on a separate thread, in the order of the messages, one at a time,
 * and never under a lock of the library. So the function may block and take the program's locks;
 * only tutti_log_set_callback waits for it. If 1024 messages wait, later ones are dropped, and a
 * warning reports their number. The function may call Tutti, except tutti_log_set_callback. The log
 * messages of these calls go to stderr.
 */
typedef void (*tutti_log_callback_t)(void *arg, tutti_log_level_t level, const char *text);

/*
 * Send the process's log to a callback instead of stderr.
 *
 * callback  the function; NULL: stderr again
 * arg       passed to the callback; must be valid until the next call of this function returns
 *
 * Waits until the previous callback has received all its messages and has returned. So do not call
 * this function while you hold a lock that the previous callback takes. Call this function with
 * NULL before the process ends: messages that the callback has not received by then are lost. It
 * may be called before tutti_init; tutti_finalize keeps the callback. A child of fork() logs to
 * stderr until the child sets a callback of its own. Any thread.
 *
 * TUTTI_ERR_INVALID_ARGUMENT  called inside the callback
 * TUTTI_ERR_NO_MEMORY         there is no memory for the callback; nothing has changed
 * TUTTI_ERR_SYSTEM            the callback's thread could not be made; nothing has changed.
 *                             Since 0.1.
 */
TUTTI_API tutti_status_t tutti_log_set_callback(tutti_log_callback_t callback, void *arg);

#endif
#endif
