# SPDX-License-Identifier: BSD-3-Clause
"""Shapes as the ranks exchange them before an allgather or alltoall whose first dimensions differ.

A shape is SHAPE_WORDS numbers: the type, the number of dimensions, the dimensions.
"""

from typing import List, Optional, Sequence

from ... import _lib
from ..._lib import lib
from .exceptions import HorovodInternalError

MAX_DIMS = 10
SHAPE_WORDS = 2 + MAX_DIMS


def check_dims(dims: int, what: str) -> None:
    """Raise ValueError if a tensor of `dims` dimensions cannot be gathered along the first one."""
    if not 0 < dims <= MAX_DIMS:
        raise ValueError("%s needs a tensor of 1 to %d dimensions, not %d" % (what, MAX_DIMS, dims))


def shape_words(code: int, shape: Sequence[int]) -> List[int]:
    """A tensor's type, which is the library's number, and its shape."""
    return [code, len(shape)] + list(shape) + [0] * (MAX_DIMS - len(shape))


def _text(words: Sequence[int]) -> str:
    name = lib.tutti_dtype_name(words[0]).decode()
    return "shape %s of %s" % (list(words[2:2 + words[1]]), name)


def check_fit(name: str, mine: int, words: Sequence[Sequence[int]]) -> None:
    """Raise HorovodInternalError if the tensors differ in more than the first dimension.

    mine   this rank, for the error
    words  shape_words() of each rank's tensor
    """
    first = words[0]
    for rank, other in enumerate(words):
        if other[:2] != first[:2] or other[3:] != first[3:]:
            raise HorovodInternalError(
                "tensor '%s': rank 0 has %s, rank %d has %s; only the first dimension may differ "
                "(this is rank %d)" % (name, _text(first), rank, _text(other), mine),
                status=_lib.MISMATCH)


def read_splits(rows: int, splits: Optional[Sequence[int]], ranks: int) -> List[int]:
    """The number of rows for each rank, in an alltoall of a tensor of `rows` rows. splits None:
    equal parts. Rows behind the sum of splits are not sent."""
    if splits is None:
        if rows % ranks != 0:
            raise ValueError("alltoall without splits: the first dimension, %d, cannot be divided "
                             "by %d ranks" % (rows, ranks))
        return [rows // ranks] * ranks
    result = [int(split) for split in splits]
    if len(result) != ranks:
        raise ValueError("splits has %d entries for %d ranks" % (len(result), ranks))
    if any(split < 0 for split in result) or sum(result) > rows:
        raise ValueError("splits %s do not fit a first dimension of %d" % (result, rows))
    return result
