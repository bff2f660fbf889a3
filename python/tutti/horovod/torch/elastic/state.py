# SPDX-License-Identifier: BSD-3-Clause
"""TorchState: models, optimizers, samplers and plain objects that elastic.run keeps."""

import copy
from typing import Any, Dict, List, Optional, Tuple

import torch

from ...common.elastic import ObjectState
from ..functions import (allgather_object, broadcast_object, broadcast_optimizer_state,
                         broadcast_parameters)
from ..mpi_ops import rank
from .sampler import ElasticSampler


class StateHandler:
    """How one kind of object is saved, restored and sent. Programs derive handlers of their own;
    those that were written for Horovod have a sync() without a parameter."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keep a copy."""
        raise NotImplementedError

    def restore(self) -> None:
        """Give the object the state of the copy again."""
        raise NotImplementedError

    def sync(self, root_rank: int = 0) -> None:
        """Give all ranks the state of one."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Replace the object by another one."""
        self.value = value
        self.save()


class _DictHandler(StateHandler):
    """For objects with state_dict()."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))


class ModelStateHandler(_DictHandler):
    """A torch.nn.Module."""

    def sync(self, root_rank: int = 0) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank)
        self.save()


class OptimizerStateHandler(_DictHandler):
    """A torch.optim.Optimizer, distributed or not."""

    def sync(self, root_rank: int = 0) -> None:
        broadcast_optimizer_state(self.value, root_rank)
        self.save()


class SamplerStateHandler(_DictHandler):
    """An ElasticSampler."""

    def sync(self, root_rank: int = 0) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), root_rank,
                                                    name="elastic.sampler"))
        self.save()


_registry: List[Tuple[type, type]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> List[Tuple[type, type]]:
    """Pairs of a type and its handler; the first one that fits is used."""
    return _registry


def set_handler_registry(registry: List[Tuple[type, type]]) -> None:
    """Replace the pairs."""
    global _registry
    _registry = registry


def _handler_of(value: Any) -> Optional[StateHandler]:
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    return None


class TorchState(ObjectState):
    """The state of a training run, as attributes.

    model, optimizer  or None
    others            modules, optimizers and ElasticSamplers are saved and sent as such; all other
                      values as objects
    """

    def __init__(self, model: Optional[torch.nn.Module] = None,
                 optimizer: Optional[torch.optim.Optimizer] = None, **kwargs: Any) -> None:
        values = dict(kwargs, model=model, optimizer=optimizer)
        found = {name: _handler_of(value) for name, value in values.items()}
        handlers = {name: handler for name, handler in found.items() if handler is not None}
        object.__setattr__(self, "_handlers", handlers)
        for name in handlers:
            object.__setattr__(self, name, values.pop(name))
        super().__init__(broadcast_object, rank, **values)

    def save(self) -> None:
        """Keep copies of all."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Go back to the copies."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def reset(self) -> None:
        """Share the samples that are left: after an interrupt with skip_sync, there is no sync()
        that does so."""
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()

    def root(self) -> int:
        """The rank with the most commits; of several such ranks the lowest. A process that has
        taken the place of a dead one has no commits."""
        commits = allgather_object(self._commits, name="elastic.commits")
        return commits.index(max(commits))

    def sync(self) -> None:
        """Give all ranks the state of the rank that has committed most."""
        root = self.root()
        for _, handler in sorted(self._handlers.items()):
            # A handler that was written for Horovod sends rank 0's state only.
            if root == 0:
                handler.sync()
            else:
                handler.sync(root)
        values = broadcast_object((self._saved_state, self._commits), root, name="elastic.state")
        self._saved_state, commits = values
        object.__setattr__(self, "_commits", commits)
        self._set_attributes()

    def __setattr__(self, name: str, value: Any) -> None:
        handlers: Dict[str, StateHandler] = self.__dict__.get("_handlers", {})
        if name in handlers:
            handlers[name].set_value(value)
        object.__setattr__(self, name, value)
