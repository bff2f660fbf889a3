# SPDX-License-Identifier: BSD-3-Clause
"""SyncBatchNorm: batch normalization over the batches of all ranks.

The ranks gather (elements, mean, sum of squared deviations) of each channel and combine them in
the order of the ranks, so all of them get the same bits. Sums of squares are not used: they lose
the variance of data far from 0. It works on the CPU as well; Horovod's needs a GPU.
"""

from typing import Any, Optional, Tuple

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from ..common.ops import Sum
from . import mpi_ops


def _combine(parts: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Total count, mean and variance of parts: [ranks, 3, channels] of count, mean, deviations."""
    count, mean, deviations = parts[0]
    for other_count, other_mean, other_deviations in parts[1:]:
        total = count + other_count
        share = other_count / total.clamp(min=1)
        difference = other_mean - mean
        mean = mean + difference * share
        deviations = deviations + other_deviations + difference * difference * count * share
        count = total
    return count, mean, deviations / count.clamp(min=1)


class _Normalize(torch.autograd.Function):
    """Normalize with the statistics of all ranks."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: Optional[torch.Tensor],
                bias: Optional[torch.Tensor], eps: float) -> Any:
        axes = [0] + list(range(2, x.dim()))
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        channels = x.shape[1]
        count = x.numel() // channels if channels else 0
        if count > 0:
            mean = wide.mean(axes)
            deviations = (wide - mean.view(_over(x))).square().sum(axes)
        else:
            mean = deviations = wide.new_zeros(channels)
        mine = torch.stack([torch.full_like(mean, count), mean, deviations]).unsqueeze(0)
        parts = mpi_ops.allgather(mine, name="sync_batch_norm.statistics")
        total, mean, variance = _combine(parts)
        scale = (variance + eps).rsqrt()
        normal = (wide - mean.view(_over(x))) * scale.view(_over(x))
        ctx.save_for_backward(normal, scale, weight, total)
        ctx.dtype = x.dtype
        result = normal if weight is None else normal * weight.view(_over(x))
        result = result if bias is None else result + bias.view(_over(x))
        ctx.mark_non_differentiable(mean, variance, total)
        # The result is never the saved tensor: an operation in place may follow.
        return result.to(x.dtype, copy=result is normal), mean, variance, total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> Any:
        normal, scale, weight, total = ctx.saved_tensors
        axes, over = [0] + list(range(2, normal.dim())), _over(normal)
        wide = gradient.to(normal.dtype)
        sums = torch.stack([wide.sum(axes), (wide * normal).sum(axes)])
        grad_weight = sums[1].clone() if weight is not None and ctx.needs_input_grad[1] else None
        grad_bias = sums[0].clone() if ctx.needs_input_grad[2] else None
        grad_x = None
        if ctx.needs_input_grad[0]:
            mpi_ops.allreduce_(sums, op=Sum, name="sync_batch_norm.gradients")
            sums = sums / total.clamp(min=1)
            factor = scale if weight is None else scale * weight.to(scale.dtype)
            grad_x = (wide - sums[0].view(over) - normal * sums[1].view(over)) * factor.view(over)
            grad_x = grad_x.to(ctx.dtype)
        return (grad_x, grad_weight if weight is None else _like(grad_weight, weight),
                _like(grad_bias, weight), None)


def _like(gradient: Optional[torch.Tensor], other: Optional[torch.Tensor]
          ) -> Optional[torch.Tensor]:
    return gradient if gradient is None or other is None else gradient.to(other.dtype)


def _over(x: torch.Tensor) -> Tuple[int, ...]:
    """The shape in which a vector of channels is spread over x."""
    return (1, x.shape[1]) + (1,) * (x.dim() - 2)


class SyncBatchNorm(_BatchNorm):
    """As torch.nn.BatchNorm1d to 3d, with the mean and variance of all ranks' batches.

    Ranks may have batches of different sizes. Parameters and buffers are those of BatchNorm.
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError("SyncBatchNorm needs an input of two dimensions or more, not %d"
                             % input.dim())

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalize a batch."""
        self._check_input_dim(input)
        own = self.training or not self.track_running_stats
        if not own or mpi_ops.size() == 1:
            return super().forward(input)
        result, mean, variance, total = _Normalize.apply(input, self.weight, self.bias, self.eps)
        if self.training and self.track_running_stats:
            self._follow(mean, variance, total)
        return result

    @torch.no_grad()
    def _follow(self, mean: torch.Tensor, variance: torch.Tensor, total: torch.Tensor) -> None:
        """Move the running statistics towards those of this batch."""
        self.num_batches_tracked += 1
        share = self.momentum
        if share is None:
            share = 1.0 / float(self.num_batches_tracked)
        unbiased = variance * (total / (total - 1).clamp(min=1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)
