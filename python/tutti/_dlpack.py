# SPDX-License-Identifier: BSD-3-Clause
"""Reads DLPack capsules: where an array is, and what its elements are.

numpy's own reader refuses the types that numpy lacks (bfloat16, float8) and device memory. A
capsule is never marked as used: its producer frees the data when the last reference to the capsule
is gone. So the capsule keeps the data alive.
"""

import ctypes
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple, Optional, Tuple

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_READ_ONLY = 1


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32),
                ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]


class _VersionedTensor(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p),
                ("deleter", c_void_p), ("flags", c_uint64), ("tensor", _Tensor)]


class Array(NamedTuple):
    """A described array."""

    address: int
    device: int  # CPU, CUDA, ...
    name: str  # of the element type, as numpy and ml_dtypes have it
    shape: Tuple[int, ...]
    strides: Optional[Tuple[int, ...]]  # in elements; None: contiguous
    writable: bool
    capsule: Any  # keeps the data


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]

_CODES = {0: "int", 1: "uint", 2: "float", 5: "complex"}
_NAMES = {(4, 16): "bfloat16", (6, 8): "bool", (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2"}


def _type_name(tensor: _Tensor) -> str:
    code, bits = tensor.code, tensor.bits
    name = _NAMES.get((code, bits)) or (_CODES[code] + str(bits) if code in _CODES else "")
    if not name or tensor.lanes != 1:
        raise TypeError("has a DLPack type (code %d, %d bits, %d lanes) that is not supported"
                        % (code, bits, tensor.lanes))
    return name


def _capsule_of(array: Any, device: int) -> Any:
    # -1: the producer must not order streams. Data in device memory must be complete before the
    # call, or the call names the stream.
    arguments = {"stream": -1} if device == CUDA else {}
    try:
        return array.__dlpack__(max_version=(1, 0), **arguments)
    except TypeError:  # older producers have no max_version
        return array.__dlpack__(**arguments)


def read(array: Any) -> Array:
    """Describe an object with __dlpack__."""
    device = int(array.__dlpack_device__()[0])
    capsule = _capsule_of(array, device)
    writable = True
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = ctypes.cast(_pointer(capsule, b"dltensor_versioned"), POINTER(_VersionedTensor))
        if managed.contents.major > 1:
            raise BufferError("DLPack version %d is not known" % managed.contents.major)
        writable = not managed.contents.flags & _READ_ONLY
        tensor = managed.contents.tensor
    else:
        tensor = ctypes.cast(_pointer(capsule, b"dltensor"), POINTER(_Tensor)).contents
    shape = tuple(tensor.shape[:tensor.ndim]) if tensor.ndim else ()
    strides = tuple(tensor.strides[:tensor.ndim]) if tensor.ndim and tensor.strides else None
    return Array((tensor.data or 0) + tensor.byte_offset, tensor.device_type, _type_name(tensor),
                 shape, strides, writable, capsule)
