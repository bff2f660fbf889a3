/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work in streams: copy, pack and sum. Ranges are checked when the work is executed. An invalid
 * range breaks the device at that time, and the next query reports it.
 */
#include "pretend/inside.h"

#include "base/time.h"
#include "reduce/reduce.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    item_t item;
    void *dst;
    const void *src;
    size_t bytes;
} copy_t;

typedef struct {
    item_t item;
    tutti_dtype_t from, to;
    double scale;
    size_t npieces;
    tutti__piece_t pieces[];
} pack_t;

typedef struct {
    item_t item;
    void *dst;
    const void *srcs[TUTTI__DEVICE_SRCS];
    size_t nsrcs, count;
    tutti_dtype_t dtype;
    uint32_t divisor;
} sum_t;

typedef struct {
    item_t item;
    void (*run)(void *args);
    uint64_t args[];
} launch_t;

/* Get the view of a range. If the range is invalid, the view is NULL, and the device keeps the
   error. */
static int see(device_t *device, const char *what, view_use_t use, const void *ptr, size_t bytes,
               char **ret_view)
{
    char words[WORDS_BYTES];

    if (memory_view(device, use, ptr, bytes, ret_view, words) == TUTTI_OK)
        return 1;
    device_trouble(device, "%s: %s", what, words);
    return 0;
}

static void run_copy(item_t *item, tutti__dstream_t *stream)
{
    copy_t *copy = (copy_t *)item;
    device_t *device = stream_device(stream);
    uint64_t begin = tutti__now_ns();
    char *src, *dst;

    if (copy->bytes == 0 || !see(device, "copy from", VIEW_COPY, copy->src, copy->bytes, &src) ||
        !see(device, "copy to", VIEW_COPY, copy->dst, copy->bytes, &dst))
        return;
    memmove(dst, src, copy->bytes);
    stream_pace(begin, copy->bytes, atomic_load(&pretend_options.copy_rate));
}

tutti_status_t work_copy(void *dst, const void *src, size_t bytes, tutti__dstream_t *stream)
{
    tutti_status_t status = stream_find("copy", &stream);
    device_t *device;
    copy_t *item;

    if (status == TUTTI_OK)
        status = stream_item(sizeof(*item), run_copy, &item);
    if (status != TUTTI_OK)
        return status;
    item->dst = dst;
    item->src = src;
    item->bytes = bytes;
    device = stream_device(stream);
    device_count(device, PRETEND_COPIES);
    status = stream_push("copy", stream, item);
    if (status != TUTTI_OK || bytes == 0 ||
        (memory_where(src).kind != TUTTI__MEM_HOST && memory_where(dst).kind != TUTTI__MEM_HOST))
        return status;
    device_count(device, PRETEND_BLOCKING_COPIES);
    if (atomic_load(&device->nccl_in_flight) > 0)
        device_count(device, PRETEND_SYNCS_IN_NCCL);
    stream_drain(stream);
    return TUTTI_OK;
}

static void run_pack(item_t *item, tutti__dstream_t *stream)
{
    pack_t *pack = (pack_t *)item;
    device_t *device = stream_device(stream);

    for (size_t i = 0; i < pack->npieces; i++) {
        const tutti__piece_t *p = &pack->pieces[i];
        char *src, *dst;

        if (!see(device, "pack from", VIEW_KERNEL, p->src, p->count * tutti_dtype_bytes(pack->from),
                 &src) ||
            !see(device, "pack to", VIEW_KERNEL, p->dst, p->count * tutti_dtype_bytes(pack->to),
                 &dst))
            return;
        if (p->count > 0)
            cast(dst, pack->to, src, pack->from, p->count, pack->scale);
    }
}

tutti_status_t work_pack(const tutti__piece_t *pieces, size_t npieces, tutti_dtype_t from,
                         tutti_dtype_t to, double scale, tutti__dstream_t *stream)
{
    tutti_status_t status = stream_find("pack", &stream);
    int copies = from == to && scale == 1;
    int scales = from == to && tutti__reduce_scales(from);
    pack_t *item;

    if (status != TUTTI_OK)
        return status;
    if (!copies && !scales && !(cast_serves(from) && cast_serves(to)))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "pack: from type %d to type %d", (int)from,
                           (int)to);
    status = stream_item(sizeof(*item) + npieces * sizeof(*pieces), run_pack, &item);
    if (status != TUTTI_OK)
        return status;
    item->from = from;
    item->to = to;
    item->scale = scale;
    item->npieces = npieces;
    if (npieces > 0)
        memcpy(item->pieces, pieces, npieces * sizeof(*pieces));
    device_count(stream_device(stream), PRETEND_PACKS);
    return stream_push("pack", stream, item);
}

static void run_sum(item_t *item, tutti__dstream_t *stream)
{
    sum_t *sum = (sum_t *)item;
    device_t *device = stream_device(stream);
    size_t bytes = sum->count * tutti_dtype_bytes(sum->dtype);
    const void *srcs[TUTTI__DEVICE_SRCS];
    char *view;

    for (size_t i = 0; i < sum->nsrcs; i++) {
        if (!see(device, "sum from", VIEW_KERNEL, sum->srcs[i], bytes, &view))
            return;
        srcs[i] = view;
    }
    if (see(device, "sum to", VIEW_KERNEL, sum->dst, bytes, &view) && bytes > 0)
        tutti__reduce_find(sum->dtype, TUTTI_SUM)(view, srcs, sum->nsrcs, sum->count, sum->divisor);
}

tutti_status_t work_sum(void *dst, const void *const *srcs, size_t nsrcs, size_t count,
                        tutti_dtype_t dtype, uint32_t divisor, tutti__dstream_t *stream)
{
    tutti_status_t status = stream_find("sum", &stream);
    int is_integer = dtype >= TUTTI_INT8 && dtype <= TUTTI_UINT64;
    sum_t *item;

    if (status != TUTTI_OK)
        return status;
    if (!is_integer && !cast_serves(dtype))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "sum: type %d", (int)dtype);
    if (nsrcs < 1 || nsrcs > TUTTI__DEVICE_SRCS)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "sum: %zu sources", nsrcs);
    status = stream_item(sizeof(*item), run_sum, &item);
    if (status != TUTTI_OK)
        return status;
    item->dst = dst;
    memcpy(item->srcs, srcs, nsrcs * sizeof(*srcs));
    item->nsrcs = nsrcs;
    item->count = count;
    item->dtype = dtype;
    item->divisor = divisor;
    device_count(stream_device(stream), PRETEND_SUMS);
    return stream_push("sum", stream, item);
}

static void run_launch(item_t *item, tutti__dstream_t *stream)
{
    launch_t *launch = (launch_t *)item;

    if (device_say(stream_device(stream)) == TUTTI_OK)
        launch->run(launch->args);
}

tutti_status_t pretend_launch(tutti__dstream_t *stream, void (*run)(void *args), const void *args,
                              size_t bytes)
{
    tutti_status_t status = stream_find("launch", &stream);
    launch_t *item;

    if (status == TUTTI_OK)
        status = stream_item(sizeof(*item) + bytes, run_launch, &item);
    if (status != TUTTI_OK)
        return status;
    item->run = run;
    if (bytes > 0)
        memcpy(item->args, args, bytes);
    return stream_push("launch", stream, item);
}

void *pretend_view(const void *ptr)
{
    char words[WORDS_BYTES], *view = NULL;
    device_t *device;

    if (device_mine("view", &device) == TUTTI_OK && memory_where(ptr).kind == TUTTI__MEM_DEVICE)
        (void)memory_view(device, VIEW_KERNEL, ptr, 1, &view, words);
    return view;
}
