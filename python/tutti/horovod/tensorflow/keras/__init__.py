# SPDX-License-Identifier: BSD-3-Clause
"""Horovod's interface for Keras over Tutti, for Keras 3 with the backend TensorFlow.

    import tutti.horovod.tensorflow.keras as hvd    instead of  import horovod.tensorflow.keras
    import tutti.horovod.keras as hvd               instead of  import horovod.keras
"""

from typing import Any, Dict, Optional

import keras as _keras
import tensorflow as _tf

from .. import mpi_ops as _mpi_ops
from ..compression import Compression
from ..functions import allgather_object, broadcast_object, broadcast_variables
from ..mpi_ops import (Adasum, Average, HorovodInternalError, Max, Min, ProcessSet, Product, Sum,
                       add_process_set, barrier, ccl_built, cross_rank, cross_size, cuda_built,
                       ddl_built, global_process_set, gloo_built, gloo_enabled, init,
                       is_homogeneous, is_initialized, local_rank, local_size, mpi_built,
                       mpi_enabled, mpi_threads_supported, nccl_built, rank, remove_process_set,
                       rocm_built, shutdown, size, start_timeline, stop_timeline)
from ..optimizer import DistributedOptimizer
from . import callbacks


def allreduce(value: Any, name: Optional[str] = None, average: Optional[bool] = None,
              prescale_factor: float = 1.0, postscale_factor: float = 1.0,
              op: Optional[int] = None, compression: Any = Compression.none) -> Any:
    """Reduce a value that TensorFlow can make a tensor of: see tutti.horovod.tensorflow."""
    return _mpi_ops.allreduce(_tf.convert_to_tensor(value), average, "", "", compression, op,
                              prescale_factor, postscale_factor, name)


def allgather(value: Any, name: Optional[str] = None) -> Any:
    """Concatenate the values of all ranks along the first dimension."""
    return _mpi_ops.allgather(_tf.convert_to_tensor(value), name)


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    """The value of a rank, on all ranks."""
    return _mpi_ops.broadcast(_tf.convert_to_tensor(value), root_rank, name)


def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> Any:
    """Reduce a value and return this rank's part of the rows."""
    return _mpi_ops.reducescatter(_tf.convert_to_tensor(value), op=op, name=name)


def load_model(filepath: Any, custom_optimizers: Any = None,
               custom_objects: Optional[Dict[str, Any]] = None,
               compression: Any = Compression.none, legacy_opts: bool = False) -> Any:
    """Load a model, and make its optimizer a DistributedOptimizer that keeps its state.

    custom_optimizers  classes of optimizers that Keras does not know
    custom_objects     other names, as for keras.models.load_model
    legacy_opts        not used: it is for optimizers of tf.keras.optimizers.legacy
    """
    objects = {cls.__name__: cls for cls in custom_optimizers or []}
    objects.update(custom_objects or {})
    model = _keras.models.load_model(filepath, custom_objects=objects)
    if model.optimizer is not None:
        DistributedOptimizer(model.optimizer, compression=compression)
    return model


__all__ = [name for name in dir() if not name.startswith("_")]
