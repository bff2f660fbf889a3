# SPDX-License-Identifier: BSD-3-Clause
"""Parts of arrays: the shape, count and displacement of each rank's part.

Parts lie one after the other along the first axis of an array. Their counts and displacements are
in rows, which are entries of the first axis; the library counts elements.
"""

from typing import Any, Optional, Tuple

import numpy as np

from ._buffers import Buffer, Shape, count_of, new_like, same_kind, writing
from ._world import Communicator


def target_of(call: str, source: Buffer, out: Any, shape: Shape, exact: bool = True) -> \
        Tuple[Buffer, Any]:
    """The buffer of the result, and the object to return. Without `exact`, `out` may have any shape
    of so many elements."""
    if out is None:
        made = new_like(call, source, shape)
        return made, made.owner
    target = writing(call, out)
    same_kind(call, source, target)
    if target.shape != shape and (exact or target.size != count_of(shape)):
        raise ValueError("%s: out has shape %s, but the result has %s"
                         % (call, target.shape, shape))
    return target, out


def rows_of(call: str, source: Buffer) -> Tuple[int, Shape]:
    """The number of rows, and the shape of one."""
    if not source.shape:
        raise ValueError("%s: array has no axis to cut; it needs one at least" % call)
    return source.shape[0], source.shape[1:]


def share_of(call: str, comm: Communicator, source: Buffer) -> Shape:
    """The shape of one of `size` equal parts."""
    rows, row = rows_of(call, source)
    if rows % comm.size:
        raise ValueError("%s: array has %d rows (shape %s), which %d ranks cannot share equally"
                         % (call, rows, source.shape, comm.size))
    return (rows // comm.size,) + row


def joined_shape(comm: Communicator, source: Buffer) -> Shape:
    """The shape of the parts of all ranks, one after another."""
    if not source.shape:
        return (comm.size,)
    return (source.shape[0] * comm.size,) + source.shape[1:]


def per_rank(call: str, name: str, comm: Communicator, values: Any) -> "np.ndarray[Any, Any]":
    """One number of rows for each rank."""
    array = np.asarray(values)
    if array.shape != (comm.size,):
        raise ValueError("%s: %s has shape %s; it must have one number for each of %d ranks"
                         % (call, name, array.shape, comm.size))
    if array.dtype.kind not in "iu" or (array < 0).any():
        raise ValueError("%s: %s is %s; it must be whole numbers, 0 or more" % (call, name, values))
    return array.astype(np.int64)


def in_elements(rows: Optional["np.ndarray[Any, Any]"], row: Shape,
                source: Buffer) -> Tuple[Optional[int], Any]:
    """Counts or displacements as the library takes them: an address, and the array that holds
    them."""
    if rows is None:
        return None, None
    array = rows.astype(np.uintp) * np.uintp(count_of(row) * source.kind.unit)
    return array.__array_interface__["data"][0], array


def displacements(call: str, name: str, comm: Communicator, displs: Any,
                  counts: "np.ndarray[Any, Any]",
                  rows: Optional[int]) -> Tuple[Optional["np.ndarray[Any, Any]"], int]:
    """Displacements in rows, and the number of rows that the parts need. ValueError if they need
    more than `rows` rows, unless `rows` is None."""
    if displs is None:
        places, needed = None, int(counts.sum())
    else:
        places = per_rank(call, name, comm, displs)
        needed = int(np.where(counts > 0, places + counts, 0).max())
    if rows is not None and needed > rows:
        raise ValueError("%s: the parts need %d rows, but array has %d" % (call, needed, rows))
    return places, needed


def rank_of(call: str, name: str, comm: Communicator, rank: int) -> int:
    if not isinstance(rank, (int, np.integer)) or not 0 <= rank < comm.size:
        raise ValueError("%s: %s is %r; ranks are 0 to %d" % (call, name, rank, comm.size - 1))
    return rank


def gathered(call: str, comm: Communicator, source: Buffer, counts: Any, displs: Any,
             out: Any) -> Tuple[Tuple[Any, ...], Any, Tuple[Any, ...]]:
    """For a rank that receives all parts: the further arguments (address, counts, displacements);
    the result; and the objects that must live until the call is done."""
    rows, row = rows_of(call, source)
    parts = per_rank(call, "counts", comm, counts)
    if parts[comm.rank] != rows:
        raise ValueError("%s: array has %d rows, but counts[%d] is %d"
                         % (call, rows, comm.rank, parts[comm.rank]))
    places, needed = displacements(call, "displs", comm, displs, parts, None)
    target, result = receiving(call, source, out, needed, row, places is not None)
    count_address, held_counts = in_elements(parts, row, source)
    place_address, held_places = in_elements(places, row, source)
    return ((target.address, count_address, place_address), result,
            (target.owner, held_counts, held_places))


def receiving(call: str, source: Buffer, out: Any, needed: int, row: Shape, gaps: bool) -> \
        Tuple[Buffer, Any]:
    """The buffer for at least `needed` rows. In a new array, rows that no part fills are 0."""
    if out is None:
        made = new_like(call, source, (needed,) + row)
        if gaps:
            made.owner[...] = np.zeros((), made.owner.dtype)
        return made, made.owner
    target = writing(call, out)
    same_kind(call, source, target)
    if target.size < needed * count_of(row):
        raise ValueError("%s: out has %d elements, but the parts need %d"
                         % (call, target.size, needed * count_of(row)))
    return target, out
