# SPDX-License-Identifier: BSD-3-Clause
"""Compression of gradients on their way between the ranks: a cast to 16 bits."""

from typing import Any, Tuple

import torch


class Compressor:
    """The interface of a compression. Programs may derive classes of their own."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        """Returns the tensor to send, and a context for decompress()."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The result in the type of the tensor that was compressed."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """No compression."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _CastCompressor(Compressor):
    """Floating point tensors are sent as `dtype`, others unchanged."""

    dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:  # type: ignore[override]
        if not tensor.dtype.is_floating_point:
            return tensor, tensor.dtype
        return tensor.to(cls.dtype), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:  # type: ignore[override]
        return tensor.to(ctx)


class FP16Compressor(_CastCompressor):
    """As float16."""

    dtype = torch.float16


class BF16Compressor(_CastCompressor):
    """As bfloat16: the range of float32, with 8 bits of precision. Horovod does not have it."""

    dtype = torch.bfloat16


class Compression:
    """The compressions that `compression=` takes."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
