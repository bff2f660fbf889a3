/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered buffers of the pretended NCCL. The real NCCL accesses them through mappings that the
 * ranks make together at the first use. If ranks then use different buffers, NCCL may hang or read
 * wrong data. So either no buffer of a call is registered, or:
 *
 *      all buffers are registered, on all ranks under the same number and at the same offset; in
 *      place, a rank's own part of a buffer counts as the whole buffer
 */
#include "pretend/nccl_inside.h"

#include <stdio.h>

void pretend_refuse_register(int device)
{
    atomic_store(&pretend_options.refuses_register, device + 1);
}

void pretend_lack_register(int lacks)
{
    atomic_store(&pretend_options.lacks_register, lacks);
}

/* Report an error of a function that returns no status. */
static void complain(device_t *device, const char *what)
{
    fprintf(stderr, "pretend NCCL, device %d: %s\n", device->number, what);
    device_count(device, PRETEND_MISREGISTERED);
}

static tutti_status_t check_register(tutti__nccl_t *nccl)
{
    if (atomic_load(&pretend_options.lacks_register))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "nccl_register: this NCCL does not");
    if (atomic_load(&pretend_options.refuses_register) == nccl->device->number + 1)
        return tutti__fail(TUTTI_ERR_TRANSPORT, "nccl_register: refused on device %d",
                           nccl->device->number);
    if (!nccl->stands || nccl->launching != NULL)
        return nccl_fail(nccl, "nccl_register before nccl_poll was OK");
    return TUTTI_OK;
}

tutti_status_t nccl_register(tutti__nccl_t *nccl, void *ptr, size_t bytes,
                             tutti__nccl_reg_t **ret_reg)
{
    tutti_status_t status = check_register(nccl);
    tutti__nccl_reg_t *reg = NULL;

    if (status != TUTTI_OK)
        return status;
    if (!memory_register(ptr, bytes, 1))
        return nccl_fail(nccl, "nccl_register: %zu bytes that are not of one nccl_alloc", bytes);
    pthread_mutex_lock(&nccl->regs_lock);
    for (int i = 0; i < REGISTERED && reg == NULL; i++)
        reg = nccl->regs[i].begin == NULL ? &nccl->regs[i] : NULL;
    if (reg != NULL)
        *reg = (tutti__nccl_reg_t){ ptr, bytes, ++nccl->nregistered };
    pthread_mutex_unlock(&nccl->regs_lock);
    if (reg == NULL) {
        memory_register(ptr, bytes, -1);
        return tutti__fail(TUTTI_ERR_TRANSPORT, "nccl_register: there are %d already", REGISTERED);
    }
    *ret_reg = reg;
    return TUTTI_OK;
}

static void drop(tutti__nccl_t *nccl, tutti__nccl_reg_t *reg)
{
    pthread_mutex_lock(&nccl->regs_lock);
    memory_register(reg->begin, reg->bytes, -1);
    reg->begin = NULL;
    pthread_mutex_unlock(&nccl->regs_lock);
}

void nccl_deregister(tutti__nccl_t *nccl, tutti__nccl_reg_t *reg)
{
    if (reg < nccl->regs || reg >= nccl->regs + REGISTERED || reg->begin == NULL) {
        complain(nccl->device, "nccl_deregister of what is not registered here");
        return;
    }
    if (nccl->launching != NULL || atomic_load(&nccl->in_flight) > 0) {
        complain(nccl->device, "nccl_deregister while it is in use");
        nccl_fail(nccl, "nccl_deregister while it is in use");
    }
    drop(nccl, reg);
}

void register_end(tutti__nccl_t *nccl, int is_aborted)
{
    for (int i = 0; i < REGISTERED; i++) {
        if (nccl->regs[i].begin == NULL)
            continue;
        if (!is_aborted)
            complain(nccl->device, "nccl_close before nccl_deregister");
        drop(nccl, &nccl->regs[i]);
    }
}

/* ---- calls ---- */

at_t register_find(tutti__nccl_t *nccl, const void *ptr)
{
    at_t at = { 0, 0 };

    pthread_mutex_lock(&nccl->regs_lock);
    for (int i = 0; i < REGISTERED; i++) {
        const tutti__nccl_reg_t *reg = &nccl->regs[i];

        if (reg->begin != NULL && (uintptr_t)ptr - (uintptr_t)reg->begin < reg->bytes)
            at = (at_t){ reg->number, (const char *)ptr - reg->begin };
    }
    pthread_mutex_unlock(&nccl->regs_lock);
    return at;
}

void register_describe(tutti__nccl_t *nccl, const tutti__nccl_call_t *call, desc_t *desc)
{
    size_t own = call->count * tutti_dtype_bytes(call->dtype) * nccl->rank;

    desc->has_src = call->kind != TUTTI__NCCL_BROADCAST || nccl->rank == call->root;
    desc->has_dst = call->kind != TUTTI__NCCL_REDUCE || nccl->rank == call->root;
    if (call->count == 0)
        desc->has_src = desc->has_dst = 0;
    if (desc->has_src)
        desc->src = register_find(nccl, call->src);
    if (desc->has_dst)
        desc->dst = register_find(nccl, call->dst);
    if (call->kind == TUTTI__NCCL_ALLGATHER && call->src == (const char *)call->dst + own)
        desc->src = desc->dst;
    if (call->kind == TUTTI__NCCL_REDUCE_SCATTER && call->dst == (const char *)call->src + own)
        desc->dst = desc->src;
}

static int is_registered(const desc_t *d)
{
    return (d->has_src && d->src.number != 0) || (d->has_dst && d->dst.number != 0);
}

static int is_whole(const desc_t *d)
{
    return (!d->has_src || d->src.number != 0) && (!d->has_dst || d->dst.number != 0);
}

static int differs(int both, at_t a, at_t b)
{
    return both && (a.number != b.number || a.offset != b.offset);
}

const char *register_mixes(const desc_t *a, const desc_t *b)
{
    if (!is_registered(a) && !is_registered(b))
        return NULL;
    if (!is_whole(a) || !is_whole(b))
        return "registered and other buffers in one call";
    if (differs(a->has_src && b->has_src, a->src, b->src) ||
        differs(a->has_dst && b->has_dst, a->dst, b->dst))
        return "registered buffers at different places";
    return NULL;
}
