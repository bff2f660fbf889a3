# SPDX-License-Identifier: BSD-3-Clause
"""Elastic training with torch: run, TorchState, ElasticSampler. See common/elastic.py."""

from typing import Any, Callable

from ...common.elastic import ObjectState, State, run_fn
from .. import handles
from ..mpi_ops import init, shutdown
from .sampler import ElasticSampler
from .state import TorchState


def _reset() -> None:
    shutdown()
    handles.forget()  # the function begins again, and would not wait for its earlier calls
    init()


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate func(state, ...): if a call between the ranks fails in func, restore the committed
    state, connect again, and call func again."""
    return run_fn(func, _reset)


__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]
