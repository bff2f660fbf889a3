/* SPDX-License-Identifier: BSD-3-Clause */
/* The library's own threads. */
#ifndef TUTTI__BASE_OWN_THREAD_H
#define TUTTI__BASE_OWN_THREAD_H

/* Is the calling thread the library's? The program runs only callbacks on it. */
int tutti__thread_is_own(void);
/* From now on it is. */
void tutti__thread_set_own(void);
/* Start a thread that nobody joins, for a call that may never return. It takes no signals: they
   belong to the program's threads. 0: it could not be started. */
int tutti__thread_detach(void *(*run)(void *arg), void *arg);

#endif
