# SPDX-License-Identifier: BSD-3-Clause
"""From the caller's arrays to addresses, counts and types.

An array is one of these:

    numpy arrays          in place, never copied if contiguous
    __dlpack__            host or device memory, such as tensors of torch and arrays of JAX or CuPy
    __cuda_array_interface__   device memory; the pointer is passed unchanged
    anything else         the buffer protocol; for inputs also lists and numbers, by numpy.asarray

An input in host memory that is not contiguous is copied. Everything else that is not contiguous
is a ValueError.
"""

from typing import Any, Callable, NamedTuple, NoReturn, Optional, Tuple

import numpy as np

from . import _dlpack
from ._lib import addressof, from_buffer
from ._types import ElementType, known_types, numpy_type, type_named, type_of

Shape = Tuple[int, ...]
What = Tuple[str, str]  # the call and its parameter, for messages


class Buffer(NamedTuple):
    """The properties of an array that a call needs."""

    address: int
    shape: Shape
    size: int  # the number of elements, in the array's own type
    kind: ElementType
    device: bool  # whether in device memory
    owner: Any  # keeps the memory; the numpy array itself if there is one


def count_of(shape: Shape) -> int:
    """The number of elements of an array of this shape."""
    count = 1
    for extent in shape:
        count *= extent
    return count


def _is_contiguous(shape: Shape, strides: Optional[Shape], step: int) -> bool:
    """Whether elements follow each other in C order. step: the size of an element, in the unit of
    the strides."""
    if strides is None or 0 in shape:
        return True
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def _not_contiguous(what: What, shape: Shape, strides: Any) -> NoReturn:
    raise ValueError("%s: %s is not contiguous (shape %s, strides %s): make a contiguous copy first"
                     % (*what, shape, strides))


def _named(what: What, find: Callable[[Any], Any], kind: Any) -> Any:
    """Return find(kind). Its errors get the parameter's name."""
    try:
        return find(kind)
    except TypeError as error:
        raise TypeError("%s: %s %s" % (*what, error)) from None


def _address(array: Any) -> int:
    """The address of a contiguous numpy array. numpy's own way takes three times as long,
    but is the only one for arrays that are empty, read-only, or of types without a buffer."""
    try:
        return addressof(from_buffer(array))
    except (TypeError, ValueError):
        return int(array.__array_interface__["data"][0])


def _of_numpy(what: What, array: "np.ndarray[Any, Any]", writing: bool) -> Buffer:
    flags = array.flags
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
        raise TypeError("%s: %s is a masked array, whose mask would be lost; see "
                        "numpy.ma.filled" % what)
    if writing and not flags.writeable:
        raise ValueError("%s: %s is read-only" % what)
    if not flags.c_contiguous:
        if writing:
            _not_contiguous(what, array.shape, array.strides)
        array = np.ascontiguousarray(array)
    kind = known_types.get(array.dtype) or _named(what, type_of, array.dtype)
    return Buffer(_address(array), array.shape, array.size, kind, False, array)


def _of_dlpack(what: What, array: Any, writing: bool) -> Buffer:
    seen = _named(what, _dlpack.read, array)
    device = seen.device == _dlpack.CUDA  # pinned and managed memory counts as the host's
    if not device and seen.device not in (_dlpack.CPU, _dlpack.CUDA_HOST, _dlpack.CUDA_MANAGED):
        raise TypeError("%s: %s is on a device of DLPack's type %d; there are 1 (host) and 2 "
                        "(CUDA)" % (*what, seen.device))
    if writing and not seen.writable:
        raise ValueError("%s: %s is read-only" % what)
    if not _is_contiguous(seen.shape, seen.strides, 1):
        if device or writing:
            _not_contiguous(what, seen.shape, seen.strides)
        try:
            return _of_numpy(what, np.ascontiguousarray(np.from_dlpack(array)), writing)
        except (BufferError, RuntimeError, TypeError):  # a type that numpy lacks
            _not_contiguous(what, seen.shape, seen.strides)
    return Buffer(seen.address, seen.shape, count_of(seen.shape),
                  _named(what, type_named, seen.name), device, (array, seen.capsule))


def _of_cuda(what: What, array: Any, writing: bool) -> Buffer:
    seen = array.__cuda_array_interface__
    address, read_only = seen["data"]
    kind, shape, strides = np.dtype(seen["typestr"]), tuple(seen["shape"]), seen.get("strides")
    if writing and read_only:
        raise ValueError("%s: %s is read-only" % what)
    if seen.get("mask") is not None:
        raise TypeError("%s: %s is a masked array, whose mask would be lost" % what)
    if not _is_contiguous(shape, strides, kind.itemsize):
        _not_contiguous(what, shape, strides)
    return Buffer(address or 0, shape, count_of(shape), _named(what, type_of, kind), True,
                  (array, seen))


def _of_other(what: What, array: Any, writing: bool) -> Buffer:
    if not writing:
        # An empty string of numpy has one byte, and numpy's strings lose zeros at their end.
        seen = memoryview(array) if isinstance(array, bytes) else array
        return _of_numpy(what, np.asarray(seen), False)
    try:
        return _of_numpy(what, np.asarray(memoryview(array)), True)
    except TypeError:
        raise TypeError("%s: %s is of type %s, into which nothing can be written: it must be an "
                        "array" % (*what, type(array).__name__)) from None


def _describe(what: What, array: Any, writing: bool) -> Buffer:
    if isinstance(array, np.ndarray):
        return _of_numpy(what, array, writing)
    # A class with a __dlpack__ method is not an array itself.
    if hasattr(array, "__dlpack__") and not isinstance(array, type):
        return _of_dlpack(what, array, writing)
    if hasattr(array, "__cuda_array_interface__"):
        return _of_cuda(what, array, writing)
    return _of_other(what, array, writing)


def reading(call: str, array: Any, name: str = "array") -> Buffer:
    """The buffer of an input: of `array`, which is the parameter `name` of the call `call`."""
    if array is None:
        raise TypeError("%s: %s is None; it must be an array" % (call, name))
    return _describe((call, name), array, False)


def writing(call: str, array: Any, name: str = "out") -> Buffer:
    """The buffer of an output."""
    if array is None:
        raise TypeError("%s: %s is None; it must be an array" % (call, name))
    return _describe((call, name), array, True)


def check_in_place(call: str, array: Any) -> None:
    """Check that `array`, the input of a persistent call, is used in place: a copy would not have
    the array's later data."""
    owner = reading(call, array).owner
    if isinstance(owner, np.ndarray) and owner is not array and owner.flags.owndata:
        raise ValueError("%s: array, of type %s, would be copied, and each start would send the "
                         "copy; it must be a contiguous array"
                         % (call, type(array).__name__))


def new_like(call: str, source: Buffer, shape: Shape) -> Buffer:
    """A new numpy array for a result, of the element type of `source`."""
    if source.device:
        raise ValueError("%s: array is in device memory, so out must be given, in device memory "
                         "as well" % call)
    kind = source.owner.dtype if isinstance(source.owner, np.ndarray) else None
    try:
        array = np.empty(shape, numpy_type(source.kind.shown) if kind is None else kind)
    except ImportError:
        raise ValueError("%s: numpy has no type %s (the package ml_dtypes adds it), so out must "
                         "be given" % (call, source.kind.shown)) from None
    return Buffer(_address(array), shape, array.size, source.kind, False, array)


def same_kind(call: str, source: Buffer, result: Buffer) -> None:
    """Check that two buffers of a call have one type and are in one kind of memory."""
    if source.kind != result.kind:
        raise TypeError("%s: array has elements of %s, but out has %s"
                        % (call, source.kind.shown, result.kind.shown))
    if source.device != result.device:
        places = ("host memory", "device memory")
        raise ValueError("%s: array is in %s, but out is in %s"
                         % (call, places[source.device], places[result.device]))
