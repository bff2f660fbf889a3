# SPDX-License-Identifier: BSD-3-Clause
"""State that starts equal on all ranks: variables, Python objects."""

from typing import Any, Callable, List, Optional, Sequence

import numpy as np

from ..common import arrays
from ..common.job import job
from ..common.objects import dump, load
from ..common.process_sets import ProcessSet, global_process_set
from .bridge import plain
from .mpi_ops import broadcast_


@plain
def broadcast_variables(variables: Sequence[Any], root_rank: int,
                        process_set: ProcessSet = global_process_set,
                        inplace: bool = False) -> None:
    """Give the variables of all ranks the values of a rank. Works in a tf.function as well.

    variables  of TensorFlow or of Keras, in the same order on all ranks
    root_rank  a rank of the job
    inplace    not used: the values are always assigned
    """
    broadcast_(variables, root_rank, "broadcast_variables", process_set)


def broadcast_object(obj: Any, root_rank: int = 0, session: Any = None,
                     name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """The object of a rank, on all ranks: pickled, by two broadcasts. Not in a tf.function.

    obj      used on root_rank only
    session  not used
    name     needed if several threads broadcast objects at the same time: one for each
    """
    name = "object" if name is None else name
    is_root = job.rank == root_rank
    data = np.frombuffer(dump(obj), np.uint8) if is_root else np.empty(0, np.uint8)
    length = arrays.broadcast([np.array([data.size], np.int64)], root_rank, name + ".sz",
                              process_set, False)[0]
    if not is_root:
        data = np.empty(int(length[0]), np.uint8)
    data = arrays.broadcast([data], root_rank, name + ".t", process_set, False)[0]
    return obj if is_root else load(data.tobytes())


def broadcast_object_fn(root_rank: int = 0, session: Any = None, name: Optional[str] = None,
                        process_set: ProcessSet = global_process_set) -> Callable[[Any], Any]:
    """A function that does broadcast_object(obj) with these parameters."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(obj: Any, session: Any = None, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> List[Any]:
    """The objects of all ranks, in the order of ranks. Not in a tf.function."""
    name = "object" if name is None else name
    gathered, rows = arrays.allgather([np.frombuffer(dump(obj), np.uint8)], name + ".t",
                                      process_set, False)
    parts = np.split(gathered[0], np.cumsum(rows[0])[:-1])
    return [load(part.tobytes()) for part in parts]
