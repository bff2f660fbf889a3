# SPDX-License-Identifier: BSD-3-Clause
"""DistributedOptimizer: an optimizer whose step waits for gradients reduced over the ranks.

A hook on each parameter starts an allreduce as soon as the gradient is complete, so gradients are
reduced while backward() computes the others. step() waits for all of them.

The distributed optimizer is a view of the given one: it has the given optimizer's class (so
isinstance works), parameter groups and state, and adds the methods of _Distributed. The given
optimizer is not used any more.

A gradient that no backward pass has made on this rank is submitted as zeros in synchronize(),
because other ranks may have made it.
"""

import warnings
import weakref
from contextlib import contextmanager
from ctypes import c_void_p
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import torch

from ..._lib import lib
from ..common.exceptions import failed
from ..common.ops import OPS, Adasum, Average, no_such_op
from ..common.process_sets import ProcessSet, global_process_set
from . import handles, mpi_ops, submit
from .compression import Compression
from .functions import broadcast_object

Groups = Union[None, int, Sequence[Sequence[torch.Tensor]]]


class _Gradient:
    """One parameter, and the state of its gradient.

    passes   backward passes until the gradient is submitted
    handle   of the pending call, or a function that waits (sparse); None: not submitted
    sent     the tensor that the call reduces in place
    context  of the compression
    group    the submission group that it belongs to, or None
    """

    __slots__ = ("parameter", "name", "passes", "handle", "sent", "context", "group", "dense")

    def __init__(self, parameter: torch.Tensor, name: str, passes: int) -> None:
        self.parameter, self.name, self.passes = parameter, name, passes
        self.handle: Any = None
        self.sent: Optional[torch.Tensor] = None
        self.context: Any = None
        self.group: Optional["_Group"] = None
        self.dense = False  # a sparse gradient is reduced as a dense one


class _Group:
    """Gradients that are submitted together, when all of them are complete."""

    __slots__ = ("name", "members", "ready", "handle")

    def __init__(self, members: List[_Gradient]) -> None:
        self.name, self.members = members[0].name, members
        self.ready = 0
        self.handle: Optional[int] = None


def _check_names(named: Any, groups: List[Dict[str, Any]]) -> List[Tuple[str, torch.Tensor]]:
    """The pairs of names and parameters; ValueError if they do not cover the optimizer's."""
    parameters = [p for group in groups for p in group["params"]]
    if named is None:
        return [("allreduce.noname.%d.%d" % (i, j), p) for i, group in enumerate(groups)
                for j, p in enumerate(group["params"])]
    named = list(named.items() if isinstance(named, dict) else named)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in named):
        raise ValueError("named_parameters is a sequence of tuples (name, parameter), such as "
                         "model.named_parameters()")
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1}) if (
        len(set(names)) != len(names)) else []
    if twice:
        raise ValueError("names in named_parameters are not unique: %s" % ", ".join(twice))
    known = {id(p) for _, p in named}
    missing = [i for i, p in enumerate(parameters) if id(p) not in known]
    if missing:
        raise ValueError("named_parameters does not name all parameters of the optimizer: those "
                         "at %s, of shapes %s, are missing"
                         % (missing, [list(parameters[i].shape) for i in missing]))
    return named


def _check_groups(groups: Groups) -> None:
    if groups is None:
        return
    if isinstance(groups, int) and not isinstance(groups, bool):
        if groups < 0:
            raise ValueError("groups is a number above 0, or a list of lists of parameters, not %d"
                             % groups)
        return
    if not isinstance(groups, (list, tuple)):
        raise ValueError("groups is a number or a list of lists of parameters, not %r" % (groups,))
    seen = set()
    for members in groups:
        for p in members:
            if not isinstance(p, torch.Tensor):
                raise ValueError("groups lists parameters, not %r" % type(p).__name__)
            if id(p) in seen:
                raise ValueError("a parameter is in groups twice")
            seen.add(id(p))


class _Distributed:
    """What DistributedOptimizer adds to the class of an optimizer."""

    # ---- making it ----

    def _setup(self, named: Any, compression: Any, passes: int, op: int, predivide: float,
               groups: Groups, sparse_as_dense: bool, process_set: ProcessSet) -> None:
        self._compression = compression
        self.backward_passes_per_step = passes
        self.op = op
        self.gradient_predivide_factor = predivide
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self._parameter_names = {p: name for name, p in _check_names(named, self.param_groups)}
        _check_groups(groups)
        self._gradients: Dict[int, _Gradient] = {}  # by id of the parameter; in order
        self._submission_groups: List[_Group] = []
        self._touched = False  # a hook has run since the last synchronize()
        self._synchronized = False
        self._should_synchronize = True
        self._hooks: List[Any] = []
        self._add_hooks(p for group in self.param_groups for p in group["params"])
        if groups and process_set.active():
            self._make_groups(groups)

    def _add_hooks(self, parameters: Any) -> None:
        for p in parameters:
            if not p.requires_grad or id(p) in self._gradients:
                continue
            gradient = _Gradient(p, self._parameter_names[p], self.backward_passes_per_step)
            self._gradients[id(p)] = gradient
            hook = self._make_hook(gradient)
            if hasattr(p, "register_post_accumulate_grad_hook"):
                self._hooks.append(p.register_post_accumulate_grad_hook(hook))
            else:  # before torch 2.1; the node must be kept, or the hook is lost
                node = p.expand_as(p).grad_fn.next_functions[0][0]
                node.register_hook(hook)
                self._hooks.append(node)

    def _make_groups(self, groups: Any) -> None:
        """Form submission groups, in rank 0's order of the parameters."""
        by_name = {g.name: g for g in self._gradients.values()}
        order = broadcast_object(list(by_name), root_rank=self.process_set.ranks[0],
                                 name="DistributedOptimizer.groups", process_set=self.process_set)
        gradients = [by_name[name] for name in order if name in by_name]
        if isinstance(groups, int):
            size, more = divmod(len(gradients), groups)
            lists, at = [], 0
            for index in range(groups):
                end = at + size + (index < more)
                lists.append(gradients[at:end])
                at = end
        else:
            lists = [[self._gradients[id(p)] for p in members if id(p) in self._gradients]
                     for members in groups]
            listed = {id(g) for members in lists for g in members}
            lists += [[g] for g in gradients if id(g) not in listed]
        for members in lists:
            if members:
                group = _Group(members)
                self._submission_groups.append(group)
                for gradient in members:
                    gradient.group = group

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """As add_param_group() of the optimizer; gradients of the new parameters are reduced as
        well."""
        super().add_param_group(param_group)
        if not hasattr(self, "_gradients"):
            return
        number = len(self.param_groups) - 1
        for index, p in enumerate(self.param_groups[-1]["params"]):
            self._parameter_names.setdefault(p, "allreduce.noname.%d.%d" % (number, index))
        self._add_hooks(self.param_groups[-1]["params"])

    # ---- during backward() ----

    def _make_hook(self, gradient: _Gradient) -> Callable[..., None]:
        """The parameter keeps the hook alive. So the hook must not keep the optimizer alive: the
        program may replace the optimizer by another one."""
        this = weakref.ref(self)

        def hook(*_: Any) -> None:
            optimizer = this()
            if optimizer is not None and optimizer.process_set.active():
                optimizer._on_gradient(gradient)
        return hook

    def _on_gradient(self, gradient: _Gradient) -> None:
        """Called when a backward pass has added to a gradient."""
        if gradient.passes <= 0:
            raise AssertionError(
                "the gradient of '%s' was computed more than backward_passes_per_step = %d "
                "times before step(); raise backward_passes_per_step to accumulate gradients"
                % (gradient.name, self.backward_passes_per_step))
        self._touched = True
        gradient.passes -= 1
        if gradient.passes > 0:
            return
        group = gradient.group
        if group is None:
            self._submit(gradient)
            return
        group.ready += 1
        if group.ready == len(group.members):
            self._submit_group(group)

    def _factors(self) -> Tuple[float, float]:
        if self.op != Average or self.gradient_predivide_factor == 1.0:
            return 1.0, 1.0
        return 1.0 / self.gradient_predivide_factor, self.gradient_predivide_factor

    def _prepare(self, gradient: _Gradient) -> torch.Tensor:
        """The tensor to send for a dense gradient."""
        p = gradient.parameter
        if p.grad is None:
            p.grad = torch.zeros_like(p, memory_format=torch.preserve_format)
        tensor = p.grad
        gradient.dense = tensor.is_sparse
        if gradient.dense:
            tensor = tensor.to_dense()
        tensor, gradient.context = self._compression.compress(tensor)
        gradient.sent = tensor if tensor.is_contiguous() else tensor.contiguous()
        return gradient.sent

    def _submit(self, gradient: _Gradient) -> None:
        p = gradient.parameter
        if p.grad is not None and p.grad.is_sparse and not self.sparse_as_dense:
            gradient.handle = mpi_ops.sparse_allreduce_async(
                p.grad.coalesce(), gradient.name, self.op, self.process_set)
        else:
            tensor = self._prepare(gradient)
            prescale, postscale = self._factors()
            gradient.handle = submit.allreduce(tensor, tensor, gradient.name, self.op, prescale,
                                               postscale, self.process_set)

    def _submit_group(self, group: _Group) -> None:
        for gradient in group.members:
            grad = gradient.parameter.grad
            if grad is not None and grad.is_sparse and not self.sparse_as_dense:
                raise ValueError("the gradient of '%s' is sparse and in a group: pass "
                                 "sparse_as_dense=True" % gradient.name)
        tensors = [self._prepare(gradient) for gradient in group.members]
        prescale, postscale = self._factors()
        group.handle = mpi_ops._grouped_allreduce(tensors, tensors, "group of " + group.name,
                                                  self.op, prescale, postscale, self.process_set)
        group.ready = 0

    # ---- after backward() ----

    def synchronize(self) -> None:
        """Wait for all gradients. For gradients that no backward pass has made, submit zeros."""
        if self.process_set.active():
            for group in self._submission_groups:
                if group.handle is None:
                    self._submit_group(group)
            for gradient in self._gradients.values():
                if gradient.group is None and gradient.handle is None:
                    self._submit(gradient)
            try:
                self._wait()
            finally:
                self._reset()
        self._synchronized = True

    def _wait(self) -> None:
        """Wait for all plain calls together, then for the others one by one. Raises the first error
        after the wait for all: a call without a wait would keep its tensors."""
        entries = [(g, handles._pending.get(g.handle)) for g in self._gradients.values()
                   if g.group is None]
        plain = [(g, entry[0]) for g, entry in entries if type(entry) is tuple]
        requests = (c_void_p * len(plain))(*[request for _, request in plain])
        for gradient, _ in plain:
            handles._pending.pop(gradient.handle, None)
        status = lib.tutti_wait_all(requests, len(plain), -1)
        first: Optional[Exception] = failed(status) if status else None
        if first is None:
            for gradient, _ in plain:
                self._take(gradient, gradient.sent)
        others: List[Tuple[List[_Gradient], Any]] = [
            ([g], g.handle) for g, entry in entries if type(entry) is not tuple]
        others += [(group.members, group.handle) for group in self._submission_groups]
        for members, handle in others:
            try:
                result = handle() if callable(handle) else handles.synchronize(handle)
                parts = [result] if isinstance(result, torch.Tensor) else result
                for gradient, part in zip(members, parts):
                    self._take(gradient, part)
            except Exception as error:
                first = first or error
        if first is not None:
            raise first

    def _take(self, gradient: _Gradient, result: torch.Tensor) -> None:
        """Put a reduced gradient in its place."""
        p = gradient.parameter
        if result.is_sparse:
            p.grad = result
            return
        result = self._compression.decompress(result, gradient.context)
        if gradient.dense:
            p.grad = result.to_sparse()
        elif result.data_ptr() != p.grad.data_ptr():
            p.grad.copy_(result)

    def _reset(self) -> None:
        for gradient in self._gradients.values():
            gradient.passes = self.backward_passes_per_step
            gradient.handle = gradient.sent = gradient.context = None
        for group in self._submission_groups:
            group.ready, group.handle = 0, None
        self._touched = False

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """step() does not synchronize inside this context. For use after synchronize(), for example
        when the program has clipped the gradients."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def _step_alone(self, closure: Any = None) -> Any:
        """The step of the optimizer itself."""
        return super().step() if closure is None else super().step(closure)

    def step(self, closure: Any = None) -> Any:
        """Wait for the gradients, then make the optimizer's step.

        closure  computes the loss and its gradients; they are reduced before the step uses them
        """
        if not self._should_synchronize:
            self._synchronized = False
            return self._step_alone(closure)
        if closure is not None:
            return self._step_with(closure)
        if self._synchronized:
            warnings.warn("optimizer.step() called without optimizer.skip_synchronize() after "
                          "optimizer.synchronize(): the gradients are reduced twice",
                          stacklevel=2)
        self.synchronize()
        self._synchronized = False
        return self._step_alone()

    def _step_with(self, closure: Callable[[], Any]) -> Any:
        if self._touched:
            self.synchronize()

        def reduced() -> Any:
            with torch.enable_grad():
                loss = closure()
            self.synchronize()
            return loss

        try:
            return self._step_alone(reduced)
        finally:
            self._synchronized = False

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As zero_grad() of the optimizer. AssertionError: gradients are being reduced."""
        if self._touched:
            raise AssertionError("optimizer.zero_grad() was called after loss.backward() and "
                                 "before optimizer.step() or optimizer.synchronize(): gradients "
                                 "are being reduced")
        super().zero_grad(*args, **kwargs)

    # ---- other changes ----

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Change the number of backward passes before a step."""
        if passes <= 0:
            raise ValueError("backward_passes_per_step is above 0, not %r" % (passes,))
        self.backward_passes_per_step = passes
        for gradient in self._gradients.values():
            gradient.passes = passes

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """As load_state_dict() of the optimizer; gradients that are being reduced are forgotten."""
        if hasattr(self, "_gradients"):
            self._reset()
            self._synchronized = False
            self._should_synchronize = True
        super().load_state_dict(*args, **kwargs)

    def __getstate__(self) -> Dict[str, Any]:
        raise TypeError("a DistributedOptimizer cannot be pickled or copied: use its state_dict()")


# torch wraps the step of a class that has no such mark, to call the step hooks. Those of
# _Distributed are called in the optimizer's own step.
_Distributed.step.hooked = True  # type: ignore[attr-defined]


def DistributedOptimizer(optimizer: torch.optim.Optimizer, named_parameters: Any = None,
                         compression: Any = Compression.none, backward_passes_per_step: int = 1,
                         op: int = Average, gradient_predivide_factor: float = 1.0,
                         num_groups: int = 0, groups: Groups = None,
                         sparse_as_dense: bool = False,
                         process_set: ProcessSet = global_process_set) -> Any:
    """An optimizer that reduces gradients over the ranks before its step.

    optimizer                  of a class of torch.optim, or of any subclass of its Optimizer
    named_parameters           model.named_parameters(); names must be equal on all ranks. None:
                               the order of the parameters names them
    compression                of gradients on their way: Compression.none, .fp16 or .bf16
    backward_passes_per_step   gradients accumulate over so many passes before they are reduced
    op                         Average (default), Sum, Min, Max, Product
    gradient_predivide_factor  f, with op=Average: gradients are multiplied by 1/f before the sum
                               and by f/size after it
    num_groups                 deprecated: see groups
    groups                     a number: gradients are divided into so many groups, and those of a
                               group are submitted together. A list of lists of parameters: the
                               groups themselves
    sparse_as_dense            reduce sparse gradients as dense ones
    process_set                the ranks that reduce; other ranks make plain steps

    Methods besides the optimizer's: synchronize(), skip_synchronize(),
    set_backward_passes_per_step(passes).
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError("a torch.optim.Optimizer is needed, not %r" % type(optimizer).__name__)
    if isinstance(optimizer, _Distributed):
        raise ValueError("this optimizer is a DistributedOptimizer already")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=Average")
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if num_groups != 0:
        warnings.warn("num_groups is the older form of groups", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    if op not in OPS and not (op == Adasum and mpi_ops.size() == 1):
        no_such_op(op)
    base = type(optimizer)
    cls = type(base.__name__, (_Distributed, base), {"__module__": __name__})
    result = cls.__new__(cls)
    # Not these two: a learning rate scheduler replaces step on the optimizer that it was given.
    result.__dict__.update({key: value for key, value in optimizer.__dict__.items()
                            if key not in ("step", "zero_grad")})
    result._setup(named_parameters, compression, backward_passes_per_step, op,
                  gradient_predivide_factor, groups, sparse_as_dense, process_set)
    return result
