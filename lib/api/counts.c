/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The comparison of a call's arguments between all ranks, before data moves. All ranks find the
 * same two ranks whose arguments differ.
 *
 * On one host: only calls with more arguments than a node operation's meeting compares: arrays of
 * counts, or factors. An allgather of all arguments.
 *
 * Between hosts, where no meeting compares anything: every collective call, also those that the
 * library makes for itself, unless TUTTI_COMPARE=0:
 *
 *      always                        an allreduce of 80 bytes: do all ranks have the same head? If
 *                                    all ranks know all counts, the head contains a hash of them
 *      gatherv, scatterv, alltoallv  an alltoall of one number: each rank sends each peer the count
 *                                    of their part, and compares the received number with the count
 *                                    that it expects; then an allreduce of one number: has any rank
 *                                    found a difference?
 *      only after a difference       an allgather of the heads, then of all counts, to name two
 *                                    ranks
 *
 * Rejected: this allgather before each call between hosts. It is one round shorter than alltoall
 * and allreduce, but each of 1024 ranks receives 17 MB of an alltoallv's counts instead of 8 KiB.
 * On one host the allgather is the only round, and a host has few ranks.
 */
#include "api/direct.h"

#include "base/describe.h"
#include "base/hash.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* A rank's numbers: */
enum {
    WHAT,     /* kind, type, memory, operation, root; or OWN and a tag */
    COUNT,    /* 0 if the counts differ between ranks */
    PRESCALE, /* as bits */
    POSTSCALE,
    GIVES, /* counts: [size] to each rank, then [size] from each; or [size] recvcounts; or none */
    /* A head, which must be equal on all ranks: */
    HASH = GIVES, /* of recvcounts; 0 without recvcounts */
    HEAD
};

/* A call of the library's own; above all kinds. */
#define OWN 0x80u
/* A call on device memory; above all types. */
#define ON_DEVICE 0x8000u

/* Does each rank pass the counts of all ranks? */
static int has_common_counts(tutti_call_kind_t kind)
{
    return kind == TUTTI_CALL_ALLGATHERV || kind == TUTTI_CALL_REDUCE_SCATTERV;
}

static size_t words_of(const tutti__call_t *call, uint32_t size)
{
    if (tutti__call_by_pair(call->kind))
        return GIVES + 2 * (size_t)size;
    return GIVES + (has_common_counts(call->kind) ? size : 0);
}

int tutti__counts_checked(const tutti__comm_t *comm)
{
    return comm->conf.shared.compare && comm->shape.nhosts > 1;
}

int tutti__counts_needed(const tutti__comm_t *comm, const tutti__call_t *call)
{
    if (comm->shape.size == 1)
        return 0;
    if (comm->shape.nhosts > 1)
        return comm->conf.shared.compare && call->kind < TUTTI_CALL_SEND;
    /* A meeting does not compare factors, and prescale changes recvbuf before the meeting. */
    return tutti__call_by_pair(call->kind) || has_common_counts(call->kind) ||
           ((call->prescale != 1 || call->postscale != 1) && tutti__call_reduces(call->kind));
}

static uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static void copy_counts(uint64_t *to, const size_t *counts, uint32_t size)
{
    for (uint32_t r = 0; r < size; r++)
        to[r] = counts[r];
}

/* Does the call have one count, equal on all ranks? */
static int has_one_count(tutti_call_kind_t kind)
{
    return !tutti__call_by_pair(kind) && !has_common_counts(kind);
}

static void tell_what(const tutti__call_t *call, uint64_t *words)
{
    words[WHAT] = (uint64_t)call->kind | (uint64_t)call->dtype << 8 |
                  (tutti__comm_device_tag(call) != 0 ? ON_DEVICE : 0) |
                  (tutti__call_reduces(call->kind) ? (uint64_t)call->op << 16 : 0) |
                  (uint64_t)call->root << 32;
    words[COUNT] = has_one_count(call->kind) ? call->count : 0;
    words[PRESCALE] = bits_of(call->prescale);
    words[POSTSCALE] = bits_of(call->postscale);
}

static uint64_t hash_of_counts(const tutti__call_t *call, uint32_t size)
{
    return has_common_counts(call->kind)
               ? tutti__hash(call->recvcounts, size * sizeof(*call->recvcounts))
               : 0;
}

static void tell_counts(const tutti__call_t *call, uint32_t rank, uint32_t size, uint64_t *gives)
{
    int by_pair = tutti__call_by_pair(call->kind), is_root = rank == call->root;
    uint64_t *expects = gives + size;

    memset(gives, 0, (words_of(call, size) - GIVES) * sizeof(*gives));
    if (call->kind == TUTTI_CALL_GATHERV) {
        gives[call->root] = call->count;
        if (is_root)
            copy_counts(expects, call->recvcounts, size);
    } else if (call->kind == TUTTI_CALL_SCATTERV) {
        expects[call->root] = call->count;
        if (is_root)
            copy_counts(gives, call->sendcounts, size);
    } else if (has_common_counts(call->kind)) {
        copy_counts(gives, call->recvcounts, size);
    } else if (by_pair) {
        copy_counts(gives, call->sendcounts, size);
        copy_counts(expects, call->recvcounts, size);
    }
}

/* ---- comparing ---- */

static const char *name_of(uint32_t what)
{
    if (what == (OWN | TUTTI__TAG_MEM_ALLOC))
        return "a tutti_mem_alloc";
    if (what == (OWN | TUTTI__TAG_SPLIT))
        return "a tutti_comm_split or tutti_comm_create";
    return tutti__call_name((tutti_call_kind_t)what);
}

static tutti__description_t describe(const uint64_t *words)
{
    uint32_t what = words[WHAT] & 0xff;
    tutti_call_kind_t kind = (tutti_call_kind_t)what;
    tutti__description_t call = {
        .name = name_of(what),
        .has = words[WHAT] & ON_DEVICE ? TUTTI__HAS_DEVICE : 0,
        .dtype = (tutti_dtype_t)(words[WHAT] >> 8 & 0x7f),
        .op = (tutti_op_t)(words[WHAT] >> 16 & 0xffff),
        .root = (uint32_t)(words[WHAT] >> 32),
        .count = words[COUNT],
    };

    if (what & OWN || kind == TUTTI_CALL_BARRIER)
        return call;
    memcpy(&call.prescale, words + PRESCALE, sizeof(call.prescale));
    memcpy(&call.postscale, words + POSTSCALE, sizeof(call.postscale));
    call.has |= TUTTI__HAS_TYPE | TUTTI__HAS_SCALES;
    call.has |= has_one_count(kind) ? TUTTI__HAS_COUNT : 0;
    call.has |= tutti__call_reduces(kind) ? TUTTI__HAS_OP : 0;
    call.has |= tutti__call_has_root(kind) ? TUTTI__HAS_ROOT : 0;
    return call;
}

static tutti_status_t compare_calls(const uint64_t *all, size_t nwords, uint32_t size)
{
    for (uint32_t r = 1; r < size; r++) {
        const uint64_t *other = all + r * nwords;
        tutti__description_t a = describe(all), b = describe(other);
        char text[TUTTI__ERROR_BYTES];

        if (memcmp(all, other, GIVES * sizeof(*all)) == 0)
            continue;
        tutti__describe_both(text, sizeof(text), 0, &a, r, &b);
        return tutti__fail(TUTTI_ERR_MISMATCH, "%s", text);
    }
    return TUTTI_OK;
}

static tutti_status_t compare_common(const uint64_t *all, size_t nwords, uint32_t size)
{
    for (uint32_t r = 1; r < size; r++)
        for (uint32_t s = 0; s < size; s++) {
            uint64_t a = all[GIVES + s], b = all[r * nwords + GIVES + s];

            if (a != b)
                return tutti__fail(TUTTI_ERR_MISMATCH,
                                   "recvcounts[%u] is %llu on rank 0 and %llu on rank %u", s,
                                   (unsigned long long)a, (unsigned long long)b, r);
        }
    return TUTTI_OK;
}

static tutti_status_t compare_counts(const uint64_t *all, size_t nwords, uint32_t size)
{
    for (uint32_t r = 0; r < size; r++) {
        for (uint32_t s = 0; s < size; s++) {
            uint64_t gives = all[r * nwords + GIVES + s];
            uint64_t expects = all[s * nwords + GIVES + size + r];

            if (gives != expects)
                return tutti__fail(TUTTI_ERR_MISMATCH,
                                   "rank %u gives rank %u %llu elements, which expects %llu", r, s,
                                   (unsigned long long)gives, (unsigned long long)expects);
        }
    }
    return TUTTI_OK;
}

/* ---- the exchange ---- */

static tutti_status_t need_counts(tutti__comm_t *comm, size_t bytes)
{
    uint64_t *counts;

    if (comm->counts_bytes >= bytes)
        return TUTTI_OK;
    counts = realloc(comm->counts, bytes);
    if (counts == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu bytes for counts", bytes);
    comm->counts = counts;
    comm->counts_bytes = bytes;
    return TUTTI_OK;
}

/* A collective of this file, with comm->counts as its input. */
static tutti_status_t run_own(tutti__comm_t *comm, tutti__collective_t collective, uint64_t *out,
                              size_t nwords)
{
    tutti__want_t want = { collective, nwords * sizeof(uint64_t), 0, 0 };
    tutti__exec_call_t exec = {
        .in = comm->counts,
        .out = out,
        .count = nwords,
        .dtype = TUTTI_UINT64,
        .op = TUTTI_MAX,
        .tag = TUTTI__TAG_COUNTS,
        .signature = (uint32_t)((uint32_t)TUTTI__TAG_COUNTS << 24 ^ (uint32_t)nwords),
    };
    const tutti__sched_t *sched;
    tutti_status_t status = tutti__comm_find(comm, &want, exec.in == out, &sched);

    return status == TUTTI_OK ? tutti__comm_run(comm, sched, &exec, 1) : status;
}

/* Do all ranks have this head? One allreduce gives the maximum of each word and of its complement;
   the latter is the complement of the minimum. The heads are equal if maximum and minimum are. */
static tutti_status_t compare_heads(tutti__comm_t *comm, const uint64_t *head, int *ret_alike)
{
    uint64_t *words;
    tutti_status_t status = need_counts(comm, 2 * HEAD * sizeof(*words));

    if (status != TUTTI_OK)
        return tutti__comm_end_badly(comm, status);
    words = comm->counts;
    for (int i = 0; i < HEAD; i++) {
        words[i] = head[i];
        words[HEAD + i] = ~head[i];
    }
    status = run_own(comm, TUTTI__ALLREDUCE, words, 2 * HEAD);
    *ret_alike = 1;
    for (int i = 0; i < HEAD; i++)
        *ret_alike &= words[i] == ~words[HEAD + i];
    return status;
}

/* Does every rank receive from each rank the count that it expects? */
static tutti_status_t compare_parts(tutti__comm_t *comm, const tutti__call_t *call, int *ret_alike)
{
    uint32_t size = comm->topo->size;
    size_t bytes = size * sizeof(uint64_t);
    tutti_status_t status = need_counts(comm, 3 * bytes);
    uint64_t *gives, *expects, *gets;

    if (status != TUTTI_OK)
        return tutti__comm_end_badly(comm, status);
    gives = comm->counts;
    expects = gives + size;
    gets = expects + size;
    tell_counts(call, comm->topo->rank, size, gives);
    status = run_own(comm, TUTTI__ALLTOALL, gets, size);
    if (status != TUTTI_OK)
        return status;
    comm->counts[0] = memcmp(gets, expects, bytes) != 0;
    status = run_own(comm, TUTTI__ALLREDUCE, comm->counts, 1);
    *ret_alike = comm->counts[0] == 0;
    return status;
}

/* Gather each rank's head and its call's counts in comm->counts, and compare the heads. call: NULL
   gathers only the heads. */
static tutti_status_t exchange(tutti__comm_t *comm, const uint64_t *head, const tutti__call_t *call)
{
    uint32_t rank = comm->topo->rank, size = comm->topo->size;
    size_t nwords = call != NULL ? words_of(call, size) : GIVES;
    tutti_status_t status = need_counts(comm, size * nwords * sizeof(uint64_t));
    uint64_t *mine;

    if (status != TUTTI_OK)
        return tutti__comm_end_badly(comm, status);
    mine = comm->counts + rank * nwords;
    memcpy(mine, head, GIVES * sizeof(*head));
    if (nwords > GIVES)
        tell_counts(call, rank, size, mine + GIVES);
    status = run_own(comm, TUTTI__ALLGATHER, comm->counts, size * nwords);
    return status == TUTTI_OK ? compare_calls(comm->counts, nwords, size) : status;
}

/* Gather and compare all ranks' numbers. */
static tutti_status_t compare_all(tutti__comm_t *comm, const uint64_t *head,
                                  const tutti__call_t *call)
{
    uint32_t size = comm->topo->size;
    size_t nwords = words_of(call, size);
    tutti_status_t status = exchange(comm, head, call);

    if (status == TUTTI_OK && has_common_counts(call->kind))
        status = compare_common(comm->counts, nwords, size);
    if (status == TUTTI_OK && tutti__call_by_pair(call->kind))
        status = compare_counts(comm->counts, nwords, size);
    return status;
}

/* Between hosts. The heads are compared first: ranks with different calls would otherwise exchange
   different amounts of counts, which only a meeting would detect. *ret_alike: 0 if the calls are
   the same, and only their hashes differ. */
static tutti_status_t heads_agree(tutti__comm_t *comm, const uint64_t *head, int *ret_alike)
{
    tutti_status_t status = compare_heads(comm, head, ret_alike);

    return status != TUTTI_OK || *ret_alike ? status : exchange(comm, head, NULL);
}

tutti_status_t tutti__counts_agree(tutti__comm_t *comm, const tutti__call_t *call)
{
    tutti_status_t status;
    uint64_t head[HEAD];
    int alike;

    tell_what(call, head);
    if (comm->shape.nhosts == 1)
        return compare_all(comm, head, call);
    head[HASH] = hash_of_counts(call, comm->topo->size);
    status = heads_agree(comm, head, &alike);
    if (status == TUTTI_OK && tutti__call_by_pair(call->kind))
        status = compare_parts(comm, call, &alike);
    return status != TUTTI_OK || alike ? status : compare_all(comm, head, call);
}

tutti_status_t tutti__counts_agree_own(tutti__comm_t *comm, uint32_t tag, size_t count)
{
    const uint64_t head[HEAD] = { [WHAT] = OWN | tag, [COUNT] = count };
    int alike;

    return heads_agree(comm, head, &alike);
}
