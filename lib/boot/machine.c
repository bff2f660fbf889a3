/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opens the arenas of one machine's ranks; sleeps, and wakes other ranks. See machine.h.
 */
#include "boot/machine.h"

#include "base/constants.h"
#include "base/status.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Metadata of a rank's arena, which each rank sends to the other ranks. */
typedef struct {
    uint64_t base, span;
} arena_facts_t;

static tutti_status_t make_tables(tutti__machine_t *m, const tutti__topo_t *topo)
{
    uint32_t mine = topo->machine_of[topo->rank];

    m->rank = calloc(topo->machine_ranks, sizeof(*m->rank));
    m->index_of = calloc(topo->size, sizeof(*m->index_of));
    m->base = calloc(topo->machine_ranks, sizeof(*m->base));
    m->span = calloc(topo->machine_ranks, sizeof(*m->span));
    m->pid = calloc(topo->machine_ranks, sizeof(*m->pid));
    m->doorbell = calloc(topo->machine_ranks, sizeof(*m->doorbell));
    m->page = calloc(topo->machine_ranks, sizeof(*m->page));
    if (!m->rank || !m->index_of || !m->base || !m->span || !m->pid || !m->doorbell || !m->page)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "tables for %u ranks", topo->machine_ranks);
    for (uint32_t r = 0; r < topo->size; r++) {
        m->index_of[r] = -1;
        if (topo->machine_of[r] != mine)
            continue;
        if (r == topo->rank)
            m->me = m->nranks;
        m->index_of[r] = (int32_t)m->nranks;
        m->doorbell[m->nranks] = -1;
        m->rank[m->nranks++] = r;
    }
    return TUTTI_OK;
}

/* Make this rank's arena, with the status page, and this rank's doorbell. */
static tutti_status_t make_own(tutti__machine_t *m)
{
    tutti_status_t status = tutti__arena_create_among(m->nranks, &m->arena);
    void *page;

    if (status != TUTTI_OK)
        return status;
    status = tutti__arena_alloc(m->arena, sizeof(tutti__status_page_t), &page);
    if (status != TUTTI_OK)
        return status;
    ((tutti__status_page_t *)page)->layout = TUTTI__LAYOUT;
    m->doorbell[m->me] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->doorbell[m->me] < 0)
        return tutti__fail_errno("eventfd");
    return TUTTI_OK;
}

/* Map the peers' arenas. fds: two descriptors for each rank, its arena and its doorbell. */
static tutti_status_t map_peers(tutti__machine_t *m, const arena_facts_t *facts, const int *fds)
{
    for (uint32_t i = 0; i < m->nranks; i++) {
        const arena_facts_t *f = &facts[m->rank[i]];
        tutti_status_t status;

        m->span[i] = f->span;
        if (i == m->me) {
            m->base[i] = tutti__arena_base(m->arena);
        } else {
            status = tutti__arena_map(fds[2 * i], f->span, m->pid[i], (char *)(uintptr_t)f->base,
                                      &m->base[i]);
            if (status != TUTTI_OK)
                return status;
        }
        m->page[i] = (tutti__status_page_t *)m->base[i];
        if (m->page[i]->layout != TUTTI__LAYOUT)
            return tutti__fail(TUTTI_ERR_ABI,
                               "rank %u uses layout %x of shared memory, this rank uses %x",
                               m->rank[i], m->page[i]->layout, TUTTI__LAYOUT);
    }
    return TUTTI_OK;
}

/* Exchange arenas and doorbells. Each rank takes part in each collective step, even if the rank has
   failed. */
static tutti_status_t meet_peers(tutti__machine_t *m, tutti__boot_t *boot, tutti_status_t mine)
{
    uint32_t size = tutti__boot_topo(boot)->size;
    arena_facts_t own = { 0 }, *facts = calloc(size, sizeof(*facts));
    int *fds = calloc(2 * (size_t)m->nranks, sizeof(*fds));
    tutti_status_t status = mine;

    if (status == TUTTI_OK && (facts == NULL || fds == NULL))
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "tables for %u ranks", size);
    status = tutti__boot_agree(boot, status);
    if (status != TUTTI_OK)
        goto free_tables;
    own.base = (uint64_t)(uintptr_t)tutti__arena_base(m->arena);
    own.span = tutti__arena_span(m->arena);
    status = tutti__boot_allgather(boot, &own, sizeof(own), facts);
    if (status != TUTTI_OK)
        goto free_tables;
    status = tutti__boot_share_fds(boot, (int[]){ tutti__arena_fd(m->arena), m->doorbell[m->me] },
                                   2, fds, m->pid);
    if (status == TUTTI_OK) {
        for (uint32_t i = 0; i < m->nranks; i++) {
            if (i == m->me)
                close(fds[2 * i + 1]);
            else
                m->doorbell[i] = fds[2 * i + 1];
        }
        status = map_peers(m, facts, fds);
        for (uint32_t i = 0; i < m->nranks; i++)
            close(fds[2 * i]);
    }
    status = tutti__boot_agree(boot, status);

free_tables:
    free(fds);
    free(facts);
    return status;
}

tutti_status_t tutti__machine_open(tutti__boot_t *boot, tutti__machine_t **ret_machine)
{
    tutti__machine_t *m = calloc(1, sizeof(*m));
    tutti_status_t status;

    if (m == NULL) {
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "machine");
        tutti__boot_agree(boot, status);
        return status;
    }
    status = make_tables(m, tutti__boot_topo(boot));
    if (status == TUTTI_OK)
        status = make_own(m);
    status = meet_peers(m, boot, status);
    if (status != TUTTI_OK) {
        tutti__machine_close(m);
        return status;
    }
    *ret_machine = m;
    return TUTTI_OK;
}

void tutti__machine_close(tutti__machine_t *m)
{
    if (m == NULL)
        return;
    for (uint32_t i = 0; i < m->nranks; i++) {
        if (i != m->me && m->base[i] != NULL)
            tutti__arena_unmap(m->base[i], m->span[i], m->pid[i]);
        if (m->doorbell[i] >= 0)
            close(m->doorbell[i]);
    }
    tutti__arena_destroy(m->arena);
    free(m->rank);
    free(m->index_of);
    free(m->base);
    free(m->span);
    free(m->pid);
    free(m->doorbell);
    free(m->page);
    free(m);
}

/* Shared, not private, futexes: several processes map the word. */
static long futex(tutti__word_t *word, int what, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, what, value, timeout, NULL, 0);
}

void tutti__machine_wake(const tutti__machine_t *machine, tutti__word_t *word)
{
    (void)machine;
    futex(word, FUTEX_WAKE, INT32_MAX, NULL);
}

void tutti__machine_ring(const tutti__machine_t *machine, uint32_t index)
{
    const tutti__word_t *sleeping = &machine->page[index]->sleeping;

    if (TUTTI__LIKELY(tutti__load_relaxed(sleeping) == 0))
        return;
    /* Between its submission and its wait, a peer does not poll, so its `sleeping` is 1. Give the
       peer some time: if it begins its wait, no system call is needed. */
    for (int i = 0; i < TUTTI__RING_LOOKS; i++) {
        tutti__pause();
        if (tutti__load_relaxed(sleeping) == 0)
            return;
    }
    tutti__machine_ring_always(machine, index);
}

void tutti__machine_ring_always(const tutti__machine_t *machine, uint32_t index)
{
    uint64_t one = 1;
    int before = errno;

    /* If the counter is full (EAGAIN), the doorbell is already ringing. */
    if (write(machine->doorbell[index], &one, sizeof(one)) < 0)
        errno = before;
}

void tutti__machine_sleep(const tutti__machine_t *machine, uint32_t peer, tutti__word_t *word,
                          uint32_t value, uint32_t timeout_us)
{
    struct timespec timeout = { timeout_us / 1000000, timeout_us % 1000000 * 1000L };
    tutti__status_page_t *page = machine->page[peer];

    atomic_fetch_add(&page->waiters, 1);
    if (tutti__load_acquire(word) == value)
        futex(word, FUTEX_WAIT, value, &timeout);
    atomic_fetch_sub(&page->waiters, 1);
}
