# SPDX-License-Identifier: BSD-3-Clause
"""State that starts equal on all ranks: parameters, optimizer states, Python objects."""

from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

import torch

from ..common.job import job
from ..common.objects import dump, load
from ..common.process_sets import ProcessSet, global_process_set
from . import mpi_ops


def _dump(obj: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(dump(obj)), dtype=torch.uint8)


def _load(data: torch.Tensor) -> Any:
    return load(data.numpy().tobytes())


# ---- objects ----

def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """The object of a rank, on all ranks: pickled, by two broadcasts.

    obj        used on root_rank only
    root_rank  a rank of the job
    name       needed if several threads broadcast objects at the same time: one for each
    """
    name = "object" if name is None else name
    data = _dump(obj) if job.rank == root_rank else None
    length = torch.tensor([0 if data is None else data.numel()], dtype=torch.int64, device="cpu")
    mpi_ops.broadcast_(length, root_rank, name + ".sz", process_set)
    if data is None:
        data = torch.empty(int(length[0]), dtype=torch.uint8, device="cpu")
    mpi_ops.broadcast_(data, root_rank, name + ".t", process_set)
    return obj if job.rank == root_rank else _load(data)


def allgather_object(obj: Any, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> List[Any]:
    """The objects of all ranks, in the order of the ranks."""
    name = "object" if name is None else name
    gathered, rows = mpi_ops.allgather_rows(_dump(obj), name + ".t", process_set)
    return [_load(part) for part in gathered.split(rows)]


# ---- parameters ----

def _pairs(params: Any) -> List[Tuple[Optional[str], Any]]:
    if isinstance(params, Mapping):
        return sorted(params.items())
    if isinstance(params, torch.Tensor) or not isinstance(params, Iterable):
        raise ValueError("params is a dictionary or a list of parameters, not %s" % type(params))
    return [p if isinstance(p, tuple) else (None, p) for p in params]


class _Copies:
    """Broadcasts of tensors that need not be contiguous."""

    def __init__(self, root_rank: int) -> None:
        self.root_rank = root_rank
        self.started: List[Tuple[int, torch.Tensor, torch.Tensor]] = []

    def start(self, tensor: torch.Tensor, name: Optional[str]) -> None:
        """Start the broadcast of one tensor."""
        data = tensor.detach()
        plain = data if data.is_contiguous() else data.contiguous()
        handle = mpi_ops.broadcast_async_(plain, self.root_rank, name)
        self.started.append((handle, data, plain))

    def finish(self) -> None:
        """Wait for all of them."""
        for handle, data, plain in self.started:
            mpi_ops.synchronize(handle)
            if plain is not data and job.rank != self.root_rank:
                data.copy_(plain)


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Copy the parameters of a rank to all others, in place.

    params  model.state_dict(), named_parameters(), parameters(), or a list of tensors. Entries of
            a dictionary that are no tensors are sent as objects
    """
    copies = _Copies(root_rank)
    objects: Dict[Optional[str], Any] = {}
    for name, value in _pairs(params):
        if value is None:
            continue
        if isinstance(value, torch.Tensor):
            copies.start(value, name)
        else:
            objects[name] = value
    copies.finish()
    if objects:
        values = broadcast_object(objects, root_rank, name="broadcast_parameters")
        if isinstance(params, dict):
            params.update(values)


# ---- optimizers ----

Place = Tuple[str, Any, str]  # "option" of a parameter group, or "state" of a parameter


def _contents(optimizer: torch.optim.Optimizer) -> Dict[Place, Any]:
    """Options and state of an optimizer, by place. Parameters are numbered as in state_dict()."""
    state = optimizer.state_dict()
    found: Dict[Place, Any] = {}
    for index, group in enumerate(state["param_groups"]):
        for key, value in group.items():
            if key != "params":
                found["option", index, key] = value
    for number, entries in state["state"].items():
        for key, value in entries.items():
            found["state", number, key] = value
    return found


def _replace(optimizer: torch.optim.Optimizer, contents: Dict[Place, Any]) -> None:
    """Give an optimizer the options and the state of another rank's optimizer."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    optimizer.state.clear()
    for (kind, number, key), value in contents.items():
        if kind == "option":
            optimizer.param_groups[number][key] = value
        else:
            owner = parameters[number] if isinstance(number, int) else number
            optimizer.state.setdefault(owner, {})[key] = value


def _room(optimizer: torch.optim.Optimizer, place: Place, mine: Any, like: Tuple) -> torch.Tensor:
    """A tensor to receive into: the present one if it fits."""
    shape, dtype, on_cpu = like
    if isinstance(mine, torch.Tensor) and mine.shape == shape and mine.dtype == dtype:
        return mine
    device = torch.device("cpu")
    if not on_cpu and place[0] == "state" and isinstance(place[1], int):
        device = [p for group in optimizer.param_groups for p in group["params"]][place[1]].device
    return torch.empty(shape, dtype=dtype, device=device)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int,
                              model: Optional[torch.nn.Module] = None) -> None:
    """Give the optimizers of all ranks the state and the options of one.

    The other ranks' optimizers need no state before the call: state is made or removed as on the
    root. No step is made for that. If the root has no state, parameters without a gradient get a
    gradient of zeros, as with Horovod.

    model  not used; Horovod takes it
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("the state of torch.optim.LBFGS cannot be broadcast")
    mine = _contents(optimizer)
    is_root = job.rank == root_rank
    sent = None
    if is_root:
        sent = ({place: (value.shape, value.dtype, value.device.type == "cpu")
                 for place, value in mine.items() if isinstance(value, torch.Tensor)},
                {place: value for place, value in mine.items()
                 if not isinstance(value, torch.Tensor)})
    likes, contents = broadcast_object(sent, root_rank, name="broadcast_optimizer_state")
    copies = _Copies(root_rank)
    for number, (place, like) in enumerate(likes.items()):
        tensor = mine[place] if is_root else _room(optimizer, place, mine.get(place), like)
        copies.start(tensor, "optimizer.%d.%s" % (number, place[2]))
        contents[place] = tensor
    copies.finish()
    if not is_root:
        _replace(optimizer, contents)
    if not any(place[0] == "state" for place in contents):
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.requires_grad and p.grad is None:
                    p.grad = torch.zeros_like(p)
