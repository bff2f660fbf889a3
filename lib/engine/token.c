/* SPDX-License-Identifier: BSD-3-Clause */
/* The wait for the token. See token.h. Any thread. */
#include "engine/token.h"

#include "base/constants.h"

#include <sched.h>
#include <unistd.h>

/* `wanted` keeps other threads, such as one that takes steps in a loop, from taking the token
   first. */
void tutti__token_await(tutti__token_t *token)
{
    atomic_fetch_add(&token->wanted, 1);
    for (int tries = 0; atomic_exchange(&token->taken, 1) != 0; tries++)
        if (tries < TUTTI__TOKEN_YIELDS)
            sched_yield();
        else
            usleep(TUTTI__TOKEN_NAP_US);
    tutti__token_note(token);
    atomic_fetch_sub(&token->wanted, 1);
}
