# SPDX-License-Identifier: BSD-3-Clause
"""Callbacks for model.fit()."""

from typing import Any, Callable, Dict, List, Optional, Union

import keras
import numpy as np

from ...common import arrays
from ...common.job import rank, size
from ...common.ops import Average
from ...common.process_sets import ProcessSet, global_process_set
from ..functions import broadcast_variables


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Copies the weights of the model and the state of the optimizer from one rank to all: before
    the first batch, or after it if the model is not built before. States of random generators are
    not copied.

    root_rank        a rank of the job
    device           not used
    local_variables  a variable of the model, or a list of them, equal on all ranks: each rank keeps
                     its own values
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self._done = False
        self._local: List[Any] = []
        if local_variables is not None:
            is_single = hasattr(local_variables, "assign")
            for variable in [local_variables] if is_single else local_variables:
                self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Let each rank keep its own value of a variable. Call it on all ranks."""
        self._local.append(var)

    def _broadcast(self) -> None:
        self._done = True
        local = {id(variable) for variable in self._local}  # of Keras, or of TensorFlow inside it
        variables = [variable for variable in self.model.weights
                     if id(variable) not in local
                     and id(getattr(variable, "value", None)) not in local]
        if self.model.optimizer is not None:
            variables += list(self.model.optimizer.variables)
        broadcast_variables(variables, self.root_rank)

    def on_train_begin(self, logs: Any = None) -> None:
        if not self._done and self.model.built:
            optimizer = self.model.optimizer
            if optimizer is not None and not optimizer.built:
                optimizer.build(self.model.trainable_variables)
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self._done:
            self._broadcast()


class MetricAverageCallback(keras.callbacks.Callback):
    """Averages the metrics of an epoch over the ranks, for the history and for the callbacks after
    this one in the list.

    device       not used
    process_set  the ranks that take part
    """

    def __init__(self, device: str = "",
                 process_set: ProcessSet = global_process_set) -> None:
        super().__init__()
        self.process_set = process_set

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if not logs or not self.process_set.active():
            return
        names = sorted(logs)
        values = np.array([logs[name] for name in names], np.float64)
        means = arrays.allreduce([values], "metrics of " + ", ".join(names), Average, 1.0, 1.0,
                                 self.process_set, False)[0]
        logs.update(zip(names, means.tolist()))


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Sets the learning rate to initial_lr * multiplier(epoch) from start_epoch up to end_epoch.

    multiplier           a function of the epoch; or a number m, for the function
                         m ** (epoch - start_epoch)
    staircase            set the rate once for each epoch; otherwise for each batch, with fractions
                         of epochs
    steps_per_epoch      None: the number that fit() has found
    momentum_correction  not used: Keras compiles the momentum into the step
    """

    def __init__(self, initial_lr: float, multiplier: Union[float, Callable[[float], float]],
                 start_epoch: int = 0, end_epoch: Optional[int] = None, staircase: bool = True,
                 momentum_correction: bool = True, steps_per_epoch: Optional[int] = None) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is needed")
        self.initial_lr, self.start_epoch, self.end_epoch = initial_lr, start_epoch, end_epoch
        self.multiplier: Callable[[float], float] = (
            multiplier if callable(multiplier)
            else lambda epoch: multiplier ** (epoch - start_epoch))
        self.staircase, self.steps_per_epoch = staircase, steps_per_epoch
        self.epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise ValueError("the data have no length: pass steps_per_epoch to %s"
                                 % type(self).__name__)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.epoch < self.start_epoch or (
                self.end_epoch is not None and self.epoch >= self.end_epoch):
            return
        if self.staircase and batch > 0:
            return
        part = 0.0 if self.staircase else batch / float(self.steps_per_epoch or 1)
        self.model.optimizer.learning_rate = self.initial_lr * self.multiplier(self.epoch + part)

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if logs is not None:
            logs["lr"] = float(np.asarray(self.model.optimizer.learning_rate))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from initial_lr / size() to initial_lr over some epochs.

    initial_lr  the rate for all ranks together, such as 0.1 * size()
    verbose     1: rank 0 prints the rate at the end of the last of these epochs
    """

    def __init__(self, initial_lr: float, warmup_epochs: int = 5,
                 momentum_correction: bool = True, steps_per_epoch: Optional[int] = None,
                 verbose: int = 0) -> None:
        def multiplier(epoch: float) -> float:
            epoch += 1.0 / (self.steps_per_epoch or 1)  # a round number in an epoch's last batch
            return (epoch * (size() - 1) / warmup_epochs + 1) / size()

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction,
                         steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        super().on_epoch_end(epoch, logs)
        if epoch == (self.end_epoch or 0) - 1 and self.verbose > 0 and rank() == 0:
            print("\nEpoch %d: finished gradual learning rate warmup to %g."
                  % (epoch + 1, float(np.asarray(self.model.optimizer.learning_rate))))
