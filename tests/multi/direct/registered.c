/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct collectives on registered memory of the program, in place and out of place. Some ranks
 * have private memory, or all ranks have registered memory. Also on the same memory after it was
 * unregistered.
 */
#include "multi/direct/coll_case.h"

#include "mem/shared.h"

#include <sys/mman.h>
#include <unistd.h>

static void all_kinds(area_t *area)
{
    size_t several = case_several_chunks(area->self, 4);
    unsigned turn = 0;

    for (size_t k = 0; k < CASE_KINDS; k++)
        for (int i = 0; i < PLACES * MEMORIES; i++, turn++)
            case_turn(area, case_kinds[k], TUTTI_FLOAT32, TUTTI_SUM, turn % 2 ? several : 9, turn);
}

static void registered(rank_t *self)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes;
    area_t area;
    char *shared, *ptr;
    uint64_t offset;

    area_open(&area, self, AREA_BYTES);
    shared = area.shared;
    bytes = (2 * area.bytes + 64 + page - 1) / page * page;
    ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(ptr != MAP_FAILED);
    CHECK_OK(tutti_mem_register(self->comm, ptr, bytes));
    CHECK(tutti__arena_offset(self->inside->machine->arena, ptr, bytes, &offset));
    area.shared = ptr;
    all_kinds(&area);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_mem_unregister(ptr));
    all_kinds(&area);
    area.shared = shared;
    munmap(ptr, bytes);
    area_close(&area);
}

int main(void)
{
    int failures = 0, threads = !ranks_can_fork();

    failures += run_small(registered, 2, NULL, threads);
    failures += run_small(registered, 3, NULL, threads);
    failures += run_small(registered, 4, "aabb", threads);
    return failures != 0;
}
