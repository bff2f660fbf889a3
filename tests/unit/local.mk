# SPDX-License-Identifier: BSD-3-Clause

include %reldir%/base/local.mk
include %reldir%/conf/local.mk
include %reldir%/cuda/local.mk
include %reldir%/topo/local.mk
include %reldir%/mem/local.mk
include %reldir%/reduce/local.mk
include %reldir%/boot/local.mk
include %reldir%/sched/local.mk
include %reldir%/coll/local.mk
include %reldir%/xport/local.mk
include %reldir%/node/local.mk
include %reldir%/exec/local.mk
include %reldir%/engine/local.mk
include %reldir%/api/local.mk
include %reldir%/bench/local.mk
include %reldir%/pretend/local.mk
