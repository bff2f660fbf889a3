/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks every size, offset and number that existing programs were compiled with.
 *
 * If a line of this file must change, existing programs break. New fields and numbers get new
 * lines; existing lines stay. The test passes if this file compiles.
 */
#include <tutti/tutti.h>

#include <stddef.h>

#define NUMBER(name, value) _Static_assert((name) == (value), #name " has changed")
#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "size of " #type " has changed")
#define OFFSET(type, field, bytes)                                                                 \
    _Static_assert(offsetof(type, field) == (bytes), #type "." #field " has moved")

SIZE(tutti_options_t, 4 * sizeof(size_t) + 24);
OFFSET(tutti_options_t, size, 0);
OFFSET(tutti_options_t, api_version, sizeof(size_t));
OFFSET(tutti_options_t, reserved, sizeof(size_t) + 4);
OFFSET(tutti_options_t, mpi_comm, sizeof(size_t) + 8);
OFFSET(tutti_options_t, unique_id, 2 * sizeof(size_t) + 8);
OFFSET(tutti_options_t, store, 3 * sizeof(size_t) + 8);
OFFSET(tutti_options_t, rank, 4 * sizeof(size_t) + 8);
OFFSET(tutti_options_t, nranks, 4 * sizeof(size_t) + 12);
OFFSET(tutti_options_t, timeout_ms, 4 * sizeof(size_t) + 16);
OFFSET(tutti_options_t, reserved_end, 4 * sizeof(size_t) + 20);

SIZE(tutti_unique_id_t, 128);
OFFSET(tutti_unique_id_t, bytes, 0);

SIZE(tutti_store_t, 5 * sizeof(size_t));
OFFSET(tutti_store_t, size, 0);
OFFSET(tutti_store_t, context, sizeof(size_t));
OFFSET(tutti_store_t, prefix, 2 * sizeof(size_t));
OFFSET(tutti_store_t, set, 3 * sizeof(size_t));
OFFSET(tutti_store_t, get, 4 * sizeof(size_t));

NUMBER(TUTTI_COLOR_NONE, -1);

SIZE(tutti_async_options_t, 3 * sizeof(size_t) + 32);
OFFSET(tutti_async_options_t, size, 0);
OFFSET(tutti_async_options_t, callback, sizeof(size_t));
OFFSET(tutti_async_options_t, callback_arg, 2 * sizeof(size_t));
OFFSET(tutti_async_options_t, prescale, 3 * sizeof(size_t));
OFFSET(tutti_async_options_t, postscale, 3 * sizeof(size_t) + 8);
OFFSET(tutti_async_options_t, callback_info, 3 * sizeof(size_t) + 16);
OFFSET(tutti_async_options_t, timeout_ms, 3 * sizeof(size_t) + 20);
OFFSET(tutti_async_options_t, wire, 3 * sizeof(size_t) + 24);
OFFSET(tutti_async_options_t, priority, 3 * sizeof(size_t) + 28);

SIZE(tutti_callback_info_t, 4 * sizeof(size_t));
OFFSET(tutti_callback_info_t, size, 0);
OFFSET(tutti_callback_info_t, request, sizeof(size_t));
OFFSET(tutti_callback_info_t, name, 2 * sizeof(size_t));
OFFSET(tutti_callback_info_t, arg, 3 * sizeof(size_t));

NUMBER(TUTTI_STATS_CALLS, 32);
NUMBER(TUTTI_STATS_BUCKETS, 48);
SIZE(tutti_stats_count_t, 16);
OFFSET(tutti_stats_count_t, operations, 0);
OFFSET(tutti_stats_count_t, bytes, 8);
SIZE(tutti_stats_histogram_t, 400);
OFFSET(tutti_stats_histogram_t, count, 0);
OFFSET(tutti_stats_histogram_t, sum, 8);
OFFSET(tutti_stats_histogram_t, buckets, 16);
SIZE(tutti_stats_t, 2784);
OFFSET(tutti_stats_t, size, 0);
OFFSET(tutti_stats_t, age_ns, 8);
OFFSET(tutti_stats_t, times, 16);
OFFSET(tutti_stats_t, nparts, 24);
OFFSET(tutti_stats_t, requests, 32);
OFFSET(tutti_stats_t, failed, 40);
OFFSET(tutti_stats_t, ordered, 48);
OFFSET(tutti_stats_t, buckets, 56);
OFFSET(tutti_stats_t, bucket_tensors, 64);
OFFSET(tutti_stats_t, bucket_bytes, 72);
OFFSET(tutti_stats_t, announcements_sent, 80);
OFFSET(tutti_stats_t, bucket_messages_sent, 88);
OFFSET(tutti_stats_t, other_messages_sent, 96);
OFFSET(tutti_stats_t, plan_steps, 104);
OFFSET(tutti_stats_t, plan_hits, 112);
OFFSET(tutti_stats_t, plan_breaks, 120);
OFFSET(tutti_stats_t, exposed_ns, 128);
OFFSET(tutti_stats_t, in_flight_ns, 136);
OFFSET(tutti_stats_t, hidden_ns, 144);
OFFSET(tutti_stats_t, direct, 152);
OFFSET(tutti_stats_t, async, 664);
OFFSET(tutti_stats_t, direct_ns, 1176);
OFFSET(tutti_stats_t, async_ns, 1576);
OFFSET(tutti_stats_t, direct_bytes, 1976);
OFFSET(tutti_stats_t, async_bytes, 2376);
OFFSET(tutti_stats_t, plan_in_place, 2776);
SIZE(tutti_stats_part_t, 96);
OFFSET(tutti_stats_part_t, size, 0);
OFFSET(tutti_stats_part_t, call, 8);
OFFSET(tutti_stats_part_t, is_async, 12);
OFFSET(tutti_stats_part_t, operations, 16);
OFFSET(tutti_stats_part_t, bytes, 24);
OFFSET(tutti_stats_part_t, ns, 32);
OFFSET(tutti_stats_part_t, algorithm, 40);
OFFSET(tutti_stats_part_t, transport, 80);

SIZE(tutti_call_t, 11 * sizeof(size_t) + 24);
OFFSET(tutti_call_t, size, 0);
OFFSET(tutti_call_t, kind, sizeof(size_t));
OFFSET(tutti_call_t, dtype, sizeof(size_t) + 4);
OFFSET(tutti_call_t, op, sizeof(size_t) + 8);
OFFSET(tutti_call_t, root, sizeof(size_t) + 12);
OFFSET(tutti_call_t, source, sizeof(size_t) + 16);
OFFSET(tutti_call_t, name, sizeof(size_t) + 24);
OFFSET(tutti_call_t, sendbuf, 2 * sizeof(size_t) + 24);
OFFSET(tutti_call_t, recvbuf, 3 * sizeof(size_t) + 24);
OFFSET(tutti_call_t, count, 4 * sizeof(size_t) + 24);
OFFSET(tutti_call_t, recvcount, 5 * sizeof(size_t) + 24);
OFFSET(tutti_call_t, sendcounts, 6 * sizeof(size_t) + 24);
OFFSET(tutti_call_t, senddispls, 7 * sizeof(size_t) + 24);
OFFSET(tutti_call_t, recvcounts, 8 * sizeof(size_t) + 24);
OFFSET(tutti_call_t, recvdispls, 9 * sizeof(size_t) + 24);
OFFSET(tutti_call_t, options, 10 * sizeof(size_t) + 24);

NUMBER(TUTTI_CALL_ALLREDUCE, 1);
NUMBER(TUTTI_CALL_REDUCE, 2);
NUMBER(TUTTI_CALL_BROADCAST, 3);
NUMBER(TUTTI_CALL_REDUCE_SCATTER, 4);
NUMBER(TUTTI_CALL_REDUCE_SCATTERV, 5);
NUMBER(TUTTI_CALL_ALLGATHER, 6);
NUMBER(TUTTI_CALL_ALLGATHERV, 7);
NUMBER(TUTTI_CALL_GATHER, 8);
NUMBER(TUTTI_CALL_GATHERV, 9);
NUMBER(TUTTI_CALL_SCATTER, 10);
NUMBER(TUTTI_CALL_SCATTERV, 11);
NUMBER(TUTTI_CALL_ALLTOALL, 12);
NUMBER(TUTTI_CALL_ALLTOALLV, 13);
NUMBER(TUTTI_CALL_SCAN, 14);
NUMBER(TUTTI_CALL_EXSCAN, 15);
NUMBER(TUTTI_CALL_BARRIER, 16);
NUMBER(TUTTI_CALL_SEND, 17);
NUMBER(TUTTI_CALL_RECV, 18);
NUMBER(TUTTI_CALL_SENDRECV, 19);
NUMBER(TUTTI_CALL_FORCE_INT, 0x7fffffff);

SIZE(tutti_status_t, 4);
NUMBER(TUTTI_OK, 0);
NUMBER(TUTTI_ERR_INVALID_ARGUMENT, 1);
NUMBER(TUTTI_ERR_MISMATCH, 2);
NUMBER(TUTTI_ERR_PEER_LOST, 3);
NUMBER(TUTTI_ERR_TIMEOUT, 4);
NUMBER(TUTTI_ERR_SHUTDOWN, 5);
NUMBER(TUTTI_ERR_UNSUPPORTED, 6);
NUMBER(TUTTI_ERR_NO_MEMORY, 7);
NUMBER(TUTTI_ERR_SYSTEM, 8);
NUMBER(TUTTI_ERR_TRANSPORT, 9);
NUMBER(TUTTI_ERR_ABI, 10);
NUMBER(TUTTI_ERR_INTERNAL, 11);
NUMBER(TUTTI_STATUS_FORCE_INT, 0x7fffffff);

SIZE(tutti_log_level_t, 4);
NUMBER(TUTTI_LOG_ERROR, 1);
NUMBER(TUTTI_LOG_WARN, 2);
NUMBER(TUTTI_LOG_INFO, 3);
NUMBER(TUTTI_LOG_DEBUG, 4);
NUMBER(TUTTI_LOG_TRACE, 5);
NUMBER(TUTTI_LOG_DATA, 6);
NUMBER(TUTTI_LOG_FORCE_INT, 0x7fffffff);

SIZE(tutti_dtype_t, 4);
NUMBER(TUTTI_INT8, 1);
NUMBER(TUTTI_UINT8, 2);
NUMBER(TUTTI_INT16, 3);
NUMBER(TUTTI_UINT16, 4);
NUMBER(TUTTI_INT32, 5);
NUMBER(TUTTI_UINT32, 6);
NUMBER(TUTTI_INT64, 7);
NUMBER(TUTTI_UINT64, 8);
NUMBER(TUTTI_FLOAT16, 9);
NUMBER(TUTTI_BFLOAT16, 10);
NUMBER(TUTTI_FLOAT32, 11);
NUMBER(TUTTI_FLOAT64, 12);
NUMBER(TUTTI_FLOAT8_E4M3, 13);
NUMBER(TUTTI_FLOAT8_E5M2, 14);
NUMBER(TUTTI_BOOL, 15);
NUMBER(TUTTI_FLOAT32_INT32, 16);
NUMBER(TUTTI_FLOAT64_INT64, 17);
NUMBER(TUTTI_INT32_INT32, 18);
NUMBER(TUTTI_INT64_INT64, 19);
NUMBER(TUTTI_DTYPE_FORCE_INT, 0x7fffffff);

SIZE(tutti_op_t, 4);
NUMBER(TUTTI_SUM, 1);
NUMBER(TUTTI_AVG, 2);
NUMBER(TUTTI_MIN, 3);
NUMBER(TUTTI_MAX, 4);
NUMBER(TUTTI_PROD, 5);
NUMBER(TUTTI_BAND, 6);
NUMBER(TUTTI_BOR, 7);
NUMBER(TUTTI_BXOR, 8);
NUMBER(TUTTI_LAND, 9);
NUMBER(TUTTI_LOR, 10);
NUMBER(TUTTI_LXOR, 11);
NUMBER(TUTTI_MINLOC, 12);
NUMBER(TUTTI_MAXLOC, 13);
NUMBER(TUTTI_OP_FORCE_INT, 0x7fffffff);

int main(void)
{
    return 0;
}
