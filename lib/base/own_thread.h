/* SPDX-License-Identifier: BSD-3-Clause */
/* Is the calling thread one that the library made? The program runs only callbacks on it. */
#ifndef TUTTI__BASE_OWN_THREAD_H
#define TUTTI__BASE_OWN_THREAD_H

int tutti__thread_is_own(void);
/* From now on it is. */
void tutti__thread_set_own(void);

#endif
