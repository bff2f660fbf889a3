/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A waiting thread does the work that the engines' own threads may not do.
 *
 * Below MPI_THREAD_MULTIPLE an engine's thread does not call MPI, so messages between hosts make
 * progress only when the application's thread steps them. Suppose that this thread waits in a
 * direct call on device memory, and an asynchronous call of some communicator must launch first.
 * Without help, the thread would wait for work that only this thread may do (node/nccl/nccl.h:
 * every rank continues to step all lanes).
 *
 * A thread that waits for a request helps all communicators of the process that need help.
 * Otherwise two ranks that wait for requests of two communicators, in different orders, would wait
 * for each other. A communicator from tutti_comm_connect never uses MPI, so it needs no help, but
 * its waiting threads help the world.
 *
 * A waiting thread helps in each poll. While some engine needs help, the thread sleeps as briefly
 * as for its own messages between hosts. When an engine begins to need help, threads that wait for
 * requests and may help it are woken from their long sleeps. Direct calls are not woken: their
 * sleeps last a 16th of the time waited, at most 50 ms.
 */
#include "engine/steps.h"

#include "base/forked.h"

/* Protects `limited`. Its holder waits for no rank. */
static tutti__mutex_t limited_lock = TUTTI__MUTEX_INIT(TUTTI__LOCK_LIMITED);
/* The world of tutti_init, if its own thread may not drive all transports (MPI); usually NULL.
   Written under the lock. A thread without the lock may only compare this pointer with others. */
static tutti__engine_t *_Atomic limited;

/* Protects `engines` and the links of this list. Its holder waits for nothing. */
static tutti__mutex_t engines_lock = TUTTI__MUTEX_INIT(TUTTI__LOCK_ENGINES);
/* All engines of the process. In a forked child the list also contains the parent's engines. */
static tutti__engine_t *engines;

/* May only threads of the program drive the messages of this world and its groups? The world's
   transport decides this, even for a group on one host: a launch of the world may have to precede
   the group's launches. */
static int is_barred(const tutti__engine_t *world)
{
    return world->far != NULL && !world->far->ops->may_progress(world->far, 1);
}

/* The transport to another host; NULL: there is one host. */
static tutti__xport_t *far_of(const tutti__engine_t *e)
{
    const tutti__shape_t *shape = e->env.shape;

    for (uint32_t r = 0; r < e->size; r++)
        if (shape->host_of[r] != shape->host_of[e->rank])
            return e->env.exec->xport[r];
    return NULL;
}

static void open_world(tutti__engine_t *e)
{
    if (!is_barred(e))
        return;
    tutti__mutex_lock_renewed(&limited_lock);
    if (atomic_load(&limited) == NULL || atomic_load(&limited)->generation != e->generation)
        atomic_store(&limited, e);
    tutti__mutex_unlock(&limited_lock);
}

static void close_world(const tutti__engine_t *e)
{
    if (e->far == NULL)
        return;
    tutti__mutex_lock_renewed(&limited_lock);
    if (atomic_load(&limited) == e)
        atomic_store(&limited, NULL);
    tutti__mutex_unlock(&limited_lock);
}

static void add_engine(tutti__engine_t *e)
{
    tutti__mutex_lock_renewed(&engines_lock);
    e->next_engine = engines;
    engines = e;
    tutti__mutex_unlock(&engines_lock);
}

static void remove_engine(const tutti__engine_t *e)
{
    tutti__engine_t **at = &engines;

    tutti__mutex_lock_renewed(&engines_lock);
    while (*at != NULL && *at != e)
        at = &(*at)->next_engine;
    if (*at != NULL)
        *at = e->next_engine;
    tutti__mutex_unlock(&engines_lock);
}

void tutti__help_open(tutti__engine_t *e)
{
    e->world = e->env.world != NULL ? e->env.world : e;
    e->far = far_of(e);
    tutti__mutex_init(&e->groups_lock, TUTTI__LOCK_PARTS);
    add_engine(e);
    if (e->world == e) {
        open_world(e);
        return;
    }
    tutti__mutex_lock(&e->world->groups_lock);
    e->next_group = e->world->groups;
    e->world->groups = e;
    tutti__mutex_unlock(&e->world->groups_lock);
}

void tutti__help_close(tutti__engine_t *e)
{
    remove_engine(e);
    if (e->world == e)
        close_world(e);
    if (e->world != NULL && e->world != e) {
        tutti__engine_t **at = &e->world->groups;

        tutti__mutex_lock(&e->world->groups_lock);
        while (*at != e)
            at = &(*at)->next_group;
        *at = e->next_group;
        tutti__mutex_unlock(&e->world->groups_lock);
    }
    tutti__mutex_destroy(&e->groups_lock);
}

static int help_world(tutti__engine_t *world)
{
    int moved = tutti__engine_help(world);

    /* If the lock is taken, another thread helps, or adds or removes a group. No holder of the lock
       waits for a rank. */
    if (!tutti__mutex_trylock(&world->groups_lock))
        return moved;
    for (tutti__engine_t *group = world->groups; group != NULL; group = group->next_group)
        moved |= tutti__engine_help(group);
    tutti__mutex_unlock(&world->groups_lock);
    return moved;
}

static int help_limited(const tutti__engine_t *own)
{
    tutti__engine_t *world;
    int moved = 0;

    if (!tutti__mutex_trylock(&limited_lock))
        return 0;
    world = atomic_load(&limited);
    /* In a forked child, `limited` may be the parent's world. */
    if (world != NULL && world != own && world->generation == tutti__fork_generation())
        moved = help_world(world);
    tutti__mutex_unlock(&limited_lock);
    return moved;
}

int tutti__engine_help_others(tutti__engine_t *e)
{
    tutti__engine_t *world = e->world, *other;
    int moved = 0;

    if (TUTTI__UNLIKELY(is_barred(world)))
        moved = help_world(world);
    other = atomic_load_explicit(&limited, memory_order_relaxed);
    if (TUTTI__UNLIKELY(other != NULL && other != world))
        moved |= help_limited(world);
    return moved;
}

/* ---- engines that need help ---- */

/* Do the threads that wait in `e` help `other`, if `other` needs help? */
static int helps(const tutti__engine_t *e, const tutti__engine_t *other)
{
    return other->generation == e->generation &&
           (other->world == e->world || other->world == atomic_load(&limited));
}

/* Does the engine have work that this thread may do, but the engine's own thread may not? */
static int needs_help(const tutti__engine_t *e)
{
    tutti__xport_t *far = e->world->far;

    return e->far != NULL && atomic_load(&e->signals.polling) && is_barred(e->world) &&
           far->ops->may_progress(far, 0);
}

int tutti__help_is_due(const tutti__engine_t *e)
{
    int due = 0;

    if (TUTTI__LIKELY(!is_barred(e->world) && atomic_load(&limited) == NULL))
        return 0;
    tutti__mutex_lock_renewed(&engines_lock);
    for (const tutti__engine_t *other = engines; other != NULL && !due; other = other->next_engine)
        due = helps(e, other) && needs_help(other);
    tutti__mutex_unlock(&engines_lock);
    return due;
}

int tutti__help_wake(tutti__engine_t *e)
{
    if (TUTTI__LIKELY(!is_barred(e->world)))
        return 0;
    tutti__mutex_lock_renewed(&engines_lock);
    for (tutti__engine_t *other = engines; other != NULL; other = other->next_engine)
        if (helps(other, e))
            tutti__pending_wake(&other->pending);
    tutti__mutex_unlock(&engines_lock);
    return 1;
}
