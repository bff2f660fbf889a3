# SPDX-License-Identifier: BSD-3-Clause
"""The part of the Python backend that moves data, as csrc/exchanges.hpp; monitored_barrier and
coalescing, as csrc/lifecycle.hpp."""

import math
import time
from datetime import timedelta
from typing import Any, List, Optional, Sequence

import torch
import torch.distributed as dist

from .python_work import Calls, Tensors, bytes_of, element_of, milliseconds


def _split_counts(t: torch.Tensor, sizes: Sequence[int], size: int, what: str) -> List[int]:
    """The counts of the parts of `t`; without sizes, equal parts."""
    per = element_of(t)[1]
    rows = t.shape[0] if t.dim() else t.numel()
    row = t.numel() // rows * per if rows else 0
    if not sizes:
        if rows % size:
            raise ValueError("tutti: all_to_all_single: dimension 0 of the %s is %d, which %d "
                             "ranks do not divide" % (what, rows, size))
        return [rows // size * row] * size
    if len(sizes) != size or sum(sizes) != rows or min(sizes) < 0:
        raise ValueError("tutti: all_to_all_single: the split sizes %s of the %s do not divide "
                         "its %d rows among %d ranks" % (list(sizes), what, rows, size))
    return [part * row for part in sizes]


class Exchanges:
    """Methods of PythonGroup."""

    _rank: int
    _size: int
    _batch: Optional[Calls]
    _batch_outputs: Tensors

    def _check_count(self, what: str, whole: int, part: int, role: str) -> None:
        if whole != part:
            raise ValueError("tutti: %s: this rank's tensor has %d elements, its %s has %d"
                             % (what, part, role, whole))

    def _add_allgather(self, calls: Calls, outputs: Tensors, input_: torch.Tensor) -> None:
        if len(outputs) != self._size:
            raise ValueError("tutti: all_gather needs an output for each of %d ranks" % self._size)
        dtype, per = element_of(input_)
        address, counts = calls.flat(outputs, input_, True)
        other = (address, bytes_of(outputs), (bytes_of(outputs[:self._rank]),))
        call = calls.add("allgather", dtype, sendbuf=calls.in_(input_, other), recvbuf=address,
                         count=input_.numel() * per)
        self._check_count("all_gather", counts[self._rank], call.count, "output")
        if any(count != call.count for count in counts):
            call.kind = 7
            call.recvcounts = calls.counts(counts)

    def allgather(self, outputs: List[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        """Gather tensors of all ranks, of any sizes."""
        calls = Calls("all_gather")
        if len(outputs) != 1 or len(inputs) != 1:
            raise ValueError("tutti: all_gather takes one input and one list of outputs")
        self._add_allgather(calls, outputs[0], inputs[0])
        return self.start(calls, outputs[0], opts)  # type: ignore[attr-defined]

    def allgather_coalesced(self, outputs: List[Tensors], inputs: Tensors,
                            opts: Any = None) -> Any:
        """Several allgathers, as one submission."""
        calls, results = Calls("all_gather_coalesced"), []
        for i, input_ in enumerate(inputs):
            parts = [of_rank[i] for of_rank in outputs]
            self._add_allgather(calls, parts, input_)
            results += parts
        return self.start(calls, results, opts)  # type: ignore[attr-defined]

    def _add_base(self, calls: Calls, output: torch.Tensor, input_: torch.Tensor) -> None:
        if output.numel() != input_.numel() * self._size or output.dtype != input_.dtype:
            raise ValueError("tutti: all_gather_into_tensor: the output has %d elements of %s, the "
                             "input of %s needs %d" % (output.numel(), output.dtype, input_.dtype,
                                                       input_.numel() * self._size))
        dtype, per = element_of(input_)
        address = calls.out(output)
        other = (address, bytes_of([output]), (self._rank * bytes_of([input_]),))
        calls.add("allgather", dtype, sendbuf=calls.in_(input_, other), recvbuf=address,
                  count=input_.numel() * per)

    def _allgather_base(self, output: torch.Tensor, input_: torch.Tensor,
                        opts: Any = None) -> Any:
        """Gather into one tensor."""
        calls = Calls("all_gather_into_tensor")
        self._add_base(calls, output, input_)
        return self.start(calls, [output], opts)  # type: ignore[attr-defined]

    def allgather_into_tensor_coalesced(self, outputs: Tensors, inputs: Tensors,
                                        opts: Any = None) -> Any:
        """Several _allgather_base, as one submission."""
        calls = Calls("all_gather_into_tensor_coalesced")
        if not outputs or len(outputs) != len(inputs):
            raise ValueError("tutti: all_gather_into_tensor_coalesced: %d inputs for %d outputs"
                             % (len(inputs), len(outputs)))
        for output, input_ in zip(outputs, inputs):
            self._add_base(calls, output, input_)
        return self.start(calls, outputs, opts)  # type: ignore[attr-defined]

    def _add_rows(self, calls: Calls, mine: torch.Tensor, rows: List[int]) -> torch.Tensor:
        dtype, per = element_of(mine)
        per *= math.prod(mine.shape[1:])
        every = torch.empty((sum(rows),) + mine.shape[1:], dtype=mine.dtype, device=mine.device)
        calls.add("allgatherv", dtype, count=len(mine) * per, sendbuf=calls.in_(mine),
                  recvbuf=calls.out(every), recvcounts=calls.counts([n * per for n in rows]))
        return every

    @torch.no_grad()
    def add_sparse_sum(self, calls: Calls, t: torch.Tensor, opts: Any) -> None:
        """The sum of sparse tensors; see csrc/sparse.hpp."""
        if self._batch is not None:
            raise NotImplementedError("tutti: all_reduce of sparse tensors cannot be coalesced")
        mine, meeting = t, Calls("all_reduce")
        try:
            mine = t.coalesce()
        except RuntimeError:  # finish() will raise the error, on all ranks
            pass
        shape = torch.tensor([mine._nnz(), mine.sparse_dim(), *t.shape], device="cpu")
        shapes = torch.empty((self._size, len(shape)), dtype=shape.dtype, device="cpu")
        self._add_base(meeting, shapes, shape)
        self.start(meeting, [], opts).wait()  # type: ignore[attr-defined]
        for rank, other in enumerate(shapes.tolist()):
            if other[1:] != shape.tolist()[1:]:
                raise ValueError("tutti: all_reduce: rank %d has another sparse tensor: its number "
                                 "of sparse dimensions and its sizes are %s, here %s"
                                 % (rank, other[1:], shape.tolist()[1:]))
        rows = shapes[:, 0].tolist()
        places = self._add_rows(calls, mine._indices().t().contiguous(), rows)
        values = self._add_rows(calls, mine._values(), rows)

        @torch.no_grad()
        def add() -> None:
            total = torch.sparse_coo_tensor(places.t(), values, t.shape, device=values.device,
                                            check_invariants=False)
            t.copy_(total.coalesce())

        calls.then(add)

    def _add_gather(self, calls: Calls, input_: torch.Tensor, root: int) -> Any:
        self._check_root(root, "gather")  # type: ignore[attr-defined]
        dtype, per = element_of(input_)
        return calls.add("gatherv", dtype, count=input_.numel() * per, root=root)

    def gather(self, outputs: List[Tensors], inputs: Tensors, opts: Any) -> Any:
        """Gather tensors on the root."""
        calls, results = Calls("gather"), []
        call = self._add_gather(calls, inputs[0], opts.rootRank)
        if opts.rootRank == self._rank:
            results = outputs[0] if outputs else []
            if len(results) != self._size:
                raise ValueError("tutti: gather on the destination rank needs one list with a "
                                 "tensor for each of %d ranks" % self._size)
            address, counts = calls.flat(results, inputs[0], True)
            self._check_count("gather", counts[self._rank], call.count, "output")
            call.recvbuf, call.recvcounts = address, calls.counts(counts)
            call.sendbuf = calls.in_(inputs[0], (address, bytes_of(results),
                                                 (bytes_of(results[:self._rank]),)))
        elif outputs and outputs[0]:
            raise ValueError("tutti: gather: only the destination rank may have outputs")
        else:
            call.sendbuf = calls.in_(inputs[0])
        return self.start(calls, results, opts)  # type: ignore[attr-defined]

    def gather_single(self, output: torch.Tensor, input_: torch.Tensor, opts: Any) -> Any:
        """Gather into one tensor on the root."""
        calls = Calls("gather_single")
        call = self._add_gather(calls, input_, opts.rootRank)
        is_root = opts.rootRank == self._rank
        if is_root:
            self._check_count("gather_single", output.numel(), input_.numel() * self._size,
                              "output")
            address = calls.out(output)
            call.recvbuf, call.recvcounts = address, calls.counts([call.count] * self._size)
            call.sendbuf = calls.in_(input_, (address, bytes_of([output]),
                                              (self._rank * bytes_of([input_]),)))
        else:
            call.sendbuf = calls.in_(input_)
        return self.start(  # type: ignore[attr-defined]
            calls, [output] if is_root else [], opts)

    def scatter(self, outputs: Tensors, inputs: List[Tensors], opts: Any) -> Any:
        """Scatter the root's list."""
        calls, output = Calls("scatter"), outputs[0]
        root = self._check_root(opts.rootRank, "scatter")  # type: ignore[attr-defined]
        dtype, per = element_of(output)
        call = calls.add("scatterv", dtype, recvbuf=calls.out(output), count=output.numel() * per,
                         root=root)
        if root == self._rank:
            if len(inputs) != 1 or len(inputs[0]) != self._size:
                raise ValueError("tutti: scatter on the source rank needs one list with a tensor "
                                 "for each of %d ranks" % self._size)
            call.sendbuf, counts = calls.flat(inputs[0], output, False,
                                              (call.recvbuf, bytes_of([output]),
                                               (-bytes_of(inputs[0][:root]),)))
            self._check_count("scatter", counts[self._rank], call.count, "input")
            call.sendcounts = calls.counts(counts)
        elif inputs and inputs[0]:
            raise ValueError("tutti: scatter: only the source rank may have inputs")
        return self.start(calls, outputs, opts)  # type: ignore[attr-defined]

    def alltoall_base(self, output: torch.Tensor, input_: torch.Tensor,
                      output_sizes: Sequence[int], input_sizes: Sequence[int],
                      opts: Any = None) -> Any:
        """Exchange parts of one tensor."""
        calls = Calls("all_to_all_single")
        if output.dtype != input_.dtype:
            raise ValueError("tutti: all_to_all_single: the input is of %s, the output of %s"
                             % (input_.dtype, output.dtype))
        send = _split_counts(input_, input_sizes, self._size, "input")
        receive = _split_counts(output, output_sizes, self._size, "output")
        address = calls.out(output)
        own = (0,) if send == receive else ()  # in place needs equal counts
        calls.add("alltoallv", element_of(input_)[0], sendcounts=calls.counts(send),
                  recvcounts=calls.counts(receive), recvbuf=address,
                  sendbuf=calls.in_(input_, (address, bytes_of([output]), own)))
        return self.start(calls, [output], opts)  # type: ignore[attr-defined]

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """Exchange lists of tensors."""
        calls = Calls("all_to_all")
        if len(outputs) != self._size or len(inputs) != self._size:
            raise ValueError("tutti: all_to_all needs an input and an output for each of %d ranks"
                             % self._size)
        receive, recvcounts = calls.flat(outputs, inputs[0], True)
        send, sendcounts = calls.flat(inputs, inputs[0], False, (receive, bytes_of(outputs), ()))
        calls.add("alltoallv", element_of(inputs[0])[0], sendbuf=send, recvbuf=receive,
                  sendcounts=calls.counts(sendcounts), recvcounts=calls.counts(recvcounts))
        return self.start(calls, outputs, opts)  # type: ignore[attr-defined]

    # torch 2.14 has new names for these.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    all_to_all_single = alltoall_base
    gather_into_tensor = gather_single

    # ---- messages ----

    def send(self, tensors: Tensors, dest: int, tag: int) -> Any:
        """Send to a rank."""
        return self._messages.send(tensors[0], dest, tag)  # type: ignore[attr-defined]

    def recv(self, tensors: Tensors, source: int, tag: int) -> Any:
        """Receive from a rank."""
        return self._messages.receive(tensors[0], source, tag)  # type: ignore[attr-defined]

    def recv_anysource(self, tensors: Tensors, tag: int) -> Any:
        """Receive from the first rank that sends."""
        return self._messages.receive_any(tensors[0], tag)  # type: ignore[attr-defined]

    # ---- coalescing ----

    def _start_coalescing(self, _device: Any = None) -> None:
        self._batch, self._batch_outputs = Calls("a coalesced call"), []

    def _end_coalescing(self, _device: Any = None) -> Any:
        calls, self._batch = self._batch, None
        return self.start(calls, self._batch_outputs)  # type: ignore[attr-defined]

    # ---- monitored_barrier ----

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier by the store, which names the ranks that are missing."""
        limit = milliseconds(timeout) if timeout is not None else self.timeout_ms
        self._monitored += 1
        store = self._store  # type: ignore[attr-defined]
        prefix = "%s/monitored/%d/" % (self._prefix, self._monitored)  # type: ignore
        if self._rank == 0:
            words = self._missing_ranks(store, prefix, limit, wait_all_ranks)
            store.set(prefix + "end", words or "ok")
            if words:
                raise dist.DistBackendError(words)
            return
        store.set(prefix + str(self._rank), "here")
        try:  # rank 0 may time out at the same time: wait a second longer for its error text
            store.wait([prefix + "end"], timedelta(milliseconds=max(limit, 0) + 1000))
            words = store.get(prefix + "end").decode()
        except RuntimeError:
            words = "no answer within %d ms" % limit
        if words != "ok":
            raise dist.DistBackendError(
                "Rank %d successfully reached monitoredBarrier, but received errors while waiting "
                "for send/recv from rank 0. Please check rank 0 logs for faulty rank: %s"
                % (self._rank, words))

    def _missing_ranks(self, store: Any, prefix: str, limit: int, wait_all_ranks: bool) -> str:
        if limit <= 0:
            return "[Rank 0]: Rank 0 timed out in monitoredBarrier after 0 ms."
        end, missing = time.monotonic() + limit / 1000, []
        for rank in range(1, self._size):
            keys, left = [prefix + str(rank)], end - time.monotonic()
            try:
                if left > 0.001:
                    store.wait(keys, timedelta(seconds=left))
            except RuntimeError:
                pass
            if not store.check(keys):
                missing.append(str(rank))
                if not wait_all_ranks:
                    break
        if not missing:
            return ""
        return "[Rank 0]: Rank%s %s failed to pass monitoredBarrier in %d ms" % (
            "s" if len(missing) > 1 else "", ", ".join(missing), limit)
