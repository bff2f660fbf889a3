# SPDX-License-Identifier: BSD-3-Clause
"""Horovod's interface for TensorFlow 2 over Tutti.

    import tutti.horovod.tensorflow as hvd       instead of    import horovod.tensorflow as hvd

Everything else of a script stays as it is. docs/horovod.md lists the calls and the differences from
Horovod. Tensors pass through host memory.
"""

from .compression import Compression
from .functions import (allgather_object, broadcast_object, broadcast_object_fn,
                        broadcast_variables)
from .gradients import DistributedGradientTape
from .mpi_ops import (Adasum, Average, HorovodInternalError, Max, Min, ProcessSet, Product, Sum,
                      add_process_set, allgather, allreduce, alltoall, barrier, broadcast,
                      broadcast_, ccl_built, cross_rank, cross_size, cuda_built, ddl_built,
                      global_process_set, gloo_built, gloo_enabled, grouped_allgather,
                      grouped_allreduce, grouped_reducescatter, init, is_homogeneous,
                      is_initialized, join, local_rank, local_size, mpi_built, mpi_enabled,
                      mpi_threads_supported, nccl_built, rank, reducescatter, remove_process_set,
                      rocm_built, shutdown, size, start_timeline, stop_timeline)
from .optimizer import DistributedTensorFlowOptimizer as DistributedOptimizer

__all__ = [name for name in dir() if not name.startswith("_")]
