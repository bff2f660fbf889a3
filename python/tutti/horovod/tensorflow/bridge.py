# SPDX-License-Identifier: BSD-3-Clause
"""From tensors to numpy arrays and back, at once or when a graph runs.

A call between the ranks is a function on arrays. In eager mode the function runs at once. In a
tf.function it is one stateful operation (tf.numpy_function). TensorFlow runs the stateful
operations of a tf.function in the program's order, so calls without a name can be matched by their
order. Such calls are numbered when they run, not when they are traced, because ranks may trace a
function again at different times.

An exception in a graph becomes a tf.errors.OpError, whose text contains the exception's text.
"""

from typing import Any, Callable, List, Optional, Sequence

import numpy as np
import tensorflow as tf

# AutoGraph must not translate the functions of this package.
plain = tf.autograph.experimental.do_not_convert

Shape = Optional[Sequence[Optional[int]]]


def as_tensor(value: Any) -> Any:
    """Convert a variable or a value to a tensor. Tensors and IndexedSlices are not changed."""
    return value if isinstance(value, tf.IndexedSlices) else tf.convert_to_tensor(value)


def shape_of(tensor: Any) -> Shape:
    """The shape as far as it is known. None, in a graph: the number of dimensions is unknown."""
    return None if tensor.shape.rank is None else tensor.shape.as_list()


def any_rows(tensor: Any) -> Shape:
    """The shape with an unknown first dimension."""
    shape = shape_of(tensor)
    return shape if not shape else [None] + list(shape[1:])


def run(function: Callable[..., List[Any]], tensors: Sequence[Any], shapes: Sequence[Shape],
        dtypes: Optional[Sequence[Any]] = None) -> List[Any]:
    """Call function(*arrays) on the arrays of the tensors; return its results as tensors.

    shapes  of the results
    dtypes  of the results; None: those of the tensors
    """
    kinds = [tensor.dtype for tensor in tensors] if dtypes is None else list(dtypes)
    if tf.executing_eagerly():
        results = function(*[np.asarray(tensor.numpy()) for tensor in tensors])
        return [tf.convert_to_tensor(array, kind) for array, kind in zip(results, kinds)]

    def in_graph(*arrays: Any) -> List[Any]:
        return function(*[np.asarray(array) for array in arrays])

    results = tf.numpy_function(in_graph, list(tensors), kinds)
    for result, shape in zip(results, shapes):
        if shape is not None:
            result.set_shape(shape)
    return list(results)
