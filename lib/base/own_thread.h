/* SPDX-License-Identifier: BSD-3-Clause */
/* The library's own threads. */
#ifndef TUTTI__BASE_OWN_THREAD_H
#define TUTTI__BASE_OWN_THREAD_H

#include <pthread.h>

/* Returns 1 if the calling thread belongs to the library. The program's callbacks may run on such a
   thread. */
int tutti__thread_is_own(void);
/* Mark the calling thread as the library's. */
void tutti__thread_set_own(void);
/* Start a thread of the library, with all signals blocked: the program's threads handle signals.
   ret_thread: for pthread_join. NULL: the new thread is detached, because it may never end.
   Returns 0 or an errno. */
int tutti__thread_launch(void *(*run)(void *arg), void *arg, pthread_t *ret_thread);

#endif
