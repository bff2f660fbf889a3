/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * If a rank forks a child, the child closes its copies of the rank's sockets.
 *
 * A stream ends only when its last descriptor is closed, in any process. If a child of a dead rank
 * (a data loader, say) kept a socket to another host open, that host would not detect the death. On
 * the same machine the pidfds would still show the death. If a child calls exec, the kernel closes
 * the sockets.
 */
#include "boot/boot_inside.h"

#include <pthread.h>
#include <unistd.h>

/* Protects the list, and `door` of each boot. fork() holds the lock while it copies the process;
   other code holds it for a few instructions, and takes no other lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tutti__boot_t *opened;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

/* Free nothing: at the fork, other threads of the parent may have been using the memory. */
static void in_child(void)
{
    for (tutti__boot_t *boot = opened; boot != NULL; boot = boot->next) {
        tutti__side_let_go(&boot->side);
        if (boot->door >= 0)
            close(boot->door);
        boot->door = -1;
    }
    opened = NULL;
    pthread_mutex_unlock(&lock);
}

static void register_handlers(void)
{
    pthread_atfork(before, in_parent, in_child);
}

void tutti__boot_remember(tutti__boot_t *boot)
{
    pthread_once(&once, register_handlers);
    pthread_mutex_lock(&lock);
    boot->next = opened;
    opened = boot;
    pthread_mutex_unlock(&lock);
}

void tutti__boot_forget(tutti__boot_t *boot)
{
    pthread_mutex_lock(&lock);
    for (tutti__boot_t **at = &opened; *at != NULL; at = &(*at)->next) {
        if (*at == boot) {
            *at = boot->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

void tutti__boot_shut_door(tutti__boot_t *boot)
{
    pthread_mutex_lock(&lock);
    if (boot->door >= 0)
        close(boot->door);
    boot->door = -1;
    pthread_mutex_unlock(&lock);
}
