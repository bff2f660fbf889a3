/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tutti_comm_connect: a communicator without a parent, of ranks that meet by a store or unique id.
 *
 * Several independent front ends may be in one process (a c10d backend beside a Horovod module, or
 * beside a program that calls tutti_init). So such a communicator needs no world, does not change
 * tutti_world, and outlives tutti_finalize. In the code it is its own world: comm->world == comm,
 * and it owns the groups that tutti_comm_split makes of it.
 *
 * Any number of threads may call tutti_comm_connect at once, also for communicators with common
 * ranks. Two processes may connect the same communicators in different orders, if each connects in
 * a thread of its own. So no function here holds a lock while it waits.
 *
 * Such a communicator never uses MPI, because its ranks need not be those of an MPI communicator.
 */
#include "api/connected.h"

#include "api/options.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/status.h"
#include "boot/meet.h"
#include "boot/waiting.h"
#include "reduce/reduce.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- the number of these communicators in the process ---- */

/* The number of connected communicators that exist or are being made. The upper half of the word is
   the fork generation, so a forked child counts from 0. No lock protects this word: if another
   thread held the lock at a fork, the lock would stay locked in the child. */
static _Atomic uint64_t users;

static uint32_t users_of(uint64_t word)
{
    return word >> 32 == tutti__fork_generation() ? (uint32_t)word : 0;
}

static uint32_t count_users(void)
{
    return users_of(atomic_load(&users));
}

/* Returns the new number. */
static uint32_t add_users(int by)
{
    uint64_t before = atomic_load(&users), after;

    do {
        after =
            (uint64_t)tutti__fork_generation() << 32 | (uint32_t)(users_of(before) + (uint32_t)by);
    } while (!atomic_compare_exchange_weak(&users, &before, after));
    return (uint32_t)after;
}

/* ---- unique ids ---- */

/* Protects ids_due and tutti__id_end_all, which one thread at a time may call. A forked child
   initialises this mutex again. If fork() waited for this mutex instead, a deadlock would be
   possible: fork() holds the lock of boot/id_server.c, and the thread that ends the ids waits for
   that lock. */
static tutti__mutex_t ids_lock = TUTTI__MUTEX_INIT(TUTTI__LOCK_PARTS);
static int ids_due; /* 1: end the ids when the last connected communicator is freed */

static void end_due(int is_due)
{
    tutti__mutex_lock_renewed(&ids_lock);
    ids_due |= is_due;
    if (ids_due && count_users() == 0) {
        tutti__id_end_all();
        ids_due = 0;
    }
    tutti__mutex_unlock(&ids_lock);
}

void tutti__connect_end_ids(void)
{
    assert(tutti_world() == NULL);
    end_due(1);
}

void tutti__connect_keep_ids(void)
{
    tutti__mutex_lock_renewed(&ids_lock);
    ids_due = 0;
    tutti__mutex_unlock(&ids_lock);
}

static void leave(void)
{
    assert(count_users() > 0);
    if (add_users(-1) == 0)
        end_due(0);
}

/* ---- making a communicator ---- */

/* The first whole character of UTF-8 text from `at` on. */
static const char *whole_character(const char *at)
{
    while ((*at & 0xc0) == 0x80)
        at++;
    return at;
}

/* The name in messages is the store's prefix: the program has given no other name. A long prefix is
   cut at its beginning, because two prefixes differ most likely at their ends. */
static void make_name(const tutti_options_t *options, tutti__comm_name_t *ret_name)
{
    const char *prefix = options->store != NULL ? options->store->prefix : NULL;
    size_t length = prefix != NULL ? strlen(prefix) : 0;

    if (prefix == NULL)
        snprintf(ret_name->text, sizeof(ret_name->text), "the connected communicator");
    else if (length <= TUTTI__COMM_PREFIX)
        snprintf(ret_name->text, sizeof(ret_name->text), "communicator '%s'", prefix);
    else
        snprintf(ret_name->text, sizeof(ret_name->text), "communicator '...%s'",
                 whole_character(prefix + length - TUTTI__COMM_PREFIX));
}

static tutti_status_t meet(const tutti_options_t *options, const tutti__conf_t *conf,
                           tutti__meet_t *ret_meet)
{
    uint32_t rank = (uint32_t)options->rank, size = (uint32_t)options->nranks;

    if (options->unique_id != NULL)
        return tutti__meet_id(options->unique_id, conf, rank, size, ret_meet);
    /* A communicator of one rank needs no store. Frameworks make many of them. */
    if (size == 1) {
        tutti__meet_self(ret_meet);
        return TUTTI_OK;
    }
    return tutti__meet_store(options->store, conf, rank, size, ret_meet);
}

static tutti_status_t open_comm(const tutti_options_t *options, tutti__conf_t *conf,
                                const tutti__comm_name_t *name, tutti__comm_t **ret_comm)
{
    tutti__meet_t way;
    tutti_status_t status;

    tutti__waiting_every(conf->shared.stall_ms);
    status = meet(options, conf, &way);
    explicit_bzero(conf->job_secret, sizeof(conf->job_secret));
    if (status == TUTTI_OK) {
        tutti__log_offer((tutti__log_level_t)conf->log_level, (int)way.rank);
        status = tutti__comm_open_connected(&way, conf, name, ret_comm);
    }
    tutti__waiting_every(0);
    return status;
}

static tutti_status_t make(const tutti_options_t *options, tutti_comm_t **ret_comm)
{
    char text[TUTTI__ERROR_BYTES];
    tutti__comm_name_t name;
    tutti__comm_t *comm = NULL;
    tutti__conf_t conf;
    tutti_status_t status = tutti__conf_read(&conf);

    if (status != TUTTI_OK)
        return status;
    tutti__log_offer((tutti__log_level_t)conf.log_level, -1);
    if (!tutti__reduce_force(conf.isa))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "TUTTI_TEST_ISA=%s is not on this machine",
                           conf.isa);
    tutti__options_apply(options, &conf);
    make_name(options, &name);
    status = open_comm(options, &conf, &name, &comm);
    if (status != TUTTI_OK) {
        snprintf(text, sizeof(text), "%s", tutti_last_error());
        return tutti__fail(status, "%s of %d ranks: %.500s", name.text, options->nranks, text);
    }
    *ret_comm = comm->handle;
    return TUTTI_OK;
}

static tutti_status_t check(const tutti_options_t *options, const void *ret_comm)
{
    tutti_status_t status;

    if (ret_comm == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "ret_comm is NULL");
    if (tutti__engine_in_callback())
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "a callback must not call tutti_comm_connect");
    status = tutti__options_check_ranks(options);
    if (status == TUTTI_OK && !tutti__options_have_place(options))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "tutti_comm_connect needs options->unique_id or options->store%s",
                           options->mpi_comm != NULL ? ": an mpi_comm is for tutti_init" : "");
    if (status == TUTTI_OK && options->store != NULL)
        status = tutti__store_check(options->store);
    return status;
}

tutti_status_t tutti_comm_connect(const tutti_options_t *user, tutti_comm_t **ret_comm)
{
    tutti_options_t options;
    tutti_status_t status = tutti__options_read(user, &options);

    if (status == TUTTI_OK)
        status = check(&options, ret_comm);
    if (status != TUTTI_OK)
        return status;
    add_users(1);
    status = make(&options, ret_comm);
    if (status != TUTTI_OK) {
        char text[TUTTI__ERROR_BYTES];

        snprintf(text, sizeof(text), "%s", tutti_last_error());
        leave();
        return tutti__fail(status, "%s", text);
    }
    return TUTTI_OK;
}

/* ---- the end of a communicator ---- */

void tutti__connect_free(tutti__comm_t *comm)
{
    /* If the communicator is taken already, another thread closes it. */
    if (atomic_exchange(&tutti__comm_state(comm)->is_taken, 1))
        return;
    tutti__comm_close(comm);
    leave();
}
