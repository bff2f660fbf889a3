# SPDX-License-Identifier: BSD-3-Clause
"""Tensor types as the library takes them."""

from typing import Dict

import torch

from ... import _lib

# The library's element types that this version of torch has.
CODES: Dict[torch.dtype, int] = {
    getattr(torch, name): code
    for name, code in (("int8", _lib.INT8), ("uint8", _lib.UINT8), ("int16", _lib.INT16),
                       ("uint16", _lib.UINT16), ("int32", _lib.INT32), ("uint32", _lib.UINT32),
                       ("int64", _lib.INT64), ("uint64", _lib.UINT64),
                       ("float16", _lib.FLOAT16), ("bfloat16", _lib.BFLOAT16),
                       ("float32", _lib.FLOAT32), ("float64", _lib.FLOAT64),
                       ("float8_e4m3fn", _lib.FLOAT8_E4M3), ("float8_e5m2", _lib.FLOAT8_E5M2),
                       ("bool", _lib.BOOL))
    if hasattr(torch, name)
}


def check(tensor: torch.Tensor) -> None:
    """ValueError if a tensor cannot be sent."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError("a tensor is needed, not %r" % type(tensor).__name__)
    if tensor.is_sparse:
        raise ValueError("a sparse tensor needs sparse_allreduce_async")
    if tensor.dtype not in CODES:
        raise ValueError("Tensor type %s is not supported." % tensor.type())
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError("tensors on device %s are not supported" % tensor.device)
    if not tensor.is_contiguous():
        raise ValueError("Tensor is required to be contiguous.")
