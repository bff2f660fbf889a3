/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opens the UCX module.
 *
 * When UCX 1.13 is loaded, it installs handlers for SIGSEGV, SIGBUS and other signals. These
 * handlers print a backtrace and end the process. Only environment variables could prevent this,
 * but the environment belongs to the program. So the program's handlers are restored after the
 * load. All signals are blocked during the load, and UCX's threads inherit this mask.
 */
#include "boot/module.h"

#include "base/lock.h"
#include "base/status.h"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>

static tutti__mutex_t lock = TUTTI__MUTEX_INIT(TUTTI__LOCK_MODULE);
/* Protected by `lock`. The opened module; it is never closed. */
static const tutti__ucx_module_t *opened;

typedef struct {
    sigset_t mask;
    struct sigaction action[NSIG];
    int known[NSIG];
} signals_t;

static void save(signals_t *signals)
{
    sigset_t all;

    for (int s = 1; s < NSIG; s++)
        signals->known[s] = sigaction(s, NULL, &signals->action[s]) == 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &signals->mask);
}

/* Restore the handlers that have changed after save(), even if another thread has changed them. */
static void restore(const signals_t *signals)
{
    struct sigaction now;

    for (int s = 1; s < NSIG; s++)
        if (signals->known[s] && sigaction(s, NULL, &now) == 0 &&
            (now.sa_handler != signals->action[s].sa_handler ||
             now.sa_flags != signals->action[s].sa_flags))
            sigaction(s, &signals->action[s], NULL);
    pthread_sigmask(SIG_SETMASK, &signals->mask, NULL);
}

/* Call it with `lock` held. */
static tutti_status_t open_module(const tutti__conf_t *conf)
{
    const tutti__ucx_module_t *module;
    signals_t signals;
    void *handle;

    save(&signals);
    module = tutti__module_probe(conf, "ucx.so", &handle);
    restore(&signals);
    if (module == NULL)
        return TUTTI_ERR_UNSUPPORTED;
    if (strcmp(module->name, "ucx") != 0) {
        dlclose(handle);
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "ucx.so is not the UCX module");
    }
    opened = module;
    return TUTTI_OK;
}

tutti_status_t tutti__module_ucx(const tutti__conf_t *conf, const tutti__ucx_module_t **ret_module)
{
    tutti_status_t status = TUTTI_OK;

    tutti__mutex_lock_renewed(&lock);
    if (opened == NULL)
        status = open_module(conf);
    *ret_module = opened;
    tutti__mutex_unlock(&lock);
    return status;
}
