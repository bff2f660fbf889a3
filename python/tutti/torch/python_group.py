# SPDX-License-Identifier: BSD-3-Clause
"""The backend in Python, over ctypes: for machines without a C++ compiler.

It makes the same calls as csrc/, under the same names, so ranks with either backend work together.
PythonGroup is a subclass of ProcessGroup, which torch uses instead of its own class. No other form
is accepted by all versions of torch from 2.5 on.
"""

import sys
import threading
import time
from collections import deque
from ctypes import byref, c_void_p, pointer
from datetime import timedelta
from typing import Any, Deque, List, Optional, Sequence

import torch
import torch.distributed as dist

from .. import _lib
from . import origin, python_meeting, python_messages
from .python_exchanges import Exchanges
from .python_work import (MESSAGES, Calls, PythonWork, Tensors, bytes_of, element_of, error_of,
                          is_number, milliseconds)

_OPERATIONS = {"SUM": _lib.SUM, "AVG": _lib.AVG, "PRODUCT": _lib.PROD, "MIN": _lib.MIN,
               "MAX": _lib.MAX, "BAND": _lib.BAND, "BOR": _lib.BOR, "BXOR": _lib.BXOR,
               "PREMUL_SUM": _lib.SUM}


def _name_of(op: Any) -> str:
    """The name of a reduce operation."""
    for name in _OPERATIONS:
        if op == getattr(dist.ReduceOp, name):
            return name
    return str(op)


def _factor_of(op: Any, t: torch.Tensor) -> float:
    """The factor of a PREMUL_SUM of `t`. Python code can read the factor only in the state that
    pickle would store."""
    if not (t.is_floating_point() or t.is_complex()):
        raise ValueError("tutti: PREMUL_SUM needs a floating point type, not %s" % t.dtype)
    try:
        factor = op.__getstate__()[1]
    except (RuntimeError, TypeError):
        raise ValueError("tutti: PREMUL_SUM has no factor") from None
    factor = float(factor)  # a number, or a tensor of one element
    if factor == 0:
        raise ValueError("tutti: the factor of PREMUL_SUM must not be 0")
    return factor


_FREES_WORKS = tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 11)
_KEPT = 256  # far more than a caller has in flight


class PythonGroup(Exchanges, dist.ProcessGroup):
    """The communicator of one group, with the methods that torch calls."""

    _in_vain = -1000.0  # when _say_goodbye() has last timed out, on the monotonic clock

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, name: str) -> None:
        super().__init__(rank, size)
        self._rank, self._size, self._store = rank, size, store
        self._name = self._desc = name
        self.label = "tutti: group %s" % name if name else "tutti"
        self.timeout_ms = milliseconds(timeout)
        self.has_new_timeout = False  # timeout_ms was changed after the communicator was made
        self._lock = threading.Lock()
        # Held during calls of the library on `comm`, and while shutdown() sets `comm` to None:
        # while the communicator is freed, no other thread may be in a call on it. Re-entrant: a
        # signal handler may call abort().
        self._using_comm = threading.RLock()
        self._sequence = self._monitored = 0
        # torch before 2.11 does not keep the Work of a C++ caller. A wait for a freed Work would
        # never end, so _works keeps each Work until it has ended. With torch before 2.11, _ended
        # then keeps the newest Works for which no caller has waited yet.
        self._works: List[PythonWork] = []
        self._ended: Deque[PythonWork] = deque(maxlen=_KEPT)
        self._batch: Optional[Calls] = None
        self._batch_outputs: Tensors = []
        self.comm: Optional[int]
        self.comm, self._prefix = python_meeting.meet(self, store, name or "world")
        self._messages = python_messages.Messages(self)

    # ---- properties that torch reads ----

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """The number of ranks."""
        return self._size

    def getBackendName(self) -> str:
        """The name of the backend."""
        return "tutti"

    def name(self) -> str:
        """The name of the backend."""
        return "tutti"

    def getRank(self) -> int:
        """As rank()."""
        return self._rank

    def getSize(self) -> int:
        """As size()."""
        return self._size

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        """torch's name of the group."""
        return self._name

    setGroupName = _set_group_name
    group_name = property(getGroupName)

    def _set_group_desc(self, desc: str) -> None:
        self._desc = desc

    def getGroupDesc(self) -> str:
        """torch's description of the group."""
        return self._desc

    setGroupDesc = _set_group_desc
    group_desc = property(getGroupDesc)

    def _get_backend(self, _device: Any) -> "PythonGroup":
        return self

    def _set_default_backend(self, _backend_type: Any) -> None:
        pass

    def _has_hooks(self) -> bool:
        return False

    supports_coalescing = supports_splitting = False

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def _set_sequence_number_for_group(self) -> None:
        pass

    def set_timeout(self, timeout: timedelta) -> None:
        """The timeout of later calls."""
        self.timeout_ms = milliseconds(timeout)
        self.has_new_timeout = True

    def shutdown(self) -> None:
        """Free the communicator. Waits for this rank's calls and for the other ranks, but only for
        some seconds."""
        with self._using_comm:
            comm, self.comm = self.comm, None
        if comm is not None:
            self._drain()
            goodbye = self._say_goodbye(comm)
            _lib.lib.tutti_comm_free(comm)
            if goodbye is not None:  # it has ended now
                _lib.lib.tutti_wait(goodbye, -1)
            self._messages.close()

    def _drain(self) -> None:
        """Wait for the calls that this rank has submitted: see csrc/work.hpp."""
        end = time.monotonic() + 5
        with self._lock:
            works = list(self._works)
        for work in works:
            work._take(max(0, int((end - time.monotonic()) * 1000)))

    def _say_goodbye(self, comm: int) -> Optional[int]:
        """Wait for the other ranks to leave, for a short time: see csrc/work.hpp. If this time was
        too short, returns the request."""
        if self._size == 1 or time.monotonic() - PythonGroup._in_vain < 10:
            return None
        call, place = _lib.Call(kind=_lib.CALL_KINDS["barrier"], name=b"goodbye"), c_void_p()
        if _lib.lib.tutti_submit(byref(call), 1, comm, byref(place)):
            return None
        if _lib.lib.tutti_wait(place.value, 2000) != _lib.TIMEOUT:
            return None
        PythonGroup._in_vain = time.monotonic()
        return place.value

    def abort(self) -> None:
        """End the communicator on all ranks."""
        with self._using_comm:
            if self.comm is not None:
                _lib.lib.tutti_abort(self.comm, b"the program has aborted the process group")

    def __del__(self) -> None:
        try:
            if sys.is_finalizing():  # perhaps because of an error: do not wait for the others
                _lib.lib.tutti_comm_free(self.comm)
            else:
                self.shutdown()
        except Exception:  # the interpreter may be ending
            pass

    # ---- how every call is made ----

    def forget(self, work: PythonWork, is_asked: bool) -> None:
        """Called when a Work has ended. is_asked: the caller has waited for the Work, or has its
        future."""
        with self._lock:
            if work in self._works:
                self._works.remove(work)
                if not is_asked and _FREES_WORKS:
                    self._ended.append(work)

    def release(self, work: PythonWork) -> None:
        """Called when a caller waits for a Work that has ended: stop keeping the Work."""
        if not self._ended:
            return
        with self._lock:
            if work in self._ended:
                self._ended.remove(work)

    def submit(self, calls: Calls, timeout: Any = None) -> Any:
        """Submit collectives as one submission group, and each message alone; see csrc/group.hpp.
        Returns the requests."""
        self._check_open()
        limit = milliseconds(timeout)
        collectives = [c for c in calls.calls if c.kind not in MESSAGES]
        messages = [c for c in calls.calls if c.kind in MESSAGES]
        if collectives:
            calls.name = origin.next_name()
            if not calls.name:
                with self._lock:
                    self._sequence += 1
                    calls.name = "#%d" % self._sequence
            is_ordered = calls.name[0] == "#" and len(collectives) == 1
            for i, call in enumerate(collectives):
                part = ".%d" % i if len(collectives) > 1 else ""
                call.name = None if is_ordered else (calls.name + part).encode()
        elif messages:
            calls.name = messages[0].name.decode()
        for call in calls.calls:
            if not call.options:
                call.options = pointer(_lib.AsyncOptions())
        if limit <= 0 and self.has_new_timeout:
            limit = self.timeout_ms
        for call in collectives:  # a message has a deadline only while a thread waits for it
            if limit > 0 and (limit != self.timeout_ms or self.has_new_timeout):
                call.options.contents.timeout_ms = limit
        requests: List[Optional[int]] = []
        for part in [collectives] + [[m] for m in messages]:
            if not part:
                continue
            try:
                requests += self._submit_list(calls, part)
            except Exception as error:
                if not requests:
                    raise
                # The Work waits for the requests of the earlier parts, and ends with this error.
                calls.refused = error
                break
        return requests

    def _check_open(self) -> None:
        if self.comm is None:
            raise dist.DistBackendError("%s: the group was shut down" % self.label)

    def _submit_list(self, calls: Calls, part: Sequence[_lib.Call]) -> List[Optional[int]]:
        array = (_lib.Call * len(part))(*part)
        places = (c_void_p * len(part))()
        stream = None
        if calls.device is not None and calls.device.type == "cuda":
            stream = torch.cuda.current_stream(calls.device).cuda_stream
        with self._using_comm:
            self._check_open()
            if stream is not None:
                status = _lib.lib.tutti_cuda_submit(array, len(part), self.comm, stream, places)
            else:
                status = _lib.lib.tutti_submit(array, len(part), self.comm, places)
        if status:
            raise error_of(status, self.label)
        return list(places)

    def start(self, calls: Calls, outputs: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """Submit the calls. Returns the Work. If async_op is False, the Work has ended."""
        if self._batch is not None:
            self._batch.absorb(calls)
            self._batch_outputs += outputs
            return None
        requests = self.submit(calls, getattr(opts, "timeout", None))
        work = PythonWork(self, calls, requests, list(outputs))
        if opts is not None and not getattr(opts, "asyncOp", True):
            work.wait()
            return work
        with self._lock:
            self._works.append(work)
        self._complete_old(work)
        return work

    def _complete_old(self, newest: PythonWork) -> None:
        """Complete Work that has ended: the program may never wait for it. Each call checks the
        next two Works of the list, so a Work that stays pending does not hold up the others."""
        for _ in range(2):
            with self._lock:
                if not self._works or self._works[0] is newest:
                    return
                work = self._works.pop(0)
                self._works.append(work)
            work.is_completed()

    def _only(self, tensors: Sequence[torch.Tensor], what: str) -> torch.Tensor:
        if len(tensors) != 1:
            raise ValueError("tutti: %s takes one tensor, not %d" % (what, len(tensors)))
        return tensors[0]

    def _check_root(self, root: int, what: str) -> int:
        if not 0 <= root < self._size:
            raise ValueError("tutti: %s: rank %d is not in the group, which has %d ranks"
                             % (what, root, self._size))
        return root

    def _reduction(self, calls: Calls, kind: str, t: torch.Tensor, op: Any) -> _lib.Call:
        """A reducing call of the type of `t`."""
        calls.check(t)
        name = _name_of(op)
        if not is_number(t):
            raise NotImplementedError("tutti: cannot reduce tensors of type %s" % t.dtype)
        if t.is_complex() and name not in ("SUM", "AVG", "PREMUL_SUM"):
            raise ValueError("tutti: this reduce operation has no meaning for complex numbers "
                             "(type %s)" % t.dtype)
        if name not in _OPERATIONS:
            raise ValueError("tutti: unknown reduce operation %s" % op)
        call = calls.add(kind, element_of(t)[0], op=_OPERATIONS[name])
        if name == "PREMUL_SUM":
            call.options = pointer(_lib.AsyncOptions(prescale=_factor_of(op, t)))
        return call

    # ---- reductions, broadcast, barrier ----

    def broadcast(self, tensors: Tensors, opts: Any) -> Any:  # type: ignore[override]
        """Copy the root's tensor to all ranks."""
        calls, t = Calls("broadcast"), self._only(tensors, "broadcast")
        dtype, per = element_of(t)
        root = self._check_root(opts.rootRank, "broadcast")
        # The root's tensor is only read: it may be one that cannot be written, such as an expanded
        # tensor.
        address = calls.in_(t) if root == self._rank else calls.out(t)
        calls.add("broadcast", dtype, recvbuf=address, count=t.numel() * per, root=root)
        return self.start(calls, tensors, opts)

    def _add_allreduce(self, calls: Calls, t: torch.Tensor, op: Any) -> None:
        call = self._reduction(calls, "allreduce", t, op)
        call.recvbuf = call.sendbuf = calls.out(t, True)
        call.count = t.numel() * element_of(t)[1]

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:  # type: ignore[override]
        """Reduce over all ranks."""
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        opts = opts or dist.AllreduceOptions()
        calls, t = Calls("all_reduce"), self._only(tensors, "all_reduce")
        if t.is_sparse:
            if _name_of(opts.reduceOp) != "SUM":
                raise NotImplementedError("tutti: all_reduce of sparse tensors can only sum")
            self.add_sparse_sum(calls, t, opts)
        else:
            self._add_allreduce(calls, t, opts.reduceOp)
        return self.start(calls, tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Any:  # type: ignore[override]
        """Reduce several tensors, as one submission."""
        calls = Calls("all_reduce_coalesced")
        if not tensors:
            raise ValueError("tutti: all_reduce_coalesced needs a tensor")
        for t in tensors:
            self._add_allreduce(calls, t, opts.reduceOp)
        return self.start(calls, tensors, opts)

    def reduce(self, tensors: Tensors, opts: Any) -> Any:  # type: ignore[override]
        """Reduce over all ranks, for the root."""
        calls, t = Calls("reduce"), self._only(tensors, "reduce")
        call = self._reduction(calls, "reduce", t, opts.reduceOp)
        call.root = self._check_root(opts.rootRank, "reduce")
        if call.root == self._rank:
            call.sendbuf = call.recvbuf = calls.out(t, True)
        else:
            call.sendbuf = calls.in_(t)
        call.count = t.numel() * element_of(t)[1]
        return self.start(calls, tensors, opts)

    def reduce_scatter(self, outputs: Tensors, inputs: List[Tensors],  # type: ignore[override]
                       opts: Any) -> Any:
        """Reduce a list, and leave each rank its entry."""
        calls, output = Calls("reduce_scatter"), self._only(outputs, "reduce_scatter")
        if len(inputs) != 1 or len(inputs[0]) != self._size:
            raise ValueError("tutti: reduce_scatter needs one input for each of %d ranks"
                             % self._size)
        call = self._reduction(calls, "reduce_scatter", output, opts.reduceOp)
        address, counts = calls.flat(inputs[0], output, False)
        other = (address, bytes_of(inputs[0]), (0, bytes_of(inputs[0][:self._rank])))
        call.sendbuf, call.recvbuf = address, calls.out(output, other=other)
        call.count = output.numel() * element_of(output)[1]
        if counts[self._rank] != call.count:
            raise ValueError("tutti: reduce_scatter: the output has %d elements, input %d has %d"
                             % (output.numel(), self._rank, inputs[0][self._rank].numel()))
        if any(count != call.count for count in counts):
            call.kind, call.count = _lib.CALL_KINDS["reduce_scatterv"], 0
            call.recvcounts = calls.counts(counts)
        return self.start(calls, outputs, opts)

    def _add_reduce_scatter(self, calls: Calls, output: torch.Tensor, input_: torch.Tensor,
                            op: Any) -> None:
        if input_.numel() != output.numel() * self._size or input_.dtype != output.dtype:
            raise ValueError("tutti: reduce_scatter_tensor: the input has %d elements of %s, the "
                             "output of %s needs %d" % (input_.numel(), input_.dtype, output.dtype,
                                                        output.numel() * self._size))
        call = self._reduction(calls, "reduce_scatter", output, op)
        address = calls.in_(input_)
        other = (address, bytes_of([input_]), (0, self._rank * bytes_of([output])))
        call.sendbuf, call.recvbuf = address, calls.out(output, other=other)
        call.count = output.numel() * element_of(output)[1]

    def _reduce_scatter_base(self, output: torch.Tensor,  # type: ignore[override]
                             input_: torch.Tensor, opts: Any) -> Any:
        """Reduce a tensor, and leave each rank its part."""
        calls = Calls("reduce_scatter_tensor")
        self._add_reduce_scatter(calls, output, input_, opts.reduceOp)
        return self.start(calls, [output], opts)

    def reduce_scatter_tensor_coalesced(self, outputs: Tensors,  # type: ignore[override]
                                        inputs: Tensors, opts: Any) -> Any:
        """Several _reduce_scatter_base, as one submission."""
        calls = Calls("reduce_scatter_tensor_coalesced")
        if not outputs or len(outputs) != len(inputs):
            raise ValueError("tutti: reduce_scatter_tensor_coalesced: %d inputs for %d outputs"
                             % (len(inputs), len(outputs)))
        for output, input_ in zip(outputs, inputs):
            self._add_reduce_scatter(calls, output, input_, opts.reduceOp)
        return self.start(calls, outputs, opts)

    def barrier(self, opts: Any = None) -> Any:  # type: ignore[override]
        """Wait for all ranks."""
        calls = Calls("barrier")
        calls.add("barrier", 0)
        return self.start(calls, [], opts)

    # torch 2.14 has new names for these.
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
