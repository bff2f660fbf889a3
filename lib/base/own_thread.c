/* SPDX-License-Identifier: BSD-3-Clause */
/* See own_thread.h. */
#include "base/own_thread.h"

#include <signal.h>

static _Thread_local int is_own;

int tutti__thread_is_own(void)
{
    return is_own;
}

void tutti__thread_set_own(void)
{
    is_own = 1;
}

int tutti__thread_launch(void *(*run)(void *arg), void *arg, pthread_t *ret_thread)
{
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_t thread;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attr);
    if (ret_thread == NULL)
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    error = pthread_create(ret_thread != NULL ? ret_thread : &thread, &attr, run, arg);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
