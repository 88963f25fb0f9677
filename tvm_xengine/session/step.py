"""A compiled training step that a user calls with batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_xengine.checks.arguments import checked
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.processes.held_signals import interrupts_held
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.runtime.comparison import Comparison
from tvm_xengine.runtime.marks import Marks
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.session.batch_names import by_name
from tvm_xengine.session.prediction import Prediction
from tvm_xengine.session.stateful import StatefulStep
from tvm_xengine.state.handed_over import shared

if TYPE_CHECKING:
    from typing import Self  # Python 3.11

    import torch


class Step(StatefulStep):
    """A training step: called with a batch it trains, in evaluation mode it predicts.

    Parameters
    ----------
    plan
        What to run.
    lr_schedule
        The learning rate by the number of steps taken; None keeps the optimizer's. A scheduler of
        PyTorch, which must be new, is followed as if it were stepped after every training step (not
        after every epoch). Groups of parameters keep the ratio of their rates; of an optimizer of
        PyTorch it is the rate of the first group. A step with an optimizer of its own reads it as
        ``lr``.
    arenas
        What the step sees of arenas that it shares with others (`build_together`); None allocates its
        own.

    Attributes
    ----------
    steps_taken
        Training steps so far.
    """

    _is_training = True

    @property
    def batch_names(self) -> tuple[str, ...]:
        """Names of what a call takes, in order: inputs, targets, and settings of its own step."""
        rates = self._learning_rates()
        settings = self.executable.names(Role.HYPER)
        return (
            *self.executable.names(Role.BATCH),
            *(name for name in settings if name not in rates),
        )

    @property
    def results(self) -> Mapping[str, Array]:
        """A copy of what the last step returned, by name; made when it is asked for."""
        return self._running.results

    @property
    def result_views(self) -> Mapping[str, Array | torch.Tensor]:
        """What the last step returned, in the arenas: valid until the next step overwrites it.

        Where steps share arenas, that is the next step of any of them. The views are PyTorch's tensors
        where the model was a module, else read-only arrays. They keep the memory alive, also when the
        step is gone.
        """
        views = self.executable.result_views if self._running.has_run else {}
        return shared(self.training.source, views)

    def __call__(self, *batch: object, **named: Any) -> Any:
        """Train on a batch and return its loss; in evaluation mode, return predictions.

        Parameters
        ----------
        batch, named
            Inputs and then targets, as tensors of any library with DLPack or as arrays; nested
            sequences count in order. A single mapping names them. A dense tensor of the input's type
            is copied once, from where it lies into the arena.
        """
        return self.step(*batch, **named) if self._is_training else self.predict(*batch, **named)

    def step(self, *batch: object, **named: object) -> np.float32:
        """Train on a batch, whatever the mode; a copy of the loss before the update.

        Values that are not finite stay, as in a loop of PyTorch, and show in the loss of this step or the
        next one; `guard` refuses them. An interrupt arrives when the step has been taken. After any other
        failure the state is that before the step if it is guarded; else it is lost, and must be loaded
        before it is used again.
        """
        arrays = by_name(self.batch_names, batch, named, self.training.source.arguments)
        with interrupts_held():
            inputs = {**arrays, **self._learning_rates()}
            self._running.take(inputs)
            self.steps_taken += 1
            self._forget_prediction()
            return np.float32(self._running.loss_of(inputs))

    @checked
    def guard(self, on: bool = True) -> Self:
        """Undo every later step that fails, or makes a NaN or an infinity; returns the step itself.

        It costs a copy of the updated state outside the arenas (in memory of the host; of a device
        that is a file, in another file of its folder), which is made before each step, and a pass
        over the state after it.
        """
        self._running.guard(on)
        return self

    @contextmanager
    def trace(self, path: str | Path) -> Iterator[None]:
        """Write when each call of the last step inside was planned to run, and when it ran.

        Perfetto opens the file. Meanwhile each call takes two readings of the clock more. Of several
        processes, whose calls are all in the file, the first one of each host writes it.

        Parameters
        ----------
        path
            JSON file, written at the end.
        """
        with self.timed() as marks:
            yield
        measured_us = marks.intervals_us  # collective
        if self.writes_files:
            self.plan.write_trace(path, measured_us)

    def timed(self) -> AbstractContextManager[Marks]:
        """Note when each call of the last step inside begins and ends, for `StepPlan.write_report`."""
        return self.executable.marked()

    def compare_with_keep_all(self) -> bool:
        """Compare every later step with a keep-all step.

        False where the home device cannot run the whole step. See `ReferenceRun` for the cost.
        """
        return self._running.compare_with_keep_all()

    @property
    def comparison(self) -> Comparison | None:
        """The differences that `compare_with_keep_all` has measured; None without it."""
        return self._running.comparison

    @checked
    def predict(self, *inputs: object, copy: bool = True, **named: object) -> Any:
        """What the model returns in evaluation mode, in its own structure.

        The evaluation keeps an arena and a copy of the parameters of its own.

        Parameters
        ----------
        inputs
            As in a call.
        copy
            False returns views of the arena, which the next prediction overwrites. They keep the
            memory alive, also when the step is gone.
        named
            As in a call. An input that is called ``copy`` is given by position or in a mapping.
        """
        source = self.training.source
        if self.training.recipe is None:
            raise UnsupportedModelError(
                f"{self.training.step.name} is a training step without a function that predicts;"
                " compile the forward function, and give it the state of this step"
            )
        arrays = by_name(source.inputs, inputs, named, source.evaluation.arguments)
        if self._prediction is None:
            self._prediction = Prediction(self.lowered)
        if not self._prediction.is_current:
            self._prediction.write(self._state.all_tensors(self.steps_taken))
        return self._prediction(arrays, copy=copy)

    @checked
    def train(self, mode: bool = True) -> Self:
        """Make calls train; returns the step itself."""
        self._is_training = mode
        return self

    def eval(self) -> Self:
        """Make calls predict; returns the step itself."""
        return self.train(False)

    def report(self) -> str:
        """Memory, time and proof of the plan, and what it trains, in lines."""
        return self.plan.report()

    def _repr_html_(self) -> str:
        return self.plan._repr_html_()
