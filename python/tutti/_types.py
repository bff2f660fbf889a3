# SPDX-License-Identifier: BSD-3-Clause
"""Element types and operations: from numpy's and DLPack's names to the library's numbers.

A type here is a pair (dtype, unit): `dtype` is the library's number of a type, and one element of
the array is `unit` elements of this type. For most types the unit is 1. A complex number is two
floats. Elements of a type that the library does not have are moved as bytes: 12 bytes are 12
elements of UINT8.
"""

import enum
from typing import Any, Callable, Dict, NamedTuple, Optional, Union

import numpy as np

from . import _lib
from ._lib import byref, check, lib


class Op(enum.IntEnum):
    """The operation of a reduction. All functions also take a string of the same name, such as
    "sum".

    SUM                all numbers; integers wrap around; bool: or
    AVG                all numbers, not bool: the sum divided by the number of ranks
    MIN, MAX           all numbers; bool: and, or
    PROD               all numbers; integers wrap around; bool: and
    BAND, BOR, BXOR    integers and bool: bit by bit
    LAND, LOR, LXOR    integers and bool: 0 is false, all other values are true
    MINLOC, MAXLOC     pairs of pair_dtype(): the least or largest value with its index

    Complex numbers have SUM and AVG.
    """

    SUM = _lib.SUM
    AVG = _lib.AVG
    MIN = _lib.MIN
    MAX = _lib.MAX
    PROD = _lib.PROD
    BAND = _lib.BAND
    BOR = _lib.BOR
    BXOR = _lib.BXOR
    LAND = _lib.LAND
    LOR = _lib.LOR
    LXOR = _lib.LXOR
    MINLOC = _lib.MINLOC
    MAXLOC = _lib.MAXLOC


class ElementType(NamedTuple):
    """How the library treats the elements of an array."""

    dtype: int  # the library's number
    unit: int  # elements of `dtype` in one element of the array
    reducible: str  # "all" operations of `dtype`, "linear": SUM and AVG only, "none"
    shown: str  # the type's name in messages, which is different for different types


_BY_NAME: Dict[str, int] = {
    "int8": _lib.INT8, "uint8": _lib.UINT8, "int16": _lib.INT16, "uint16": _lib.UINT16,
    "int32": _lib.INT32, "uint32": _lib.UINT32, "int64": _lib.INT64, "uint64": _lib.UINT64,
    "float16": _lib.FLOAT16, "float32": _lib.FLOAT32, "float64": _lib.FLOAT64, "bool": _lib.BOOL,
    "bfloat16": _lib.BFLOAT16, "float8_e4m3fn": _lib.FLOAT8_E4M3,
    "float8_e5m2": _lib.FLOAT8_E5M2,
}
_COMPLEX: Dict[str, int] = {"complex64": _lib.FLOAT32, "complex128": _lib.FLOAT64}

# The layouts of C structures of a value and an index.
_PAIRS: Dict[Any, int] = {
    ("float32", "int32"): _lib.FLOAT32_INT32, ("float64", "int64"): _lib.FLOAT64_INT64,
    ("int32", "int32"): _lib.INT32_INT32, ("int64", "int64"): _lib.INT64_INT64,
}


def pair_dtype(value: Any) -> "np.dtype[Any]":
    """The numpy type of a pair for the operations "minloc" and "maxloc".

    value  the type of the value: float32 or int32 (then the index is an int32), float64 or int64
           (then the index is an int64)

    The fields are "value" and "index":

        pairs = np.zeros(3, tutti.pair_dtype("float32"))
        pairs["value"], pairs["index"] = losses, rank
        least = tutti.allreduce(pairs, "minloc")
    """
    kind = np.dtype(value)
    for names in _PAIRS:
        if kind == np.dtype(names[0]):
            return np.dtype([("value", names[0]), ("index", names[1])])
    raise TypeError("pair_dtype: there are pairs of float32, float64, int32 and int64, not of %s"
                    % kind)


def _pair_of(kind: "np.dtype[Any]") -> Optional[int]:
    """The library's number for a structure of two fields, or None."""
    if kind.names is None or len(kind.names) != 2 or kind.fields is None:
        return None
    (first, at_first), (second, at_second) = (kind.fields[name][:2] for name in kind.names)
    if (at_first, at_second) != (0, first.itemsize) or kind.itemsize != 2 * first.itemsize:
        return None
    return _PAIRS.get((first.name, second.name)) if first.isnative and second.isnative else None


def _make_type(kind: "np.dtype[Any]") -> ElementType:
    if kind.hasobject:
        raise TypeError("has Python objects (dtype %s), which cannot be sent; see pickle" % kind)
    if kind.isnative and (kind.name in _BY_NAME or kind.name in _COMPLEX):
        return type_named(kind.name)
    pair = _pair_of(kind)
    if pair is not None:
        return ElementType(pair, 1, "all", str(kind))
    return ElementType(_lib.UINT8, kind.itemsize, "none", str(kind))


known_types: Dict[Any, ElementType] = {}  # by numpy type: the types that were found so far


def type_of(kind: "np.dtype[Any]") -> ElementType:
    """The type of a numpy array's elements; TypeError for an array of Python objects."""
    found = known_types.get(kind)
    if found is None:
        found = known_types[kind] = _make_type(kind)
    return found


def type_named(name: str) -> ElementType:
    """The type of elements by numpy's or ml_dtypes' name, which need not be known to numpy."""
    if name in _BY_NAME:
        return ElementType(_BY_NAME[name], 1, "all", name)
    if name in _COMPLEX:
        return ElementType(_COMPLEX[name], 2, "linear", name)
    raise TypeError("has elements of type %s, which is not supported" % name)


def numpy_type(name: str) -> "np.dtype[Any]":
    """The numpy type of a name such as "bfloat16", which the package ml_dtypes adds; ImportError
    without it."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # type: ignore[import-not-found, import-untyped, unused-ignore]

        found: "np.dtype[Any]" = np.dtype(getattr(ml_dtypes, name))
        return found


class UserOp:
    """An operation of the caller's own; see create_op()."""

    def __init__(self, function: Callable[[Any, Any], Any], commutative: bool) -> None:
        self._function = function
        self.failures = 0  # the calls of the function that have raised an exception
        self._error: Optional[BaseException] = None
        self._callback = _lib.OP_FUNCTION(self._combine)  # must live as long as the number
        number = _lib.c_int()
        check(lib.tutti_op_create(self._callback, None, int(commutative), byref(number)))
        self._number: Optional[int] = number.value

    def _combine(self, dst: int, left: int, right: int, count: int, dtype: int,
                 _context: Any) -> None:
        """The library calls this. An exception cannot pass through the library, so it is kept until
        the end of the call."""
        try:
            if not count:
                return
            kind = _numpy_of(dtype)
            arrays = [np.frombuffer(_lib.memory_at(at, count * kind.itemsize), kind, count)
                      for at in (dst, left, right)]
            arrays[0][...] = self._function(arrays[1], arrays[2])
        except BaseException as error:
            self._error = error
            self.failures += 1

    @property
    def number(self) -> int:
        """The library's number of the operation."""
        if self._number is None:
            raise ValueError("the operation was freed")
        return self._number

    def raise_error(self, failures: int) -> None:
        """Raise the last exception of the function if it has raised one since a call began.

        failures  the number of failures when the call began
        """
        if self._error is not None and self.failures != failures:
            raise self._error

    def free(self) -> None:
        """Free the operation; no call that uses it may be pending. A second call does nothing."""
        if self._number is not None:
            check(lib.tutti_op_free(self._number))
            self._number = None


def _numpy_of(dtype: int) -> "np.dtype[Any]":
    for names, number in _PAIRS.items():
        if number == dtype:
            return pair_dtype(names[0])
    return numpy_type(next(name for name, number in _BY_NAME.items() if number == dtype))


def create_op(function: Callable[[Any, Any], Any], commutative: bool = True) -> UserOp:
    """Make an operation from a function, for the `op` of any reduction.

    function     function(left, right): two arrays of equal length, of the type of the call; returns
                 the combined array. The function must be associative, must not change its
                 arguments, and must not call Tutti. Any thread may call it
    commutative  False: operands are always in the order of their ranks

    Every rank makes its own operation. Create and free operations in the same order on all ranks.
    If the function raises an exception, the call that uses the operation raises this exception
    on this rank when the call has ended. The call's result is then undefined on all ranks. Other
    calls that use the operation and are pending at that time also raise the exception.

        longest = tutti.create_op(np.maximum)
        tutti.allreduce(x, op=longest)
    """
    return UserOp(function, commutative)


OpLike = Union[Op, int, str, UserOp]
# By Op and by string.
known_ops: Dict[Any, int] = {op.name.lower(): op.value for op in Op}
known_ops.update({op: op.value for op in Op})
_LINEAR = (_lib.SUM, _lib.AVG)


def op_number(call: str, op: OpLike, kind: ElementType) -> int:
    """The library's number of an operation, for a call of the name `call` on elements of the type
    `kind`."""
    try:
        number = op.number if isinstance(op, UserOp) else known_ops[op]
    except (KeyError, TypeError):
        raise ValueError("%s: op is %r; it must be one of %s, or from create_op()"
                         % (call, op, ", ".join(op.name.lower() for op in Op))) from None
    if kind.reducible == "all" or (kind.reducible == "linear" and number in _LINEAR):
        return number
    if kind.reducible == "linear":
        raise TypeError("%s: complex numbers have the operations sum and avg only" % call)
    raise TypeError("%s: elements of type %s cannot be reduced" % (call, kind.shown))
