# SPDX-License-Identifier: BSD-3-Clause

include %reldir%/base/local.mk
include %reldir%/conf/local.mk
include %reldir%/cuda/local.mk
include %reldir%/topo/local.mk
include %reldir%/mem/local.mk
include %reldir%/record/local.mk
include %reldir%/reduce/local.mk
include %reldir%/boot/local.mk
include %reldir%/sched/local.mk
include %reldir%/stats/local.mk
include %reldir%/coll/local.mk
include %reldir%/xport/local.mk
include %reldir%/node/local.mk
include %reldir%/exec/local.mk
include %reldir%/agree/local.mk
include %reldir%/engine/local.mk
include %reldir%/api/local.mk
include %reldir%/bench/local.mk
include %reldir%/pretend/local.mk

# See tests/local.mk.
if HAVE_CMOCKA
asan_quick += \
    %reldir%/base/test_log_callback \
    %reldir%/boot/test_id \
    %reldir%/boot/test_share \
    %reldir%/boot/test_side \
    %reldir%/conf/test_conf \
    %reldir%/conf/test_tuned \
    %reldir%/exec/test_maps \
    %reldir%/mem/test_ranges \
    %reldir%/mem/test_registered \
    %reldir%/mem/test_shared \
    %reldir%/node/test_channel \
    %reldir%/node/test_nccl_ends \
    %reldir%/reduce/test_narrow \
    %reldir%/reduce/test_reduce \
    %reldir%/reduce/test_nontemporal \
    %reldir%/reduce/test_user \
    %reldir%/sched/test_text \
    %reldir%/stats/test_counting \
    %reldir%/stats/test_http
tsan_quick += \
    %reldir%/base/test_log_callback \
    %reldir%/boot/test_meet \
    %reldir%/boot/test_share \
    %reldir%/node/test_nccl \
    %reldir%/node/test_nccl_ends \
    %reldir%/pretend/test_streams
endif
