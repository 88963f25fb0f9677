"""A compiled training step that a user calls with batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tvm_xengine.checks.arguments import checked
from tvm_xengine.errors import InvalidStateError, UnsupportedModelError
from tvm_xengine.model.learning_rates import as_inputs, current_rates
from tvm_xengine.model.lr_schedules import ScheduleLike, as_schedule
from tvm_xengine.processes.held_signals import interrupts_held
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.runtime.comparison import Comparison
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.runtime.file_memory import storage_folder
from tvm_xengine.runtime.marks import Marks
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.session.batch_names import array_called, by_name
from tvm_xengine.session.prediction import Prediction
from tvm_xengine.session.running import Running
from tvm_xengine.session.stages import Lowered, StepPlan, Training, check_plan_is_of
from tvm_xengine.state.handed_over import handed_over, shared
from tvm_xengine.state.model_state import check_fits_module
from tvm_xengine.state.step_state import StepState
from tvm_xengine.state.torch_optimizer_state import groups_of_optimizer, load_torch_optimizer

if TYPE_CHECKING:
    import torch

    from tvm_xengine.cluster.ranks import Ranks


class Step:
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

    Attributes
    ----------
    steps_taken
        Training steps so far.
    """

    def __init__(self, plan: StepPlan, *, lr_schedule: ScheduleLike | None = None) -> None:
        self._install(plan)
        self._prediction: Prediction | None = None
        self._is_training = True
        self.lr_schedule = as_schedule(lr_schedule)
        recipe = plan.lowered.training.recipe
        self.lr = 0.0 if recipe is None else recipe.optimizer.lr
        self.steps_taken = 0

    def _install(self, plan: StepPlan) -> None:
        """Compile a plan, and write the initial state into its arenas."""
        self.plan = plan
        self._running = Running(plan)
        self._state = StepState(plan.lowered.training, self._running.executable)

    @checked
    def adopt(self, plan: StepPlan) -> Step:
        """Run another plan of the same step from now on, with the state as it is.

        The old arenas are freed before the new ones are allocated; views of them show no later
        values. Returns the step itself.

        Raises
        ------
        InvalidScheduleError
            If it is the plan of another step.
        InvalidPlatformError
            If the folder of a device that is a file is gone; nothing has changed then.
        """
        check_plan_is_of(plan, self.lowered)
        for device in plan.plan.problem.platform.devices:
            if device.folder is not None:
                storage_folder(device.folder)
        saved, before, running = self.saved_state(), self.plan, self._running
        is_guarded, reference = running.is_guarded, running.reference
        with interrupts_held():
            del self._running, self._state, running
            try:
                self._install(plan)
            except BaseException:
                self._install(before)
                raise
            finally:
                self.restore(saved, self.steps_taken)
                self._running.guard(is_guarded)
                self._running.follow(reference)
        return self

    @property
    def training(self) -> Training:
        """What the step was made from."""
        return self.plan.lowered.training

    @property
    def lowered(self) -> Lowered:
        """The step as kernel calls."""
        return self.plan.lowered

    @property
    def _ranks(self) -> Ranks | None:
        return self.lowered.step.ranks

    @property
    def writes_files(self) -> bool:
        """Whether this process writes what is saved: of several on a host the first one does."""
        return self._ranks is None or self._ranks.writes_files

    @property
    def executable(self) -> StepExecutable:
        """The program and its arenas."""
        return self._running.executable

    @property
    def last_step_us(self) -> float:
        """Wall clock of the last step, without copying the batch in."""
        return self._running.last_step_us

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

        The views are PyTorch's tensors where the model was a module, else read-only arrays. They
        keep the memory alive, also when the step is gone.
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

        An interrupt arrives when the step has been taken. After any other failure the state is that
        before the step if it is guarded; else it is lost, and must be loaded before it is used again.
        """
        arrays = by_name(self.batch_names, batch, named)
        with interrupts_held():
            inputs = {**arrays, **self._learning_rates()}
            self._running.take(inputs)
            self.steps_taken += 1
            self._forget_prediction()
            return np.float32(self._running.loss_of(inputs))

    @checked
    def guard(self, on: bool = True) -> Step:
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

        Perfetto opens the file. Meanwhile each call takes two readings of the clock more.

        Parameters
        ----------
        path
            JSON file, written at the end.
        """
        with self.timed() as marks:
            yield
        self.plan.write_trace(path, marks.intervals_us)

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
        arrays = by_name(source.inputs, inputs, named)
        if self._prediction is None:
            self._prediction = Prediction(self.lowered)
        if not self._prediction.is_current:
            self._prediction.write(self._state.all_tensors(self.steps_taken))
        return self._prediction(arrays, copy=copy)

    @checked
    def train(self, mode: bool = True) -> Step:
        """Make calls train; returns the step itself."""
        self._is_training = mode
        return self

    def eval(self) -> Step:
        """Make calls predict; returns the step itself."""
        return self.train(False)

    def report(self) -> str:
        """Memory, time and proof of the plan, and what it trains, in lines."""
        return self.plan.report()

    def _repr_html_(self) -> str:
        return self.plan._repr_html_()

    def state_dict(self, *, copy: bool = True) -> dict[str, Any]:
        """All tensors of the model by its own names, as PyTorch's where it was a module.

        Parameters
        ----------
        copy
            False returns views of the arenas: later steps change them, as they change the
            parameters of a module, and each shows the current value between steps. They keep the
            memory alive, also when the step is gone. Read them only; to write, use
            `load_state_dict`. Tensors that the step does not read, such as counters of batches,
            are copies.
        """
        source = self.training.source
        if copy:
            return handed_over(source, self._state.tensors(self.steps_taken))
        return shared(source, self._state.views(self.steps_taken))

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Load the tensors of a state dict.

        Raises
        ------
        InvalidStateError
            If a name is missing or unknown, or a shape differs; nothing is changed then.
        """
        if not isinstance(state, Mapping):
            raise InvalidStateError(
                f"expected a mapping from names to tensors, got {type(state).__name__}"
            )
        arrays = {name: array_called(name, value) for name, value in state.items()}
        self._state.model.write(arrays)
        self._was_written()

    def optimizer_state_dict(self) -> dict[str, Any]:
        """The state of the optimizer as ``torch.optim`` keeps it.

        It holds all parameters in the order of the module, by the groups of the step. For an
        optimizer that holds them in another order use `load_into`.
        """
        return self._state.as_torch_optimizer(self.steps_taken, self._current_rates())

    def load_optimizer_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of the same optimizer in PyTorch, which holds the module's parameters in order."""
        self.steps_taken = self._state.write_torch_optimizer(state)
        self._was_written()

    def load_into(
        self, module: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        """Write the state of the step into a PyTorch module and its optimizer.

        Raises
        ------
        InvalidStateError
            If the module has other tensors, or the optimizer is another one; nothing is changed then.
        """
        state = self.state_dict()
        check_fits_module(state, module)
        if optimizer is not None:
            groups = groups_of_optimizer(optimizer, module, self.training)
            made = self._state.as_torch_optimizer(self.steps_taken, self._current_rates(), groups)
            load_torch_optimizer(optimizer, made)
        module.load_state_dict(state)
        for name, value in handed_over(
            self.training.source, self._state.model.read_hidden()
        ).items():
            module.get_buffer(name).copy_(value)

    def load_from(
        self, module: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        """Load the state of a PyTorch module, and of its optimizer.

        Raises
        ------
        InvalidStateError
            If the module or optimizer is another one.
        """
        groups = None
        if optimizer is not None:
            groups = groups_of_optimizer(optimizer, module, self.training)
        hidden = {name: module.get_buffer(name) for name in self._state.model.hidden}
        self.load_state_dict({**module.state_dict(), **hidden})
        if optimizer is not None:
            self.steps_taken = self._state.write_torch_optimizer(optimizer.state_dict(), groups)
            self._was_written()

    @checked
    def save(self, path: str | Path) -> None:
        """Write the state of model and optimizer to a checkpoint, complete or not at all."""
        from tvm_xengine.state.checkpoint import save_step

        save_step(self, Path(path))

    @checked
    def load(self, path: str | Path) -> None:
        """Continue from a checkpoint, of this plan or of another plan of the same model."""
        from tvm_xengine.state.checkpoint import load_step

        load_step(self, Path(path))

    def saved_state(self) -> dict[str, Array]:
        """Everything that outlives a step: by names that do not depend on the plan."""
        return self._state.saved(self.steps_taken)

    def restore(self, tensors: Mapping[str, Array], steps_taken: int) -> None:
        """Load what `saved_state` returned."""
        self._state.restore(tensors, steps_taken)
        self.steps_taken = steps_taken
        self._was_written()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Step holds memory and compiled code, which cannot be copied; take its state with"
            " state_dict() or save(path), and build another step from its plan"
        )

    def _was_written(self) -> None:
        """Forget what is known of the state."""
        self._forget_prediction()
        self._running.was_written()

    def _forget_prediction(self) -> None:
        if self._prediction is not None:
            self._prediction.is_current = False

    def _current_rates(self) -> list[float]:
        return current_rates(self.training.recipe, self.lr_schedule, self.lr, self.steps_taken)

    def _learning_rates(self) -> dict[str, Array]:
        return as_inputs(self._current_rates(), self.executable.names(Role.HYPER))
