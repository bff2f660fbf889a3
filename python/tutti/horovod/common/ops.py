# SPDX-License-Identifier: BSD-3-Clause
"""The reductions, as Horovod numbers them."""

import warnings
from typing import Any, Dict, NoReturn, Optional

from ... import _lib

Average, Sum, Adasum, Min, Max, Product = range(6)
OPS: Dict[int, int] = {Average: _lib.AVG, Sum: _lib.SUM, Min: _lib.MIN, Max: _lib.MAX,
                       Product: _lib.PROD}


def no_such_op(op: Any) -> NoReturn:
    """Raise the error for an `op` that is not in OPS."""
    if op == Adasum:
        raise NotImplementedError("Tutti has no Adasum; Average, Sum, Min, Max and Product work")
    raise ValueError("op=%r is none of Average, Sum, Min, Max, Product" % (op,))


def choose_op(op: Optional[int], average: Optional[bool]) -> int:
    """The reduction that `op` or `average` selects. `average` is the older parameter."""
    if average is None:
        return Average if op is None else op
    if op is not None:
        raise ValueError("both op and average were given; average is the older form of op")
    warnings.warn("`average` is deprecated: pass op=hvd.Average or op=hvd.Sum",
                  DeprecationWarning, stacklevel=3)
    return Average if average else Sum
