# SPDX-License-Identifier: BSD-3-Clause
"""DistributedOptimizer against the training of one process on the batches of all ranks."""

import unittest
import warnings
from typing import Any, Callable, Dict, List, Optional

import horovod_jobs
import torch
from torch import nn

import tutti
import tutti.horovod.torch as hvd
from tutti.horovod.torch import handles

STEPS, ROWS = 4, 6  # steps; rows of a rank's batch


def make_model(seed: int = 1) -> nn.Module:
    """A small model with a layer of each interesting kind."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3, bias=False)).double()


def batch(step: int, rank: int) -> Any:
    """The batch of a rank in a step."""
    generator = torch.Generator(torch.empty(0).device).manual_seed(1000 * step + rank)
    return (torch.randn(ROWS, 5, generator=generator, dtype=torch.float64),
            torch.randn(ROWS, 3, generator=generator, dtype=torch.float64))


def alone(make: Callable[[nn.Module], torch.optim.Optimizer], passes: int = 1,
          clip: Optional[float] = None, scale: float = 1.0) -> Dict[str, torch.Tensor]:
    """Train in one process on the batches of all ranks."""
    model = make_model()
    optimizer = make(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(passes):
            data = [batch(step * passes + part, rank) for rank in range(hvd.size())]
            x, y = (torch.cat([d[i] for d in data]) for i in (0, 1))
            (nn.functional.mse_loss(model(x), y) * scale).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return model.state_dict()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """With momentum and weight decay."""
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    """With state of several kinds."""
    return torch.optim.AdamW(model.parameters(), lr=0.05)


class Equal(unittest.TestCase):
    """Training gives the same parameters as in one process."""

    def compare(self, model: nn.Module, expected: Dict[str, torch.Tensor],
                tolerance: float = 1e-12) -> None:
        """Check that the parameters are near those of one process, and have the same bits on all
        ranks."""
        for name, value in model.state_dict().items():
            difference = (value - expected[name]).abs().max().item()
            self.assertLess(difference, tolerance, name)
            everywhere = hvd.allgather(value.reshape(1, -1), name="compare." + name)
            self.assertEqual(len(torch.unique(everywhere, dim=0)), 1, name)

    def train(self, make: Callable = sgd, passes: int = 1, set_to_none: bool = True,
              clip: Optional[float] = None, closure: bool = False, named: bool = True,
              groups_of: Optional[Callable[[nn.Module], Any]] = None, **options: Any) -> nn.Module:
        """Train on this rank's batches."""
        model = make_model(seed=1 + hvd.rank())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        if groups_of is not None:
            options["groups"] = groups_of(model)
        optimizer = hvd.DistributedOptimizer(
            make(model), named_parameters=model.named_parameters() if named else None,
            backward_passes_per_step=passes, **options)
        for step in range(STEPS):
            self.step(model, optimizer, step, passes, set_to_none, clip, closure)
        return model

    def step(self, model: nn.Module, optimizer: Any, step: int, passes: int, set_to_none: bool,
             clip: Optional[float], closure: bool) -> None:
        """Make one step."""
        def compute() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=set_to_none)
            for part in range(passes):
                x, y = batch(step * passes + part, hvd.rank())
                loss = nn.functional.mse_loss(model(x), y)
                loss.backward()
            return loss

        if closure:
            self.assertIsInstance(optimizer.step(compute), torch.Tensor)
            return
        compute()
        if clip is None:
            optimizer.step()
            return
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        with optimizer.skip_synchronize():
            optimizer.step()

    def test_plain(self) -> None:
        """SGD and Adam, with gradients that are kept or freed between steps, with names and
        without."""
        for make in (sgd, adam):
            expected = alone(make)
            for options in ({}, {"set_to_none": False}, {"named": False}):
                self.compare(self.train(make, **options), expected)

    def test_passes(self) -> None:
        """Gradients accumulate over several backward passes."""
        self.compare(self.train(passes=3), alone(sgd, passes=3))

    def test_clipping(self) -> None:
        """Gradients are clipped after the reduction."""
        self.compare(self.train(clip=0.1), alone(sgd, clip=0.1))

    def test_closure(self) -> None:
        """Gradients of a closure are reduced before the step uses them."""
        self.compare(self.train(closure=True), alone(sgd))

    def test_predivide(self) -> None:
        """With gradient_predivide_factor, the division has two parts, and the average is the
        same."""
        self.compare(self.train(gradient_predivide_factor=4.0), alone(sgd))
        self.compare(self.train(gradient_predivide_factor=4.0, groups=2), alone(sgd))

    def test_sum(self) -> None:
        """op=Sum."""
        self.compare(self.train(op=hvd.Sum), alone(sgd, scale=hvd.size()))

    def test_groups(self) -> None:
        """Groups given as a number, as more than there are parameters, as lists, and by the older
        name."""
        expected = alone(sgd)
        for groups in (1, 2, 3, 5):
            self.compare(self.train(groups=groups), expected)
        lists = [lambda m: [list(m[0].parameters())], lambda m: [[m[2].weight, m[0].bias], []]]
        for groups_of in lists:
            self.compare(self.train(groups_of=groups_of), expected)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.compare(self.train(num_groups=2, passes=2), alone(sgd, passes=2))

    def test_planned_groups(self) -> None:
        """After equal steps with groups there is a plan, and the steps announce no tensors.
        Gradients on a GPU are not planned."""
        model = make_model()
        if hvd.size() == 1 or next(model.parameters()).is_cuda:
            return
        named = [("planned." + name, p) for name, p in model.named_parameters()]
        optimizer = hvd.DistributedOptimizer(sgd(model), named, groups=2)
        before, quiet = tutti.stats(), 0
        for step in range(100):
            x, y = batch(step, hvd.rank())
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            now = tutti.stats()
            is_quiet = (now["plan_hits"] >= before["plan_hits"] + 2
                        and now["announcements_sent"] == before["announcements_sent"])
            before, quiet = now, quiet + 1 if is_quiet else 0
        self.assertGreater(quiet, 10)

    def test_compression(self) -> None:
        """Gradients in 16 bits."""
        for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
            self.compare(self.train(compression=compression), alone(sgd), tolerance=0.02)
            self.compare(self.train(compression=compression, groups=2), alone(sgd),
                         tolerance=0.02)

    def test_keeps_state(self) -> None:
        """An optimizer that has state and changed options keeps both."""
        model = make_model()
        optimizer = sgd(model)
        model(torch.ones(2, 5).double()).sum().backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] = 0.25
        wrapped = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        self.assertIsInstance(wrapped, torch.optim.SGD)
        self.assertEqual(wrapped.param_groups[0]["lr"], 0.25)
        self.assertEqual(len(wrapped.state_dict()["state"]), 3)
        scheduler = torch.optim.lr_scheduler.StepLR(wrapped, step_size=1)
        wrapped.zero_grad()
        model(torch.ones(2, 5).double()).sum().backward()
        wrapped.step()
        scheduler.step()
        self.assertAlmostEqual(wrapped.param_groups[0]["lr"], 0.025)

    def test_step_hooks(self) -> None:
        """Each step calls a hook once, before and after load_state_dict."""
        model = make_model()
        optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
        calls = []
        optimizer.register_step_post_hook(lambda *_: calls.append("after"))
        optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(2, 5).double()).sum().backward()
            optimizer.step()
            optimizer.load_state_dict(optimizer.state_dict())
        self.assertEqual(calls, ["before", "after"] * 2)

    def test_scheduler_before(self) -> None:
        """A scheduler that was made for the given optimizer does not hide the step."""
        model = make_model()
        optimizer = sgd(model)
        torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
        wrapped = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        wrapped.zero_grad()
        (model(torch.ones(2, 5).double()).sum() * (hvd.rank() + 1)).backward()
        wrapped.step()
        gradient = model[0].bias.grad.reshape(1, -1)
        self.assertEqual(len(torch.unique(hvd.allgather(gradient), dim=0)), 1)


class Special(unittest.TestCase):
    """Gradients that are missing, sparse, or in another memory layout; misuse."""

    def test_missing(self) -> None:
        """A layer that only one rank has used gets the average of its gradient and zeros. Groups
        give the same result."""
        for groups in (None, 1, 2):
            layers = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(3)])
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layers.parameters(), lr=1.0),
                                                 layers.named_parameters(), groups=groups)
            for _ in range(2):
                optimizer.zero_grad()
                layers[hvd.rank() % 3](torch.ones(1, 2)).sum().backward()
                optimizer.synchronize()
                for index, layer in enumerate(layers):
                    users = len([r for r in range(hvd.size()) if r % 3 == index])
                    if hvd.size() == 1 and index != 0:
                        self.assertIsNone(layer.weight.grad)
                        continue
                    expected = torch.full((2, 2), users / hvd.size())
                    self.assertTrue(torch.allclose(layer.weight.grad, expected))
                with optimizer.skip_synchronize():
                    optimizer.step()

    def test_error(self) -> None:
        """After an error of one call, the others are not left pending."""
        if hvd.size() == 1:
            return
        before, odd = len(handles._pending), hvd.rank() % 2
        first, second = (nn.Parameter(torch.ones(n)) for n in (2 + odd, 2))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([first, second], lr=0.0),
                                             [("wrong", first), ("right", second)],
                                             groups=[[first], [second]])
        (first.sum() + second.sum()).backward()
        self.assertRaisesRegex(hvd.HorovodInternalError, "wrong", optimizer.synchronize)
        self.assertEqual(len(handles._pending), before)
        wide = 2 + odd  # differs in the values only
        sparse = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1, wide), (4, wide))
        finish = hvd.sparse_allreduce_async(sparse, "wrong", hvd.Sum)
        self.assertRaisesRegex(hvd.HorovodInternalError, "wrong.values", finish)
        self.assertEqual(len(handles._pending), before)

    def test_changing_requires_grad(self) -> None:
        """A parameter that does not need gradients any more, on all ranks."""
        model = make_model()
        optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
        for needed in (True, False, True):
            for p in model[0].parameters():
                p.requires_grad_(needed)
            optimizer.zero_grad()
            model(batch(0, hvd.rank())[0]).sum().backward()
            optimizer.step()

    def test_sparse(self) -> None:
        """Sparse gradients, gathered or as dense ones."""
        for as_dense in (False, True):
            torch.manual_seed(3)
            model = nn.Embedding(6, 2, sparse=True)
            before = model.weight.detach().clone()
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0),
                                                 sparse_as_dense=as_dense)
            optimizer.zero_grad()
            model(torch.tensor([hvd.rank() % 6, 5, 5])).sum().backward()
            optimizer.step()
            self.assertTrue(model.weight.grad.is_sparse)
            uses = torch.zeros(6, 1)
            for r in range(hvd.size()):
                uses[r % 6] += 1 / hvd.size()
                uses[5] += 2 / hvd.size()
            self.assertTrue(torch.allclose(model.weight, before - uses))

    def test_strides(self) -> None:
        """Gradients in channels-last order."""
        model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        with torch.no_grad():
            model.weight.fill_(1.0)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0))
        x = torch.full((2, 3, 4, 4), hvd.rank() + 1.0).to(memory_format=torch.channels_last)
        model(x).sum().backward()
        optimizer.synchronize()
        average = (hvd.size() + 1) / 2
        self.assertTrue(torch.equal(model.weight.grad, torch.full((4, 3, 3, 3), 8 * average)))

    def test_bfloat16(self) -> None:
        """A model in 16 bits."""
        model = nn.Linear(4, 4).bfloat16()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0))
        model(torch.full((1, 4), hvd.rank() + 1.0).bfloat16()).sum().backward()
        optimizer.step()
        expected = (hvd.size() + 1) / 2
        self.assertEqual(model.weight.grad.unique().tolist(), [expected])

    def test_added_group(self) -> None:
        """Parameters of a group that is added later are reduced as well."""
        first, second = nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(first.parameters(), lr=0.0),
                                             first.named_parameters())
        optimizer.add_param_group({"params": list(second.parameters())})
        x = torch.full((1, 2), hvd.rank() + 1.0)
        (first(x) + second(x)).sum().backward()
        optimizer.step()
        for layer in (first, second):
            self.assertEqual(layer.weight.grad.tolist(), [[(hvd.size() + 1) / 2] * 2])

    def test_another(self) -> None:
        """A second optimizer for the same model replaces the first one, which was deleted."""
        model = make_model()
        for _ in range(2):
            optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
            optimizer.zero_grad()
            model(batch(0, hvd.rank())[0]).sum().backward()
            optimizer.step()
            del optimizer

    def test_after_shutdown(self) -> None:
        """Gradients are never left unreduced without an error."""
        model = make_model()
        optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
        hvd.barrier()
        hvd.shutdown()
        with self.assertRaisesRegex(ValueError, "hvd.init"):
            model(batch(0, 0)[0]).sum().backward()
        self.assertRaisesRegex(ValueError, "hvd.init", optimizer.step)
        hvd.init()

    def test_process_set(self) -> None:
        """Only the ranks of a set reduce; the others train alone."""
        ranks = list(range(0, hvd.size(), 2))
        if hvd.size() < 3:
            return
        evens = hvd.add_process_set(ranks)
        model = nn.Linear(2, 1, bias=False)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0),
                                             model.named_parameters(), process_set=evens)
        model(torch.full((1, 2), float(hvd.rank()))).sum().backward()
        optimizer.step()
        expected = sum(ranks) / len(ranks) if evens.included() else float(hvd.rank())
        self.assertEqual(model.weight.grad.tolist(), [[expected] * 2])
        hvd.remove_process_set(evens)

    def test_names(self) -> None:
        """Names must be unique and complete."""
        model = make_model()
        pairs: List = list(model.named_parameters())
        with self.assertRaisesRegex(ValueError, "not unique: 0.weight"):
            hvd.DistributedOptimizer(sgd(model), pairs + [pairs[0]])
        with self.assertRaisesRegex(ValueError, "does not name all"):
            hvd.DistributedOptimizer(sgd(model), pairs[1:])
        with self.assertRaisesRegex(ValueError, "tuples"):
            hvd.DistributedOptimizer(sgd(model), [p for _, p in pairs])

    def test_options(self) -> None:
        """Options that do not exist, or have wrong values."""
        model = make_model()
        first = model[0].weight
        for options in ({"groups": -1}, {"groups": "2"}, {"groups": [[first, first]]},
                        {"groups": [[1]]}, {"backward_passes_per_step": 0}, {"op": 77},
                        {"op": hvd.Sum, "gradient_predivide_factor": 2.0}):
            with self.assertRaises(ValueError, msg=str(options)):
                hvd.DistributedOptimizer(sgd(model), model.named_parameters(), **options)
        if hvd.size() > 1:
            with self.assertRaises(NotImplementedError):
                hvd.DistributedOptimizer(sgd(model), op=hvd.Adasum)
        with self.assertRaises(ValueError):
            hvd.DistributedOptimizer(hvd.DistributedOptimizer(sgd(model)))

    def test_order(self) -> None:
        """zero_grad() and a second backward() while gradients are being reduced; step() after
        synchronize()."""
        if hvd.size() == 1:
            return
        model = make_model()
        optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
        x = torch.ones(1, 5).double()
        model(x).sum().backward()
        with self.assertRaises(AssertionError):
            optimizer.zero_grad()
        with self.assertRaisesRegex(AssertionError, "backward_passes_per_step"):
            model(x).sum().backward()
        optimizer.synchronize()
        with self.assertWarnsRegex(UserWarning, "skip_synchronize"):
            optimizer.step()
        optimizer.zero_grad()
        optimizer.set_backward_passes_per_step(2)
        model(x).sum().backward()
        model(x).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    horovod_jobs.main(env=(1, 2, 3, 4), mpi=(2,))
