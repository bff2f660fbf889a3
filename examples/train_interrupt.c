/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A flag that a signal sets.
 */
#include "train_interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t caught;

static void set_flag(int number)
{
    caught = number;
}

void train_interrupt_watch(void)
{
    static const int numbers[] = { SIGINT, SIGTERM };
    struct sigaction before, action = { .sa_handler = set_flag };

    /* interrupted system calls are restarted: MPI and gnuplot's reader do not expect EINTR */
    action.sa_flags = (int)(SA_RESETHAND | SA_RESTART);
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
}

int train_interrupt_signal(void)
{
    return caught;
}

bool train_interrupt_check(train_error_t *error)
{
    return caught == 0 || train_fail(error, TRAIN_INTERRUPTED);
}
