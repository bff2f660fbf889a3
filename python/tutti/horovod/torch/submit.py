# SPDX-License-Identifier: BSD-3-Clause
"""From tensors to requests of the library: the functions under all calls of mpi_ops.

allreduce() is called for every gradient, so it is short: one look-up for the type, one for the
name, one call of the library, one entry in the table of handles. Rare cases (scaling of integers,
device memory, groups, misuse) are passed on at the first `if`.
"""

from ctypes import addressof, byref, c_float, c_void_p, create_string_buffer, sizeof
from struct import Struct
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from ... import _lib
from ..._lib import lib
from ..common.exceptions import refused
from ..common.names import ALLREDUCE, BARRIER, BROADCAST, encode_name
from ..common.ops import OPS, Average, Sum, no_such_op
from ..common.process_sets import ProcessSet, comm_of
from . import dtypes, handles
from .handles import Requests

_CODES = dtypes.CODES
_pending = handles._pending
_next_handle = handles._next_handle

_c_allreduce: Callable[..., int]
_c_broadcast: Callable[..., int]
_c_start: Callable[..., int]


def bind() -> None:
    """Look the library's functions up: see handles.bind."""
    global _c_allreduce, _c_broadcast, _c_start
    _c_allreduce, _c_broadcast = lib.tutti_allreduce_async, lib.tutti_broadcast_async
    _c_start = lib.tutti_start
    handles.bind()


# ---- scaling ----

_options: Dict[Tuple[float, float, bool], Tuple[Any, int]] = {}


def _rounded(factor: float, dtype: torch.dtype) -> float:
    """A factor as the library gets it. Types up to 32 bits are multiplied by a factor of 32 bits,
    as torch would."""
    return factor if dtype == torch.float64 else c_float(factor).value


def options_of(prescale: float, postscale: float, dtype: torch.dtype) -> Optional[int]:
    """The address of options with these factors."""
    if prescale == 1.0 and postscale == 1.0:
        return None
    key = (prescale, postscale, dtype == torch.float64)
    known = _options.get(key)
    if known is None:
        options = _lib.AsyncOptions(prescale=_rounded(prescale, dtype),
                                    postscale=_rounded(postscale, dtype))
        # A factor may change in each step. Only the oldest entry is dropped, because a submission
        # may still use the address of a newer one.
        if len(_options) > 1000:
            _options.pop(next(iter(_options)))
        known = _options[key] = (options, addressof(options))
    return known[1]


def by_hand(tensor: torch.Tensor, prescale: float, postscale: float) -> bool:
    """Whether the factors are applied here: the library scales floating point tensors only, and
    reads 0 as "none"."""
    return (prescale != 1.0 or postscale != 1.0) and (
        not tensor.dtype.is_floating_point or _rounded(prescale, tensor.dtype) == 0
        or _rounded(postscale, tensor.dtype) == 0)


def scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """tensor * factor, computed in 64 bits and converted to the type of `tensor`; integers are
    truncated."""
    return tensor if factor == 1.0 else (tensor.to(torch.float64) * factor).to(tensor.dtype)


class ByHand:
    """A reduction whose factors are applied here, before and after it."""

    def __init__(self, op: int, prescale: float, postscale: float, size: int,
                 dtype: torch.dtype) -> None:
        self.op, self.before, self.after = op, prescale, postscale
        if op == Average and not dtype.is_floating_point:  # truncated once
            self.op, self.after = Sum, postscale / size

    def input(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor to send."""
        return scaled(tensor, self.before)

    def finish(self, output: torch.Tensor) -> torch.Tensor:
        """Scale the result in place."""
        if self.after != 1.0:
            output.copy_(scaled(output, self.after))
        return output


# ---- repeated calls ----

# A gradient is reduced in each step, often at the same address. The second call with the same name,
# buffers, count, type and operation makes a persistent request, and later ones start it: 1000
# tensors of 1 KiB took 1.5 ms with persistent requests and 4.2 ms without (two ranks, without
# Python's part). By name: the call, and its persistent request or None.
_repeated: Dict[str, List[Any]] = {}
_retired: List[int] = []  # requests that were pending, so that they could not be freed
_REPEATED_KEPT = 4096

Repeat = Tuple[int, int, int, int, int, int]  # buffers, count, type, operation, communicator


def _free_repeated(request: Optional[int]) -> None:
    if request is not None and lib.tutti_request_free(request):
        _retired.append(request)


def _note_call(name: str, call: Repeat, known: Optional[List[Any]]) -> None:
    """Record the call of this name, because it differs from the last call of the same name."""
    if known is not None:
        _free_repeated(known[1])
    elif len(_repeated) >= _REPEATED_KEPT:
        return
    _repeated[name] = [call, None]


def _make_persistent(name: str, known: List[Any]) -> Optional[int]:
    """The persistent request of a call; None: the library makes none."""
    sendbuf, recvbuf, count, code, op, comm = known[0]
    call = _lib.Call(kind=_KINDS["allreduce"], name=ALLREDUCE.get(name), dtype=code, op=op,
                     sendbuf=sendbuf, recvbuf=recvbuf, count=count)
    request = c_void_p()
    if not lib.tutti_persistent_create(byref(call), comm, byref(request)):
        known[1] = request.value
    return known[1]


def forget_repeated() -> None:
    """The library has ended, and no request is pending: free the persistent ones."""
    for _, request in _repeated.values():
        _free_repeated(request)
    _repeated.clear()
    for request in _retired:
        lib.tutti_request_free(request)
    _retired.clear()


# ---- one tensor ----

def allreduce(tensor: torch.Tensor, output: torch.Tensor, name: Optional[str], op: int,
              prescale: float, postscale: float, process_set: ProcessSet) -> int:
    """Start an allreduce of `tensor` into `output`, which may be the same. Returns a handle."""
    code = _CODES.get(tensor.dtype)
    comm = process_set.comm
    c_op = OPS.get(op)
    options = None
    if (code is None or comm is None or c_op is None or not tensor.is_cpu
            or not tensor.is_contiguous() or (name is None and tensor.dim() > 1)):
        return _allreduce_rare(tensor, output, name, op, prescale, postscale, process_set)
    if prescale != 1.0 or postscale != 1.0:
        if by_hand(tensor, prescale, postscale):
            return _allreduce_rare(tensor, output, name, op, prescale, postscale, process_set)
        options = options_of(prescale, postscale, tensor.dtype)
    sendbuf, recvbuf, count = tensor.data_ptr(), output.data_ptr(), tensor.numel()
    data = ALLREDUCE.get(name) or ALLREDUCE.add(name, process_set)
    if options is None and name is not None:
        call = (sendbuf, recvbuf, count, code, c_op, comm)
        known = _repeated.get(name)
        if known is None or known[0] != call:
            _note_call(name, call, known)
        else:
            repeated = known[1] or _make_persistent(name, known)
            # The start fails if the request's last run was not waited for: then make an ordinary
            # call.
            if repeated is not None and _c_start(repeated) == 0:
                handle = _next_handle()
                _pending[handle] = (repeated, output, tensor)
                return handle
    request = c_void_p()
    status = _c_allreduce(data, sendbuf, recvbuf, count, code, c_op, comm, options, byref(request))
    if status:
        raise refused(status)
    handle = _next_handle()
    _pending[handle] = (request.value, output, tensor)
    return handle


def _allreduce_rare(tensor: torch.Tensor, output: torch.Tensor, name: Optional[str], op: int,
                    prescale: float, postscale: float, process_set: ProcessSet) -> int:
    """As allreduce(), for the cases that it does not handle: device memory, scaled integers, a
    factor of 0, and calls whose shapes are compared (no name, several dimensions). Raises the error
    if the call is a misuse."""
    if op not in OPS:
        no_such_op(op)
    dtypes.check(tensor)
    comm_of(process_set)
    data = ALLREDUCE.get(name) or ALLREDUCE.add(name, process_set)
    pending = grouped_allreduce([tensor], [output], [data], op, prescale, postscale, process_set,
                                compare=name is None)
    pending.finish = _first_of(pending.finish)
    return handles.add(pending)


def _first_of(function: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: function()[0]


def broadcast(tensor: torch.Tensor, root_rank: int, name: Optional[str],
              process_set: ProcessSet) -> int:
    """Start a broadcast in place. root_rank is a rank of the job. Returns a handle."""
    dtypes.check(tensor)
    comm = comm_of(process_set)
    root = process_set.place_of(root_rank)
    data = BROADCAST.get(name) or BROADCAST.add(name, process_set)
    code = _CODES[tensor.dtype]
    if tensor.is_cuda or name is None:
        calls = Calls(1)
        calls.add("broadcast", data, code, recv=tensor, count=tensor.numel(), root=root)
        if name is None:
            calls.compare(data, [tensor])
        return handles.add(calls.submit(comm, lambda: tensor, tensor))
    request = c_void_p()
    status = _c_broadcast(data, tensor.data_ptr(), tensor.numel(), code, root, comm, None,
                          byref(request))
    if status:
        raise refused(status)
    return handles.add((request.value, tensor, tensor))


def barrier(process_set: ProcessSet) -> None:
    """Wait until all ranks of the set have called this."""
    comm = comm_of(process_set)
    request = c_void_p()
    status = lib.tutti_barrier_async(BARRIER.add(None, process_set), comm, None, byref(request))
    if status:
        raise refused(status)
    handles.wait_plain(request.value)


# ---- several calls in one submission ----

_LAYOUT = Struct("@NiiiiiPPPNNPPPPP")  # tutti_call_t
assert _LAYOUT.size == sizeof(_lib.Call), "the layout of tutti_call_t"
_KINDS = _lib.CALL_KINDS


class Calls:
    """An array of tutti_call_t, filled in place: faster than one ctypes structure after another.
    It has room for `count` calls and a comparison."""

    def __init__(self, count: int) -> None:
        self.memory = create_string_buffer(_LAYOUT.size * (count + 1))
        self.count = 0
        self.shapes = ""
        self.kept: List[Any] = []

    def add(self, kind: str, name: bytes, code: int, send: Optional[torch.Tensor] = None,
            recv: Optional[torch.Tensor] = None, count: int = 0, op: int = 0, root: int = 0,
            options: Optional[int] = None, sendcounts: int = 0, recvcounts: int = 0) -> None:
        """One more call."""
        text = create_string_buffer(name)
        _LAYOUT.pack_into(self.memory, _LAYOUT.size * self.count, _LAYOUT.size, _KINDS[kind], code,
                          op, root, 0, addressof(text), send.data_ptr() if send is not None else 0,
                          recv.data_ptr() if recv is not None else 0, count, 0, sendcounts, 0,
                          recvcounts, 0, options or 0)
        self.count += 1
        self.kept.append((text, send, recv))

    def compare(self, name: bytes, tensors: Sequence[torch.Tensor]) -> None:
        """Let the ranks compare the shapes of the tensors: by a barrier in the same submission,
        which has the shapes in its name. If the names differ, so do the submissions, and all
        ranks get an error. The library itself compares the numbers of elements. On a device a
        submission has no barrier."""
        if any(tensor.dim() > 1 for tensor in tensors) and not tensors[0].is_cuda:
            self.shapes = " ".join("x".join(map(str, tensor.shape)) for tensor in tensors)
            text = "%s of shape %s" % (name.decode("utf-8", "replace"), self.shapes)
            self.add("barrier", encode_name(text), 0)

    def submit(self, comm: int, finish: Callable[[], Any], tensor: torch.Tensor) -> Requests:
        """Submit all of them, all or nothing. tensor: one of the tensors; all are on one device. On
        a GPU the calls follow the work in its current stream."""
        requests = (c_void_p * self.count)()
        stream = None
        if tensor.is_cuda:
            stream = torch.cuda.current_stream(tensor.device)
            status = lib.tutti_cuda_submit(self.memory, self.count, comm, stream.cuda_stream,
                                           requests)
        else:
            status = lib.tutti_submit(self.memory, self.count, comm, requests)
        if status:
            raise refused(status)
        return Requests(requests, finish, self.kept, stream, self.shapes)


def check_group(tensors: Sequence[torch.Tensor]) -> None:
    """ValueError if tensors cannot be sent together."""
    if not tensors:
        raise ValueError("a grouped call needs a tensor")
    for tensor in tensors:
        dtypes.check(tensor)
        if tensor.device != tensors[0].device:
            raise ValueError("the tensors of a grouped call are on %s and %s"
                             % (tensors[0].device, tensor.device))


def grouped_allreduce(tensors: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor],
                      names: Sequence[bytes], op: int, prescale: float, postscale: float,
                      process_set: ProcessSet, compare: bool) -> Requests:
    """Start allreduces as one submission. Its result is the list of outputs.

    compare  let the ranks compare shapes; otherwise they compare numbers of elements
    """
    if op not in OPS:
        no_such_op(op)
    comm, size = comm_of(process_set), process_set.size() or 1
    calls, after = Calls(len(tensors)), []
    for tensor, output, name in zip(tensors, outputs, names):
        options, c_op, source = None, OPS[op], tensor
        if prescale != 1.0 or postscale != 1.0:
            if by_hand(tensor, prescale, postscale):
                hand = ByHand(op, prescale, postscale, size, tensor.dtype)
                c_op, source = OPS[hand.op], hand.input(tensor)
                after.append((hand, output))
            else:
                options = options_of(prescale, postscale, tensor.dtype)
        calls.add("allreduce", name, _CODES[tensor.dtype], source, output, tensor.numel(), c_op,
                  options=options)
    if compare:
        calls.compare(names[0], tensors)
    return calls.submit(comm, _finisher(outputs, after), tensors[0])


def _finisher(outputs: Sequence[torch.Tensor],
              after: Sequence[Tuple[ByHand, torch.Tensor]]) -> Callable[[], List[torch.Tensor]]:
    def finish() -> List[torch.Tensor]:
        for hand, output in after:
            hand.finish(output)
        return list(outputs)
    return finish


def parts_of(rows: int, size: int) -> List[int]:
    """Rows of each rank's part of a reducescatter. If the number of rows is not a multiple of the
    number of ranks, the first ranks get one more."""
    least, more = divmod(rows, size)
    return [least + (rank < more) for rank in range(size)]


def reducescatter(tensors: Sequence[torch.Tensor], names: Sequence[bytes], op: int,
                  prescale: float, postscale: float, process_set: ProcessSet) -> Requests:
    """Start reducescatters as one submission. Its result is the list of this rank's parts."""
    if op not in (Average, Sum):
        raise NotImplementedError("reducescatter takes op=Average and op=Sum, not %r" % (op,))
    comm, size, rank = comm_of(process_set), process_set.size() or 1, process_set.rank()
    for tensor in tensors:
        if tensor.dim() == 0:
            raise ValueError("reducescatter needs a tensor of one dimension or more")
    calls, after, outputs = Calls(len(tensors)), [], []
    for tensor, name in zip(tensors, names):
        options, c_op, source = None, OPS[op], tensor
        parts = parts_of(tensor.shape[0], size)
        output = torch.empty((parts[rank],) + tuple(tensor.shape[1:]), dtype=tensor.dtype,
                             device=tensor.device)
        if by_hand(tensor, prescale, postscale):
            hand = ByHand(op, prescale, postscale, size, tensor.dtype)
            c_op, source = OPS[hand.op], hand.input(tensor)
            after.append((hand, output))
        else:
            options = options_of(prescale, postscale, tensor.dtype)
        _add_reducescatter(calls, name, source, output, parts, c_op, options)
        outputs.append(output)
    calls.compare(names[0], tensors)
    return calls.submit(comm, _finisher(outputs, after), tensors[0])


def _add_reducescatter(calls: Calls, name: bytes, source: torch.Tensor, output: torch.Tensor,
                       parts: List[int], c_op: int, options: Optional[int]) -> None:
    """Equal parts can be fused with others; unequal ones cannot."""
    code = _CODES[source.dtype]
    if len(set(parts)) == 1:
        calls.add("reduce_scatter", name, code, source, output, output.numel(), c_op,
                  options=options)
        return
    row = source.numel() // source.shape[0]
    counts = _lib.size_array([part * row for part in parts])
    calls.kept.append(counts)
    calls.add("reduce_scatterv", name, code, source, output, 0, c_op, options=options,
              recvcounts=addressof(counts))
