# SPDX-License-Identifier: BSD-3-Clause
"""Gradients reduced over the ranks: DistributedGradientTape, and functions for the optimizer.

All gradients of a step are reduced in one operation of TensorFlow. It starts an allreduce of each
dense gradient under its own name, gathers the sparse gradients, and waits for all of them. So the
library fuses the allreduces, and has a plan for them after three steps.
"""

from typing import Any, List, NamedTuple, Optional, Sequence

import tensorflow as tf

from ..common import arrays
from ..common.ops import Average, Sum
from ..common.process_sets import ProcessSet, global_process_set
from .bridge import Shape, any_rows, plain, run, shape_of
from .compression import Compression


class Reduction(NamedTuple):
    """How gradients are reduced; the parameters of DistributedGradientTape."""

    compression: Any
    sparse_as_dense: bool
    op: int
    predivide: float
    process_set: ProcessSet
    name: str  # of the calls

    def check(self) -> None:
        """Raise the error of an invalid parameter."""
        arrays.check_op(self.op)
        if self.predivide != 1.0 and self.op != Average:
            raise ValueError("gradient_predivide_factor needs op=Average")


def _reduce_arrays(how: Reduction, names: Sequence[str], sparse_names: Sequence[str],
                   *given: Any) -> List[Any]:
    """Reduce the dense gradients, and gather the sparse ones.

    given  the dense gradients, the values of the sparse ones, the indices of the sparse ones
    """
    dense, sparse = given[:len(names)], given[len(names):]
    finish = arrays.start_allreduces(dense, names, how.op, 1.0 / how.predivide, how.predivide,
                                     how.process_set)
    gathered: List[Any] = []
    if sparse:
        base = "%s of %s" % (how.name, ", ".join(sparse_names))
        gathered = arrays.allgather(sparse, base, how.process_set, True)[0]
    return list(finish()) + gathered


def _reduce(how: Reduction, dense: Sequence[Any], names: Sequence[str], sparse: Sequence[Any],
            sparse_names: Sequence[str]) -> List[Any]:
    """Reduce both kinds of gradients. Returns the dense ones, then the sparse ones."""
    pairs = [how.compression.compress(gradient) for gradient in dense]
    parts = [s.values for s in sparse] + [s.indices for s in sparse]
    shapes: List[Shape] = [shape_of(packed) for packed, _ in pairs]
    results = run(lambda *given: _reduce_arrays(how, names, sparse_names, *given),
                  [packed for packed, _ in pairs] + parts, shapes + [any_rows(p) for p in parts])
    reduced = [how.compression.decompress(t, context) for t, (_, context) in zip(results, pairs)]
    end = len(dense) + len(sparse)
    values, indices = results[len(dense):end], results[end:]
    for slices, value, index in zip(sparse, values, indices):
        if how.op == Average:
            value = value / tf.cast(how.process_set.size(), value.dtype)
        reduced.append(tf.IndexedSlices(value, index, slices.dense_shape))
    return reduced


def reduce_gradients(gradients: Sequence[Any], how: Reduction) -> List[Any]:
    """The gradients reduced over the ranks. None stays None; IndexedSlices are gathered."""
    gradients = list(gradients)
    if not how.process_set.active():
        return gradients
    if how.sparse_as_dense:
        gradients = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g
                     for g in gradients]
    places = [i for i, g in enumerate(gradients) if g is not None]
    sparse = [i for i in places if isinstance(gradients[i], tf.IndexedSlices)]
    dense = [i for i in places if i not in sparse]
    if sparse and how.op not in (Average, Sum):
        raise ValueError("sparse gradients need op=Average or op=Sum, or sparse_as_dense=True")
    if not places:
        return gradients
    # If a program has two models, such as a GAN, the names differ by the number of gradients.
    names = ["%s.%d of %d" % (how.name, i, len(gradients)) for i in range(len(gradients))]
    reduced = _reduce(how, [gradients[i] for i in dense], [names[i] for i in dense],
                      [gradients[i] for i in sparse], ["%d" % i for i in sparse])
    for place, gradient in zip(dense + sparse, reduced):
        gradients[place] = gradient
    return gradients


class _Distributed:
    """What DistributedGradientTape adds to the class of a tape."""

    _tutti_reduction: Reduction

    @plain
    def gradient(self, target: Any, sources: Any, output_gradients: Any = None,
                 use_generic_names: bool = False, **kwargs: Any) -> Any:
        """As gradient() of the tape; the gradients are reduced over the ranks.

        use_generic_names  not used: names never depend on those of variables
        """
        gradients = super().gradient(target, sources, output_gradients,  # type: ignore[misc]
                                     **kwargs)
        flat = tf.nest.flatten(gradients)
        return tf.nest.pack_sequence_as(gradients, reduce_gradients(flat, self._tutti_reduction))


def DistributedGradientTape(gradtape: Any, device_dense: str = "", device_sparse: str = "",
                            compression: Any = Compression.none, sparse_as_dense: bool = False,
                            op: int = Average, gradient_predivide_factor: float = 1.0,
                            num_groups: int = 0, groups: Any = None,
                            process_set: ProcessSet = global_process_set,
                            scale_local_gradients: bool = True) -> Any:
    """A tape whose gradient() returns gradients that are reduced over the ranks. The given tape
    itself is changed and returned.

    compression                of the gradients that are sent: Compression.none, .fp16 or .bf16
    sparse_as_dense            reduce sparse gradients (IndexedSlices) as dense ones
    op                         Average (default), Sum, Min, Max, Product
    gradient_predivide_factor  f, with op=Average: gradients are multiplied by 1/f before the sum
                               and by f/size after it
    process_set                the ranks that reduce; other ranks get their own gradients
    num_groups, groups         not used: all gradients are submitted before the first wait
    others                     not used
    """
    if isinstance(gradtape, _Distributed):
        raise ValueError("this tape is a DistributedGradientTape already")
    how = Reduction(compression, sparse_as_dense, op, gradient_predivide_factor, process_set,
                    "gradient")
    how.check()
    base = type(gradtape)
    gradtape.__class__ = type(base.__name__, (_Distributed, base), {"_tutti_reduction": how})
    return gradtape
