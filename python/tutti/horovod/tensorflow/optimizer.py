# SPDX-License-Identifier: BSD-3-Clause
"""DistributedOptimizer: a Keras optimizer whose step uses gradients reduced over the ranks."""

from typing import Any, List, Optional, Sequence

import keras
import tensorflow as tf

from ..common.ops import Average
from ..common.process_sets import ProcessSet, global_process_set
from .bridge import plain
from .compression import Compression
from .gradients import Reduction, reduce_gradients


class _Distributed:
    """What DistributedOptimizer adds to the class of an optimizer. The parameters belong to the
    class, so that from_config() makes another such optimizer."""

    _tutti_reduction: Reduction
    _tutti_passes: int
    _tutti_average_passes: bool
    _tutti_sums: Optional[List[Any]] = None  # of each gradient, over passes
    _tutti_counter: Any = None

    @plain
    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        """As apply() of the optimizer; the gradients are reduced over the ranks before."""
        grads = list(grads)
        if self._tutti_passes > 1:
            return self._tutti_accumulate(grads, trainable_variables)
        return self._tutti_step(grads, trainable_variables)

    def _tutti_step(self, grads: Sequence[Any], trainable_variables: Any) -> Any:
        reduced = reduce_gradients(grads, self._tutti_reduction)
        return super().apply(reduced, trainable_variables)  # type: ignore[misc]

    def _tutti_prepare(self, grads: Sequence[Any], trainable_variables: Any) -> None:
        """Make the variables that accumulate."""
        if self._tutti_sums is not None:
            return
        with tf.init_scope():
            if not self.built and trainable_variables is not None:  # type: ignore[attr-defined]
                self.build(list(trainable_variables))  # type: ignore[attr-defined]
            # Not tracked by Keras: they are not saved.
            object.__setattr__(self, "_tutti_counter", tf.Variable(0, dtype=tf.int64))
            object.__setattr__(self, "_tutti_sums", [
                None if g is None else tf.Variable(tf.zeros(g.shape, g.dtype)) for g in grads])

    def _tutti_accumulate(self, grads: List[Any], trainable_variables: Any) -> None:
        """Add the gradients to those of earlier passes; after the last pass make the step."""
        grads = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in grads]
        self._tutti_prepare(grads, trainable_variables)
        sums = self._tutti_sums or []
        for total, gradient in zip(sums, grads):
            if total is not None:
                total.assign_add(gradient)
        share = 1.0 / self._tutti_passes if self._tutti_average_passes else 1.0

        def step() -> Any:
            self._tutti_step([None if s is None else s * tf.cast(share, s.dtype) for s in sums],
                             trainable_variables)
            for total in sums:
                if total is not None:
                    total.assign(tf.zeros_like(total))
            return tf.constant(True)

        def no_step() -> Any:
            # As in Horovod: a learning rate schedule counts passes. The property `iterations` is no
            # variable if Keras accumulates gradients as well.
            getattr(self, "inner_optimizer", self)._iterations.assign_add(1)
            return tf.constant(False)

        self._tutti_counter.assign_add(1)
        tf.cond(self._tutti_counter % self._tutti_passes == 0, step, no_step)


def DistributedOptimizer(optimizer: Any, name: Optional[str] = None, device_dense: str = "",
                         device_sparse: str = "", compression: Any = Compression.none,
                         sparse_as_dense: bool = False, gradient_predivide_factor: float = 1.0,
                         op: int = Average, backward_passes_per_step: int = 1,
                         average_aggregated_gradients: bool = False, num_groups: int = 0,
                         groups: Any = None,
                         process_set: ProcessSet = global_process_set,
                         scale_local_gradients: bool = True) -> Any:
    """An optimizer that reduces gradients over the ranks before its step. The given optimizer itself
    is changed and returned. It keeps its state, and gets a class derived from its own class. The
    order of the parameters is that of horovod.keras.

    optimizer                     of Keras 3, with the backend TensorFlow
    name                          the beginning of the names of the calls; equal on all ranks
    backward_passes_per_step      calls over which gradients accumulate before they are reduced;
                                  each of these calls counts in optimizer.iterations
    average_aggregated_gradients  reduce the average of these calls' gradients instead of their sum
    others                        as in DistributedGradientTape

    On a machine with a GPU Keras compiles the step with XLA, which cannot call Python: pass
    jit_compile=False to compile(). For mixed precision pass a LossScaleOptimizer to this function,
    so that all ranks detect the same overflows.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError("an optimizer of Keras %s is needed, not %r"
                         % (keras.__version__, type(optimizer).__name__))
    if keras.backend.backend() != "tensorflow":
        raise ValueError("Keras runs over %s; only TensorFlow is supported"
                         % keras.backend.backend())
    if isinstance(optimizer, _Distributed):
        raise ValueError("this optimizer is a DistributedOptimizer already")
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    how = Reduction(compression, sparse_as_dense, op, gradient_predivide_factor, process_set,
                    "gradient" if name is None else name)
    how.check()
    base = type(optimizer)
    # Saved models contain the name of the class: Keras must be able to load it.
    optimizer.__class__ = type(base.__name__, (_Distributed, base), {
        "__module__": base.__module__, "_tutti_reduction": how,
        "_tutti_passes": backward_passes_per_step,
        "_tutti_average_passes": average_aggregated_gradients})
    return optimizer


def DistributedTensorFlowOptimizer(
        optimizer: Any, name: Optional[str] = None, use_locking: bool = False,
        device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none,
        sparse_as_dense: bool = False, backward_passes_per_step: int = 1, op: int = Average,
        gradient_predivide_factor: float = 1.0, average_aggregated_gradients: bool = False,
        num_groups: int = 0, groups: Any = None, process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True) -> Any:
    """DistributedOptimizer with the order of parameters of horovod.tensorflow.

    use_locking  not used: it is for optimizers of tf.compat.v1, which are not supported
    """
    return DistributedOptimizer(optimizer, name, device_dense, device_sparse, compression,
                                sparse_as_dense, gradient_predivide_factor, op,
                                backward_passes_per_step, average_aggregated_gradients, num_groups,
                                groups, process_set, scale_local_gradients)
