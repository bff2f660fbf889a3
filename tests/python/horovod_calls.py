# SPDX-License-Identifier: BSD-3-Clause
"""Start and end, process sets, join, objects, optimizer states, SyncBatchNorm, and misuse."""

import contextlib
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
import weakref
from typing import Any, Iterator, List
from unittest import mock

import horovod_jobs
import numpy as np
import torch
from torch import nn

import tutti
import tutti.horovod.torch as hvd
from tutti._lib import lib
from tutti.horovod.common import settings
from tutti.horovod.common.exceptions import HostsUpdatedInterrupt
from tutti.horovod.torch.elastic.state import (StateHandler, get_handler_registry,
                                               set_handler_registry)


def full(value: float, *shape: int) -> torch.Tensor:
    """A tensor of one value."""
    return torch.full(shape or (3,), float(value))


class FakeComm:
    """The methods of an mpi4py communicator that the package uses, over one of tutti."""

    def __init__(self, comm: tutti.Communicator) -> None:
        self.comm = comm

    def Get_rank(self) -> int:
        """This process's rank."""
        return self.comm.rank

    def Get_group(self) -> None:
        """Only looked for."""

    def allgather(self, value: int) -> List[int]:
        """The values of all ranks."""
        return tutti.allgather(np.array([value]), comm=self.comm).tolist()


class Job(unittest.TestCase):
    """init, shutdown, ranks."""

    def test_ranks(self) -> None:
        """One host: local ranks are ranks."""
        self.assertTrue(hvd.is_initialized())
        self.assertEqual((hvd.local_rank(), hvd.local_size()), (hvd.rank(), hvd.size()))
        self.assertEqual((hvd.cross_rank(), hvd.cross_size()), (0, 1))
        self.assertTrue(hvd.is_homogeneous())
        under_mpi = "OMPI_COMM_WORLD_RANK" in os.environ
        self.assertEqual(hvd.mpi_enabled(), under_mpi)
        if under_mpi:
            self.assertTrue(hvd.mpi_built() and hvd.mpi_threads_supported())
        else:
            self.assertRaises(ValueError, hvd.mpi_threads_supported)
        self.assertEqual((hvd.gloo_enabled(), hvd.gloo_built(), hvd.nccl_built()),
                         (False, False, 0))
        self.assertFalse(hvd.rocm_built() or hvd.ddl_built() or hvd.ccl_built())

    def test_again(self) -> None:
        """A second init changes nothing. init is possible again after shutdown; calls between the
        two are refused."""
        hvd.init()
        pending = hvd.allreduce_async(full(1), name="never %d" % hvd.rank())
        gather = hvd.allgather_async(full(1), name="never %d" % hvd.rank())
        done = hvd.allreduce_async(full(1), op=hvd.Sum, name="done")
        group = hvd.grouped_allreduce_async([full(1), full(2)], op=hvd.Sum,
                                            name="group")
        rows = hvd.allgather_async(full(1), name="rows")
        while not (hvd.poll(done) and hvd.poll(group) and hvd.poll(rows)):
            pass
        for _ in range(2):
            hvd.barrier()
            hvd.shutdown()
            hvd.shutdown()
            self.assertFalse(hvd.is_initialized())
            for function in (hvd.rank, hvd.size, hvd.local_rank, hvd.cross_size, hvd.barrier,
                             hvd.join, lambda: hvd.allreduce(full(1)),
                             lambda: hvd.allgather(full(1)), lambda: hvd.broadcast(full(1), 0),
                             lambda: hvd.add_process_set([0])):
                self.assertRaisesRegex(ValueError, "hvd.init", function)
            hvd.init()
            self.assertEqual(hvd.allreduce(full(1), op=hvd.Sum)[0].item(), hvd.size())
        self.assertEqual(hvd.synchronize(done)[0].item(), hvd.size())
        self.assertEqual([t[0].item() for t in hvd.synchronize(group)], [hvd.size(), 2 * hvd.size()])
        self.assertEqual(hvd.synchronize(rows).sum().item(), 3 * hvd.size())
        if hvd.size() > 1:
            for handle in (pending, gather):
                self.assertRaises(hvd.HorovodInternalError, hvd.synchronize, handle)
                self.assertIsNone(hvd.synchronize(handle))

    def test_failed_before(self) -> None:
        """A call that has failed before shutdown() raises its own error after it."""
        if hvd.size() == 1:
            return
        handle = hvd.allreduce_async_(full(1, 2 + hvd.rank() % 2), name="failed before")
        while not hvd.poll(handle):
            pass
        hvd.barrier()
        hvd.shutdown()
        self.assertRaisesRegex(hvd.HorovodInternalError, "failed before", hvd.synchronize, handle)
        hvd.init()

    def test_forked(self) -> None:
        """In a forked child, such as a DataLoader's worker, rank() and size() work. Other calls
        there are errors, and shutdown() there does not disturb the parent."""
        rank, size = hvd.rank(), hvd.size()
        mine = torch.ones(1, device="cpu")  # torch has no CUDA in a forked child
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if (hvd.rank(), hvd.size()) == (rank, size):
                    try:
                        hvd.allreduce(mine, name="in a child")
                    except hvd.HorovodInternalError:
                        hvd.shutdown()
                        code = 0
            finally:
                os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(hvd.allreduce(full(1), op=hvd.Sum)[0].item(), size)

    def test_list_of_ranks(self) -> None:
        """init(comm=...) makes worlds of parts of the job."""
        rank, size = hvd.rank(), hvd.size()
        hvd.barrier()
        hvd.shutdown()
        mine = [r for r in reversed(range(size)) if r % 2 == rank % 2]
        hvd.init(comm=mine)
        self.assertEqual((hvd.rank(), hvd.size()), (mine.index(rank), len(mine)))
        self.assertEqual(hvd.allreduce(full(rank), op=hvd.Sum)[0].item(), sum(mine))
        hvd.barrier()
        hvd.shutdown()
        for bad in ("all", [0, 0], [-1], 7):
            self.assertRaises(ValueError, hvd.init, bad)
        hvd.init()
        self.assertEqual(hvd.rank(), rank)

    def test_comm_in_world(self) -> None:
        """init(comm=...) with a communicator, in a world that tutti.init() has made. The job and
        its process sets have the ranks of the communicators."""
        hvd.barrier()
        hvd.shutdown()
        with tutti.init() as world:
            half = world.split(world.rank % 2, -world.rank)
            pair = half.split(half.rank // 2)
            members = hvd.ProcessSet(FakeComm(pair))
            hvd.init(comm=FakeComm(half), process_sets=[members])
            self.assertEqual((hvd.rank(), hvd.size()), (half.rank, half.size))
            total = sum(range(world.rank % 2, world.size, 2))
            self.assertEqual(hvd.allreduce(full(world.rank), op=hvd.Sum)[0].item(), total)
            first = half.rank // 2 * 2
            self.assertEqual(members.ranks, list(range(first, min(first + 2, half.size))))
            self.assertEqual((members.rank(), members.size()), (pair.rank, pair.size))
            hvd.barrier()
            hvd.shutdown()
            tutti.barrier()
        hvd.init()

    def test_mpi4py(self) -> None:
        """init(comm=...) and a process set with communicators of mpi4py."""
        if not hvd.mpi_enabled():
            return
        try:
            from mpi4py import MPI
        except ImportError as error:
            self.skipTest(str(error))
        rank, size = hvd.rank(), hvd.size()
        hvd.barrier()
        hvd.shutdown()
        alone = MPI.COMM_WORLD.Split(rank)
        backwards = MPI.COMM_WORLD.Split(0, -rank)
        members = hvd.ProcessSet(alone)
        hvd.init(comm=backwards, process_sets=[members])
        self.assertEqual((hvd.rank(), hvd.size()), (size - 1 - rank, size))
        self.assertEqual(hvd.broadcast(full(rank), 0)[0].item(), size - 1)
        self.assertEqual(members.ranks, [hvd.rank()])
        hvd.barrier()
        hvd.shutdown()
        hvd.init(comm=alone)
        self.assertEqual((hvd.rank(), hvd.size()), (0, 1))
        hvd.shutdown()
        self.assertRaisesRegex(ValueError, "MPI_COMM_NULL", hvd.init, comm=MPI.COMM_NULL)
        hvd.init()
        self.assertEqual((hvd.rank(), hvd.size()), (rank, size))

    def test_timeline(self) -> None:
        """One file with the events of all ranks."""
        folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
        path = os.path.join(folder, "timeline.json")
        hvd.start_timeline(path, mark_cycles=True)
        self.assertRaises(ValueError, hvd.start_timeline, path)
        hvd.barrier()
        hvd.allreduce(full(hvd.rank()), name="traced", op=hvd.Sum)
        hvd.stop_timeline()
        hvd.stop_timeline()
        hvd.barrier()
        with open(path) as file:
            events = json.load(file)["traceEvents"]
        ranks = {event["pid"] for event in events if "traced" in str(event)}
        self.assertEqual(ranks, set(range(hvd.size())))
        hvd.barrier()
        if hvd.rank() == 0:
            shutil.rmtree(folder)

    def test_settings(self) -> None:
        """HOROVOD_* variables that have a counterpart. If the TUTTI_* variable is set, it has
        precedence."""
        given = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "7", "HOROVOD_FUSION_THRESHOLD": "4096",
                 "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "90", "HOROVOD_LOG_LEVEL": "WARNING"}
        names = list(given) + ["TUTTI_STALL_WARNING", "TUTTI_FUSION_BYTES", "TUTTI_TIMEOUT",
                               "TUTTI_LOG", "HOROVOD_STALL_CHECK_DISABLE"]
        before = {name: os.environ.pop(name, None) for name in names}
        try:
            os.environ.update(given, TUTTI_LOG="error")
            self.assertEqual(settings.translate(), {"TUTTI_STALL_WARNING": "7",
                                                    "TUTTI_FUSION_BYTES": "4096",
                                                    "TUTTI_TIMEOUT": "90"})
            self.assertEqual(os.environ["TUTTI_LOG"], "error")
            del os.environ["TUTTI_STALL_WARNING"]
            os.environ["HOROVOD_STALL_CHECK_DISABLE"] = "1"
            os.environ["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] = "0"
            self.assertEqual(settings.translate(), {"TUTTI_STALL_WARNING": "0"})
            os.environ["HOROVOD_FUSION_THRESHOLD"] = "64 MB"
            self.assertRaises(ValueError, settings.translate)
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


    def test_horovodrun(self) -> None:
        """Without MPI, horovodrun's processes cannot meet. Each of them must report an error, and
        not become a job of one rank."""
        if hvd.rank() == 0:
            run = self.run_alone("import tutti.horovod.torch as hvd; hvd.init()",
                                 HOROVOD_SIZE="2", HOROVOD_RANK="0")
            self.assertNotEqual(run.returncode, 0)
            self.assertIn("horovodrun has started 2 processes", run.stdout)

    def test_two_front_ends(self) -> None:
        """init() of one front end is enough, whether the other is imported before it or after
        it."""
        if hvd.rank() == 0:
            begin = "from tutti.horovod.common import job"
            torch_imports = "import torch, tutti.horovod.torch as hvd"
            for order in ([torch_imports, "job.init()"], ["job.init()", torch_imports]):
                run = self.run_alone("; ".join(
                    [begin] + order + ["assert hvd.allreduce(torch.ones(2))[0] == 1"]))
                self.assertEqual((run.returncode, run.stdout), (0, ""))

    def run_alone(self, program: str, **more: str) -> Any:
        """Run a program as a job of one process."""
        env = horovod_jobs.environment(**more)
        for name in list(env):
            if name.startswith(("OMPI_COMM_", "PMIX_", "MASTER_")) or name in (
                    "RANK", "WORLD_SIZE", horovod_jobs.IS_RANK):
                del env[name]
        return subprocess.run([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=horovod_jobs.SECONDS)


class ProcessSets(unittest.TestCase):
    """Sets of ranks."""

    def test_calls(self) -> None:
        """Each call, on sets that do not overlap, at the same time."""
        size, rank = hvd.size(), hvd.rank()
        lists = [list(range(0, size, 2)), list(range(1, size, 2))]
        sets = [hvd.add_process_set(ranks) for ranks in lists if ranks and len(ranks) < size]
        for own in [s for s in sets if s.included()]:
            n, ranks = own.size(), own.ranks
            self.assertEqual((own.rank(), n), (ranks.index(rank), len(ranks)))
            self.assertEqual(hvd.allreduce(full(rank), op=hvd.Sum, process_set=own)[0].item(),
                             sum(ranks))
            self.assertEqual(hvd.allgather(full(rank, 1), process_set=own).tolist(), ranks)
            root = ranks[-1]  # a rank of the job
            self.assertEqual(hvd.broadcast(full(rank), root, process_set=own)[0].item(), root)
            self.assertEqual(hvd.alltoall(full(rank, n), process_set=own).tolist(), ranks)
            self.assertEqual(hvd.reducescatter(full(1, n), op=hvd.Sum,
                                               process_set=own).tolist(), [n])
            self.assertEqual(hvd.broadcast_object([rank], root, process_set=own), [root])
            self.assertEqual(hvd.allgather_object(rank, process_set=own), ranks)
            hvd.barrier(process_set=own)
            outside = [r for r in range(size) if r not in ranks]
            self.assertRaises(ValueError, hvd.broadcast, full(1), outside[0], process_set=own)
        for other in [s for s in sets if not s.included()]:
            self.assertEqual(other.size(), len(other.ranks))
            self.assertRaises(ValueError, other.rank)
            self.assertRaisesRegex(ValueError, "not part of", hvd.allreduce, full(1),
                                   process_set=other)
        for process_set in sets:
            self.assertTrue(hvd.remove_process_set(process_set))
            self.assertFalse(hvd.remove_process_set(process_set))
            self.assertIsNone(process_set.size())
            self.assertRaisesRegex(ValueError, "removed", hvd.allreduce, full(1),
                                   process_set=process_set)

    def test_adding(self) -> None:
        """Lists with duplicates or with ranks that do not exist, and values that are no list of
        ranks."""
        size = hvd.size()
        self.assertRaisesRegex(ValueError, "exists", hvd.add_process_set, range(size))
        self.assertFalse(hvd.remove_process_set(hvd.global_process_set))
        for bad in ([], [size], [-1], [0, 0], "01", None, [True]):
            self.assertRaises(ValueError, hvd.add_process_set, bad)
        if size > 2:
            first = hvd.add_process_set([size - 1, 0])
            self.assertEqual(first.ranks, [0, size - 1])
            self.assertRaisesRegex(ValueError, "exists", hvd.add_process_set, [0, size - 1])
            self.assertTrue(hvd.remove_process_set(first))

    def setUp(self) -> None:
        hvd.barrier()

    def test_at_init(self) -> None:
        """Sets passed to init as objects; shutdown makes them invalid."""
        if hvd.size() < 3:
            return
        hvd.shutdown()
        pair, rest = hvd.ProcessSet([0, 1]), hvd.ProcessSet(range(2, 3))
        hvd.init(process_sets=[pair, rest])
        self.assertEqual((pair.process_set_id, rest.process_set_id), (1, 2))
        if pair.included():
            self.assertEqual(hvd.allreduce(full(1), op=hvd.Sum, process_set=pair)[0].item(), 2)
        hvd.barrier()
        hvd.shutdown()
        self.assertIsNone(pair.process_set_id)
        self.assertRaisesRegex(ValueError, "duplicate", hvd.init, process_sets=[
            hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 0])])
        hvd.shutdown()
        hvd.init(process_sets="dynamic")


class Join(unittest.TestCase):
    """Ranks with different numbers of batches."""

    def test_uneven(self) -> None:
        """Each rank in turn is the first to join. The average is still divided by the number of all
        ranks."""
        size, rank = hvd.size(), hvd.rank()
        for first in range(size):
            batches = [2 if r == first else 4 + r for r in range(size)]
            for step in range(batches[rank]):
                active = sum(step < b for b in batches)
                result = hvd.allreduce(full(size), name="uneven")
                self.assertEqual(result.tolist(), [active] * 3)
                self.assertEqual(hvd.allreduce(full(1), op=hvd.Sum)[0].item(), active)
            last = hvd.join()
            self.assertEqual(len(set(hvd.allgather_object(last))), 1)
            if size > 1:
                self.assertNotEqual(last, first)
            # Calls without a name match again, although the ranks have made different numbers of
            # them.
            self.assertEqual(hvd.allreduce(full(1), op=hvd.Sum)[0].item(), size)

    def test_pending(self) -> None:
        """Calls that a rank has not waited for before join keep their results."""
        handles = [hvd.allreduce_async(full(1), op=hvd.Sum),
                   hvd.allgather_async(full(hvd.rank(), 1)),
                   hvd.grouped_allreduce_async([full(1), full(2)], op=hvd.Sum)]
        hvd.join()
        size = hvd.size()
        self.assertEqual(hvd.synchronize(handles[0])[0].item(), size)
        self.assertEqual(hvd.synchronize(handles[1]).tolist(), list(range(size)))
        self.assertEqual(hvd.synchronize(handles[2])[1][0].item(), 2 * size)

    def test_impossible(self) -> None:
        """An allgather after some rank has joined is an error on the others, not a hang."""
        if hvd.size() > 1 and hvd.rank() > 0:
            with self.assertRaises(hvd.HorovodInternalError):
                hvd.allgather(full(1), name="joined")
        hvd.join()

    def test_optimizer(self) -> None:
        """Training continues with the ranks that have batches."""
        model = nn.Linear(2, 1, bias=False)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0),
                                             model.named_parameters())
        for step in range(2 + hvd.rank()):
            optimizer.zero_grad()
            model(full(hvd.size(), 1, 2)).sum().backward()
            optimizer.step()
            active = sum(step < 2 + r for r in range(hvd.size()))
            self.assertEqual(model.weight.grad[0, 0].item(), active)
        self.assertEqual(hvd.join(), hvd.size() - 1)


class State(unittest.TestCase):
    """Objects, parameters, optimizer states."""

    def test_objects(self) -> None:
        """Any object, from any rank, of any length."""
        for root in range(hvd.size()):
            obj = {"rank": hvd.rank(), "text": "x" * 1000 * hvd.rank(), 3: None}
            with torch.device("meta"):  # tensors made without a device have no data
                got = hvd.broadcast_object(obj if hvd.rank() == root else None, root)
            self.assertEqual((got["rank"], len(got["text"])), (root, 1000 * root))
        gathered = hvd.allgather_object([hvd.rank()] * hvd.rank(), name="lists")
        self.assertEqual(gathered, [[r] * r for r in range(hvd.size())])

    def test_parameters(self) -> None:
        """Dictionaries, named and unnamed lists; buffers; tensors that are not contiguous."""
        root = hvd.size() - 1
        for read in (lambda m: m.state_dict(), lambda m: list(m.named_parameters()),
                     lambda m: m.parameters(), lambda m: dict(m.named_parameters())):
            torch.manual_seed(hvd.rank())
            model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
            model.to(memory_format=torch.channels_last)
            hvd.broadcast_parameters(read(model), root)
            torch.manual_seed(root)
            expected = nn.Conv2d(3, 4, 3)
            self.assertTrue(torch.equal(model[0].weight, expected.weight))
        self.assertRaises(ValueError, hvd.broadcast_parameters, 7, 0)
        self.assertRaises(ValueError, hvd.broadcast_parameters, full(1), 0)

    def train(self, optimizer_of: object, steps: int) -> object:
        """A model and its optimizer after some steps."""
        torch.manual_seed(hvd.rank())
        model = nn.Linear(3, 2)
        optimizer = optimizer_of(model.parameters())
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).sum().backward()
            optimizer.step()
        return model, optimizer

    def test_optimizers(self) -> None:
        """State and options of a rank, even if the other ranks have none; and a root that has
        none."""
        makers = [lambda p: torch.optim.SGD(p, lr=0.1 * (1 + hvd.rank()), momentum=0.9),
                  lambda p: torch.optim.Adam(p, lr=0.1 * (1 + hvd.rank()),
                                             betas=(0.8, 0.9 + 0.01 * hvd.rank())),
                  lambda p: torch.optim.Adagrad(p, lr=0.1 * (1 + hvd.rank()))]
        for maker in makers:
            for steps in (2, 0 if hvd.rank() else 2, 2 if hvd.rank() else 0):
                for wrap in (False, True):
                    model, optimizer = self.train(maker, steps)
                    if wrap:
                        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
                    before = optimizer.state_dict()
                    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
                    self.compare(optimizer, before)

    def compare(self, optimizer: object, before: dict) -> None:
        """Check that the state is equal to rank 0's, in values and types."""
        states = hvd.allgather_object(optimizer.state_dict(), name="states")
        for state in states[1:]:
            self.assertEqual(state["param_groups"], states[0]["param_groups"])
            self.assertEqual(state["state"].keys(), states[0]["state"].keys())
            for number, entries in state["state"].items():
                for key, value in entries.items():
                    self.assertTrue(torch.equal(torch.as_tensor(value), torch.as_tensor(
                        states[0]["state"][number][key])), key)
        if hvd.rank() == 0:
            self.assertEqual(before["param_groups"], optimizer.state_dict()["param_groups"])

    def test_lbfgs(self) -> None:
        """Arguments that are refused."""
        self.assertRaises(ValueError, hvd.broadcast_optimizer_state,
                          torch.optim.LBFGS(nn.Linear(1, 1).parameters()), 0)


class BatchNorm(unittest.TestCase):
    """SyncBatchNorm against BatchNorm on the batches of all ranks."""

    def test_equal(self) -> None:
        """Results, gradients and running statistics; batches of different sizes; far from 0."""
        for shape in ((4,), (4, 3), (4, 2, 3)):
            for options in ({}, {"affine": False}, {"momentum": None},
                            {"track_running_stats": False}):
                self.compare(shape, options)

    def compare(self, shape: tuple, options: dict) -> None:
        """One shape and one set of options, for two steps and an evaluation."""
        kinds = {1: nn.BatchNorm1d, 2: nn.BatchNorm1d, 3: nn.BatchNorm2d}
        whole = kinds[len(shape)](shape[0], **options).double()
        part = hvd.SyncBatchNorm(shape[0], **options).double()
        rows = [2 + r for r in range(hvd.size())]
        first = sum(rows[:hvd.rank()])
        own = slice(first, first + rows[hvd.rank()])
        for step in range(3):
            generator = torch.Generator(torch.empty(0).device).manual_seed(step)
            x = torch.randn(sum(rows), *shape, generator=generator, dtype=torch.float64) + 100
            weights = torch.randn(x.shape, generator=generator, dtype=torch.float64)
            if step == 2:
                whole.eval()
                part.eval()
            x_whole, x_part = x.clone().requires_grad_(), x[own].clone().requires_grad_()
            y_whole, y_part = whole(x_whole), part(x_part)
            (y_whole * weights).sum().backward()
            (y_part * weights[own]).sum().backward()
            self.assertTrue(torch.allclose(y_part, y_whole[own], rtol=1e-9, atol=1e-9))
            self.assertTrue(torch.allclose(x_part.grad, x_whole.grad[own], rtol=1e-7, atol=1e-9))
        for name, value in part.state_dict().items():
            expected = whole.state_dict()[name]
            self.assertTrue(torch.allclose(value, expected, rtol=1e-9), name)
        for name, p in part.named_parameters():
            p.grad = hvd.allreduce(p.grad, op=hvd.Sum, name="norm." + name)
            self.assertTrue(torch.allclose(p.grad, dict(whole.named_parameters())[name].grad))

    def test_in_place(self) -> None:
        """An operation in place may follow."""
        for affine in (False, True):
            x = torch.arange(4.0).reshape(4, 1).requires_grad_()
            model = nn.Sequential(hvd.SyncBatchNorm(1, affine=affine), nn.ReLU(inplace=True))
            model(x).sum().backward()
            self.assertEqual(x.grad.shape, x.shape)

    def test_input(self) -> None:
        """A vector is no batch."""
        self.assertRaises(ValueError, hvd.SyncBatchNorm(3), full(1, 3))


class Imitated(torch.Tensor):
    """A tensor in host memory that is treated as one in device memory."""

    is_cuda = True
    is_cpu = False


class Stream:
    """An imitated CUDA stream. `current` has the current stream of each thread."""

    device = torch.device("cpu")
    current = threading.local()

    def __init__(self, number: int) -> None:
        self.cuda_stream = number

    def wait_stream(self, other: "Stream") -> None:
        """There is no work to wait for."""


DEFAULT = Stream(0)


def present_stream(_: object = None) -> Stream:
    """In place of torch.cuda.current_stream."""
    return getattr(Stream.current, "stream", DEFAULT)


@contextlib.contextmanager
def in_stream(stream: Stream) -> Iterator[None]:
    """In place of torch.cuda.stream."""
    before, Stream.current.stream = present_stream(), stream
    try:
        yield
    finally:
        Stream.current.stream = before


class Streams(unittest.TestCase):
    """The stream of each transfer, over an imitation of torch.cuda and of the library's calls."""

    def setUp(self) -> None:
        self.streams: List[int] = []
        self.replace(torch.cuda, "current_stream", present_stream)
        self.replace(torch.cuda, "stream", in_stream)
        self.replace(lib, "tutti_cuda_submit", self.submit)
        self.replace(lib, "tutti_cuda_wait", lambda request, ms, _: lib.tutti_wait(request, ms))

    def replace(self, owner: object, name: str, value: object) -> None:
        """Set an attribute for one test."""
        patch = mock.patch.object(owner, name, value)
        patch.start()
        self.addCleanup(patch.stop)

    def submit(self, calls: Any, count: int, comm: int, stream: int, requests: Any) -> int:
        """In place of tutti_cuda_submit."""
        self.streams.append(stream)
        return int(lib.tutti_submit(calls, count, comm, requests))

    def test_side_stream(self) -> None:
        """The transfer is in the stream in which the call was made. The thread that starts the
        transfer and its current stream do not matter."""
        mine = torch.ones(hvd.size(), device="cpu").as_subclass(Imitated)
        for start in (hvd.allgather_async, hvd.alltoall_async,
                      lambda t: hvd.grouped_allgather_async([t, t])):
            for finish in (hvd.synchronize, self.poll):
                with in_stream(Stream(7)):
                    handle = start(mine)
                finish(handle)
        self.assertEqual(self.streams, [7] * 6)

    def poll(self, handle: int) -> None:
        """Wait by poll() in another thread, so that this thread or the starter starts the
        transfer."""
        def wait() -> None:
            while not hvd.poll(handle):
                pass

        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
        hvd.synchronize(handle)


class Kept:
    """An object for which the package has no handler."""

    def __init__(self, value: int) -> None:
        self.value = value


class KeptHandler(StateHandler):
    """A handler as programs write it for Horovod."""

    def __init__(self, value: Kept) -> None:
        super().__init__(value)
        self.saved = value.value

    def save(self) -> None:
        self.saved += self.value.value - self.saved  # needs the attributes that __init__ has set

    def restore(self) -> None:
        self.value.value = self.saved

    def sync(self) -> None:
        self.value.value = hvd.broadcast_object(self.value.value)


class Elastic(unittest.TestCase):
    """States without a failure, and the resources after a reset. Failures are tested in
    horovod_script.py."""

    def test_handlers(self) -> None:
        """A handler, and a function that broadcasts, with the parameters that they have in
        Horovod."""
        before = get_handler_registry()
        set_handler_registry(before + [(Kept, KeptHandler)])
        self.addCleanup(set_handler_registry, before)
        state = hvd.elastic.TorchState(kept=Kept(hvd.rank()))
        state.commit()
        state.kept.value = 17
        state.restore()
        self.assertEqual(state.kept.value, hvd.rank())
        state.sync()
        self.assertEqual(state.kept.value, 0)
        other = hvd.elastic.ObjectState(lambda obj: hvd.broadcast_object(obj), hvd.rank,
                                        value=hvd.rank())
        other.commit()
        other.sync()
        self.assertEqual(other.value, 0)

    def test_reset(self) -> None:
        """The results of calls that were made before a failure do not stay in memory."""
        results: List[Any] = []

        def train(_: object) -> None:
            if results:
                return
            result = full(1)
            results.append(weakref.ref(result))
            handle = hvd.allreduce_async_(result, name="before the failure")
            while not hvd.poll(handle):
                pass
            hvd.barrier()
            raise hvd.HorovodInternalError("on purpose")

        hvd.elastic.run(train)(hvd.elastic.TorchState())
        gc.collect()
        self.assertIsNone(results[0]())


    def test_sampler(self) -> None:
        """The ranks share the samples of an epoch. After a reset they share those that are left."""
        def share() -> List[List[int]]:
            parts = hvd.allgather_object(list(sampler))
            self.assertEqual({len(part) for part in parts}, {len(sampler)})
            return parts

        for shuffle in (False, True):
            sampler = hvd.elastic.ElasticSampler(range(23), shuffle)
            every = share()
            self.assertEqual(set(sum(every, [])), set(range(23)))
            self.assertEqual(len(sampler), -(-23 // hvd.size()))
            sampler.record_batch(0, 2)
            sampler.record_batch(1, 1)
            self.assertEqual(share(), every)
            sampler.reset()
            done = sum([part[:3] for part in every], [])
            self.assertEqual(set(sum(share(), [])), set(range(23)) - set(done))
            sampler.record_batch(2, 23)  # more than there are
            sampler.reset()
            self.assertEqual(share(), [[]] * hvd.size())
            sampler.set_epoch(1)
            again = share()
            self.assertEqual(set(sum(again, [])), set(range(23)))
            self.assertEqual(again != every, shuffle)

    def test_hosts_updated(self) -> None:
        """After HostsUpdatedInterrupt nothing is restored. Without skip_sync, the ranks get the
        values of rank 0. The samples of recorded batches do not come again."""
        for skip_sync in (False, True):
            sampler = hvd.elastic.ElasticSampler(range(40))
            state = hvd.elastic.TorchState(value=0, sampler=sampler)
            seen: List[Any] = []
            resets: List[int] = []
            state.register_reset_callbacks([lambda: resets.append(state.value)])

            def train(state: Any) -> str:
                seen.append((state.value, list(state.sampler)))
                if len(seen) > 1:
                    return "returned"
                state.value = 10 + hvd.rank()
                state.sampler.record_batch(0, 4)
                if skip_sync:
                    raise HostsUpdatedInterrupt(skip_sync=True)
                if hvd.rank() == 1:
                    state.on_hosts_updated(1)
                state.commit()  # rank 0 decides
                if hvd.rank() == 0:
                    state.on_hosts_updated(2)
                state.commit()
                raise AssertionError("no interrupt")

            self.assertEqual(hvd.elastic.run(train)(state), "returned")
            own = 10 + hvd.rank()
            self.assertEqual([value for value, _ in seen], [0, own if skip_sync else 10])
            self.assertEqual(resets, [own])
            first, second = (hvd.allgather_object(samples) for _, samples in seen)
            done = sum([part[:4] for part in first], [])
            self.assertEqual(set(sum(second, [])), set(range(40)) - set(done))


class Misuse(unittest.TestCase):
    """Errors that one rank finds alone are ValueErrors. Errors between ranks are
    HorovodInternalErrors. After each of them the next call works."""

    def tearDown(self) -> None:
        self.assertEqual(hvd.allreduce(full(1), op=hvd.Sum, name="works")[0].item(), hvd.size())

    def test_tensors(self) -> None:
        """Values that are no tensors that can be sent."""
        for bad in (torch.ones(2, dtype=torch.complex64), torch.ones(4, 4).t(), [1.0],
                    torch.eye(3).to_sparse(), torch.empty(2, device="meta")):
            if isinstance(bad, torch.Tensor) and bad.shape == (4, 4):
                self.assertFalse(bad.is_contiguous())
            for call in (lambda: hvd.allreduce_async(bad), lambda: hvd.allgather_async(bad),
                         lambda: hvd.broadcast_async(bad, 0), lambda: hvd.alltoall_async(bad),
                         lambda: hvd.reducescatter_async(bad),
                         lambda: hvd.grouped_allreduce_async([bad])):
                self.assertRaises(ValueError, call)

    def test_arguments(self) -> None:
        """Operations, roots, splits, empty groups, scalars."""
        size = hvd.size()
        scalar = torch.tensor(1.0)
        for call in (lambda: hvd.allreduce(full(1), op=9), lambda: hvd.broadcast(full(1), size),
                     lambda: hvd.broadcast(full(1), -1), lambda: hvd.grouped_allreduce([]),
                     lambda: hvd.allreduce(torch.ones(2, dtype=torch.bool)),
                     lambda: hvd.allgather(scalar), lambda: hvd.alltoall(scalar),
                     lambda: hvd.reducescatter(scalar),
                     lambda: hvd.alltoall(full(1, 2 * size), [3] * size),
                     lambda: hvd.alltoall(full(1, 2 * size), [1] * (size + 1)),
                     lambda: hvd.alltoall(full(1, 2 * size), [-1] + [0] * (size - 1)),
                     lambda: hvd.alltoall(full(1, size), full(1, size)),
                     lambda: hvd.allreduce(full(1), name=7)):
            self.assertRaises(ValueError, call)
        if size > 1:
            self.assertRaises(ValueError, hvd.alltoall, full(1, size + 1))
        for call in (lambda: hvd.allreduce(full(1), op=hvd.Adasum),
                     lambda: hvd.grouped_allreduce([full(1)], op=hvd.Adasum),
                     lambda: hvd.reducescatter(full(1), op=hvd.Min)):
            self.assertRaises(NotImplementedError, call)

    def test_twice(self) -> None:
        """A name that is pending is refused. Only rank 0 starts the call, so the call cannot end
        before the check."""
        if hvd.size() == 1:
            return
        starts = [lambda: hvd.allreduce_async(full(1), name="twice"),
                  lambda: hvd.allgather_async(full(1), name="twice"),
                  lambda: hvd.broadcast_async(full(1), 0, name="twice"),
                  lambda: hvd.reducescatter_async(full(1), name="twice"),
                  lambda: hvd.alltoall_async(full(1, hvd.size()), name="twice"),
                  lambda: hvd.grouped_allreduce_async([full(1)], name="twice")]
        for start in starts:
            handle = None
            if hvd.rank() == 0:
                handle = start()
                self.assertRaisesRegex(ValueError, "twice", start)
            hvd.barrier()
            hvd.synchronize(handle if handle is not None else start())

    def test_twice_repeated(self) -> None:
        """A pending name is also refused if the call was made several times before."""
        if hvd.size() == 1:
            return
        t = full(1)
        for _ in range(4):
            hvd.allreduce_(t, name="repeated twice")
        handle = None
        if hvd.rank() == 0:
            handle = hvd.allreduce_async_(t, name="repeated twice")
            self.assertRaisesRegex(ValueError, "repeated twice", hvd.allreduce_async_, t,
                                   name="repeated twice")
        hvd.barrier()
        hvd.synchronize(handle if handle is not None
                        else hvd.allreduce_async_(t, name="repeated twice"))

    def between(self, call: object, words: str) -> None:
        """A call that fails on all ranks."""
        if hvd.size() > 1:
            self.assertRaisesRegex(hvd.HorovodInternalError, words, call)

    def test_counts_and_types(self) -> None:
        """Ranks that differ in numbers of elements, types, operations, roots or calls."""
        odd = hvd.rank() % 2
        dtype = torch.int32 if odd else torch.float32
        self.between(lambda: hvd.allreduce(full(1, 2 + odd), name="counts"), "counts")
        self.between(lambda: hvd.allreduce(full(1).to(dtype), name="types"), "int32")
        self.between(lambda: hvd.allreduce(full(1), op=[hvd.Sum, hvd.Max][odd], name="ops"), "sum")
        self.between(lambda: hvd.broadcast(full(1), odd, name="roots"), "roots")
        self.between(lambda: hvd.broadcast(full(1, 2 + odd), 0, name="lengths"), "lengths")
        self.between(lambda: hvd.reducescatter(full(1, 8 + odd), name="rows"), "rows")
        self.between(lambda: hvd.grouped_allreduce([full(1), full(1, 2 + odd)], name="group"),
                     "group")

    def test_shapes(self) -> None:
        """All calls compare shapes, except named allreduces and broadcasts."""
        odd, size = hvd.rank() % 2, hvd.size()
        shape = (2, 6) if odd else (4, 3)
        self.between(lambda: hvd.allreduce(full(1, *shape)), "shape")
        self.between(lambda: hvd.allreduce(full(1, *((12,) if odd else (4, 3)))), "noname")
        self.between(lambda: hvd.broadcast(full(1, *shape), 0), "shape")
        self.between(lambda: hvd.reducescatter(full(1, *shape), name="scatter"), "scatter.*4x3|2x6")
        self.between(lambda: hvd.grouped_allreduce([full(1), full(1, *shape)], name="all"), "all")
        self.between(lambda: hvd.allgather(full(1, *shape), name="dims"), r"dims.*\[4, 3\]")
        self.between(lambda: hvd.allgather(full(1).to(torch.int32 if odd else torch.float32)),
                     "int32")
        self.between(lambda: hvd.alltoall(full(1, size, 2 + odd), name="parts"), "parts")
        self.between(lambda: hvd.grouped_allgather([full(1), full(1, *shape)], name="g"), "g.1")
        got = hvd.allreduce(full(1, 2, 3, 2), op=hvd.Sum)
        self.assertEqual(got.unique().tolist(), [size])


if __name__ == "__main__":
    warnings.simplefilter("ignore", ResourceWarning)
    horovod_jobs.main(env=(1, 2, 3, 4), mpi=(2,))
