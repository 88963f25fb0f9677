"""A compiled training step that a user calls with batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_xengine.checks.arguments import checked
from tvm_xengine.compiler.build import build_step
from tvm_xengine.compiler.forward import build_forward
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.errors import InvalidStateError, UnsupportedModelError
from tvm_xengine.frontends.assemble import OF_MODEL
from tvm_xengine.frontends.torch.arrays import as_tensor, shared_tensor
from tvm_xengine.model.arguments import learning_rate
from tvm_xengine.model.lr_schedules import Schedule, ScheduleLike, as_schedule
from tvm_xengine.model.source import as_array, leaves
from tvm_xengine.processes.held_signals import interrupts_held
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.runtime.comparison import Comparison, ReferenceRun, timed_run
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.runtime.file_memory import storage_folder
from tvm_xengine.runtime.marks import Marks
from tvm_xengine.runtime.storage import shared_array
from tvm_xengine.runtime.transactions import Transactions
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.session.stages import Lowered, StepPlan, Training, check_plan_is_of
from tvm_xengine.state.model_state import ModelState, check_fits_module
from tvm_xengine.state.torch_optimizer_state import (
    as_torch_optimizer,
    check_is_counterpart,
    read_torch_optimizer,
    slots_by_name,
)
from tvm_xengine.training.assembly import STEP, learning_rate_name
from tvm_xengine.training.evaluation import evaluation_module

if TYPE_CHECKING:
    import torch
    import tvm

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
        after every epoch). Groups of parameters keep the ratio of their rates. A step with an
        optimizer of its own reads it as ``lr``.

    Attributes
    ----------
    steps_taken
        Training steps so far.
    last_step_us
        Wall clock of the last one, without copying the batch in.
    """

    def __init__(self, plan: StepPlan, *, lr_schedule: ScheduleLike | None = None) -> None:
        self._install(plan)
        self._forward: StepExecutable | None = None
        self._forward_is_current = False
        self._is_training = True
        self._transactions: Transactions | None = None
        self._reference: ReferenceRun | None = None
        self.lr_schedule = as_schedule(lr_schedule)
        recipe = plan.lowered.training.recipe
        self.lr = 0.0 if recipe is None else recipe.optimizer.lr
        self.steps_taken = 0
        self.last_step_us = 0.0
        self._results: Mapping[str, Array] | None = {}

    def _install(self, plan: StepPlan) -> None:
        """Compile a plan, and write the initial state into its arenas."""
        lowered = plan.lowered
        self.plan = plan
        self._executable = build_step(
            plan.planned.lowered,
            plan.plan,
            store=lowered.stores.kernels,
            on_compiled=lowered.reporter.stage("compiling kernels"),
        )
        self._executable.write(lowered.training.step.initial_state)
        self._state = ModelState(lowered.training.source, self._executable)

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
        saved, before, transactions = self.saved_state(), self.plan, self._transactions
        with interrupts_held():
            del self._executable, self._state
            self._transactions, self._results = None, {}
            try:
                self._install(plan)
            except BaseException:
                self._install(before)
                raise
            finally:
                self.restore(saved, self.steps_taken)
                self.guard(transactions is not None)
                if self._reference is not None:
                    self._reference.follow(self._executable)
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
        return self._executable

    @property
    def batch_names(self) -> tuple[str, ...]:
        """Names of what a call takes, in order: inputs, targets, and settings of its own step."""
        rates = self._learning_rates()
        settings = self._executable.names(Role.HYPER)
        return (
            *self._executable.names(Role.BATCH),
            *(name for name in settings if name not in rates),
        )

    @property
    def results(self) -> Mapping[str, Array]:
        """A copy of what the last step returned, by name; made when it is asked for."""
        if self._results is None:
            self._results = self._executable.read_results()
        return self._results

    @property
    def result_views(self) -> Mapping[str, Array | torch.Tensor]:
        """What the last step returned, in the arenas: valid until the next step overwrites it.

        The views are PyTorch's tensors where the model was a module, else read-only arrays. They
        keep the memory alive, also when the step is gone.
        """
        has_run = self._results is None or self._results
        return self._shared(self._executable.result_views if has_run else {})

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
        arrays = _by_name(self.batch_names, batch, named)
        with interrupts_held():
            return np.float32(self._run({**arrays, **self._learning_rates()}))

    @checked
    def guard(self, on: bool = True) -> Step:
        """Undo every later step that fails, or makes a NaN or an infinity; returns the step itself.

        It costs a copy of the updated state outside the arenas (in memory of the host; of a device
        that is a file, in another file of its folder), which is made before each step, and a pass
        over the state after it.
        """
        self._transactions = Transactions(self._executable) if on else None
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
        return self._executable.marked()

    def compare_with_keep_all(self) -> bool:
        """Compare every later step with a keep-all step.

        False where the home device cannot run the whole step. See `ReferenceRun` for the cost.
        """
        problem = self.plan.plan.problem
        home, lowered = problem.platform.home, self.lowered
        if any(home not in problem.costs[op.name] for op in problem.graph.ops):
            return False
        kept = build_step(
            self.plan.planned.lowered,
            plan_keep_all(problem, home),
            store=lowered.stores.kernels,
        )
        self._reference = ReferenceRun(self._executable, kept)
        return True

    @property
    def comparison(self) -> Comparison | None:
        """The differences that `compare_with_keep_all` has measured; None without it."""
        return None if self._reference is None else self._reference.result

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
        forward = self._current_forward()
        forward.write(forward.check(_by_name(source.inputs, inputs, named)))
        forward.run()
        names = result_names(source.outputs)
        made = (
            self._handed_over(forward.read_results(names))
            if copy
            else self._shared(forward.result_views)
        )
        return source.restore([made[name] for name in names])

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
        if copy:
            return self._handed_over(self._state.read(self._batches_seen))
        return self._shared(self._state.views(self._batches_seen))

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
        self._state.write({name: _array_called(name, value) for name, value in state.items()})
        self._was_written()

    def optimizer_state_dict(self) -> dict[str, Any]:
        """The state of the optimizer as ``torch.optim`` keeps it, for all parameters in order."""
        return as_torch_optimizer(
            self.training,
            self._executable.read_state(),
            self._parameter_order(),
            self.steps_taken,
            self._current_rates(),
        )

    def load_optimizer_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of the same optimizer in PyTorch."""
        arrays, steps = read_torch_optimizer(self.training, state, self._parameter_order())
        if STEP in self._executable.names(Role.OPTIMIZER_STATE):
            arrays[STEP] = np.array(steps, "int32")
        self._executable.write(arrays)
        self.steps_taken = steps
        self._state.start_counting_at(self._batches_seen)
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
            check_is_counterpart(optimizer, self.training)
            optimizer.load_state_dict(self.optimizer_state_dict())
        module.load_state_dict(state)

    def load_from(
        self, module: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        """Load the state of a PyTorch module, and of its optimizer.

        Raises
        ------
        InvalidStateError
            If the module or optimizer is another one.
        """
        if optimizer is not None:
            check_is_counterpart(optimizer, self.training)
        self.load_state_dict(module.state_dict())
        if optimizer is not None:
            self.load_optimizer_state_dict(optimizer.state_dict())

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
        state = self._executable.read_state()
        names = slots_by_name(self.training)
        others = {name: f"step/{name}" for name in ("seed", STEP) if name in state}
        tensors = {
            f"model/{name}": np.asarray(value)
            for name, value in self._state.read(self._batches_seen).items()
        }
        keys = {**names, **others}
        return {**tensors, **{key: np.asarray(state[variable]) for variable, key in keys.items()}}

    def restore(self, tensors: Mapping[str, Array], steps_taken: int) -> None:
        """Load what `saved_state` returned."""
        names = {**slots_by_name(self.training), "seed": "step/seed", STEP: f"step/{STEP}"}
        state = self._executable.names(Role.OPTIMIZER_STATE)
        self._state.write(
            {
                name.removeprefix("model/"): value
                for name, value in tensors.items()
                if name.startswith("model/")
            }
        )
        self._executable.write({name: tensors[names[name]] for name in state})
        self.steps_taken = steps_taken
        self._state.start_counting_at(self._batches_seen)
        self._was_written()

    def _run(self, batch: Mapping[str, Array]) -> Array:
        """Take one step, and count it; the loss. What it returns is finite if it is guarded."""
        executable, reference = self._executable, self._reference
        if reference is not None:
            reference.begin()
        self._results = {}
        if self._transactions is None:
            executable.write(executable.check(batch))
            self.last_step_us, self._results = timed_run(executable), None
        else:
            self._results, self.last_step_us = self._transactions.take(batch)
        self.steps_taken += 1
        self._forward_is_current = False
        loss = executable.read_results(("loss",))["loss"]
        if reference is not None:
            reference.end(batch)
        return loss

    def _was_written(self) -> None:
        """Forget what is known of the state."""
        self._forward_is_current = False
        if self._transactions is not None:
            self.guard()

    @property
    def _batches_seen(self) -> int:
        recipe = self.training.recipe
        return self.steps_taken * (1 if recipe is None else recipe.micro_batches)

    def _current_rates(self) -> list[float]:
        """The learning rate of every group of parameters for the next step."""
        recipe = self.training.recipe
        if recipe is None:
            return [] if self.lr_schedule is None else [self._scheduled(self.lr_schedule)]
        base = self._scheduled(self.lr_schedule or (lambda _steps: self.lr))
        own = recipe.optimizer.lr
        factor = base / own if own else 1.0
        return [base, *(group.optimizer.lr * factor for group in recipe.groups)]

    def _scheduled(self, schedule: Schedule) -> float:
        return learning_rate(schedule(self.steps_taken), self.steps_taken)

    def _learning_rates(self) -> dict[str, Array]:
        rates = self._current_rates()
        given = {learning_rate_name(k): np.asarray(rate, "float32") for k, rate in enumerate(rates)}
        return {name: given[name] for name in self._executable.names(Role.HYPER) if name in given}

    def _parameter_order(self) -> list[str]:
        """Names of all parameters in the order of the module."""
        source = self.training.source
        first = {role.name: role for role in self.training.roles if role.is_parameter}
        order = source.order or tuple(first)
        return [name for name in order if name in first]

    def _handed_over(self, arrays: Mapping[str, Array]) -> dict[str, Any]:
        """Arrays that nobody else holds, as tensors of PyTorch where the model was a module."""
        if not self.training.source.is_torch:
            return dict(arrays)
        return {name: as_tensor(value) for name, value in arrays.items()}

    def _shared(self, views: Mapping[str, tvm.runtime.Tensor]) -> dict[str, Any]:
        """The same memory as tensors of PyTorch where the model was a module, else as arrays."""
        share = shared_tensor if self.training.source.is_torch else shared_array
        return {name: share(view) for name, view in views.items()}

    def _current_forward(self) -> StepExecutable:
        source = self.training.source
        if self._forward is None:
            self._forward = build_forward(
                evaluation_module(source.evaluation),
                len(source.inputs),
                self.lowered.platform,
                results=result_names(source.outputs),
                store=self.lowered.stores.kernels,
                rank=0 if self._ranks is None else self._ranks.rank,
            )
        if not self._forward_is_current:
            self._forward.write(
                self._state.for_model(source.evaluation, self._forward.names(Role.PARAMETER))
            )
            self._forward_is_current = True
        return self._forward


def result_names(count: int) -> tuple[str, ...]:
    """Names of the results of a forward function with `count` outputs."""
    return ("output",) if count == 1 else tuple(f"output_{k}" for k in range(count))


def step_name(name: str, names: Sequence[str]) -> str:
    """What a step calls an input of the model: one such as ``labels``, which a step may have itself,
    is called ``model_labels``.
    """
    other = f"{OF_MODEL}{name}"
    return other if name not in names and other in names else name


def _by_name(
    names: Sequence[str], given: Sequence[object], named: Mapping[str, object]
) -> dict[str, Array]:
    """The tensors of a call by the names of the step's inputs.

    Raises
    ------
    InvalidDataError
        If too many or too few are given; what is missing or unknown is named.
    """
    from tvm_xengine.errors import InvalidDataError

    if len(given) == 1 and isinstance(given[0], Mapping) and not named:
        return _by_name(names, (), given[0])
    named = {step_name(name, names): value for name, value in named.items()}
    flat = [leaf for value in given for leaf in leaves(value)]
    if len(flat) > len(names):
        raise InvalidDataError(
            f"expected {len(names)} tensors ({', '.join(names)}), got {len(flat)}"
        )
    values = dict(zip(names, flat, strict=False))
    if unknown := [name for name in named if name not in names]:
        raise InvalidDataError(f"expected the inputs {', '.join(names)}, got {unknown}")
    if double := [name for name in named if name in values]:
        raise InvalidDataError(f"{double} are given by position and by name")
    values = {**values, **named}
    if missing := [name for name in names if name not in values]:
        raise InvalidDataError(f"expected the inputs {', '.join(names)}; {missing} are missing")
    return {name: _array_called(name, value) for name, value in values.items()}


def _array_called(name: str, value: object) -> Array:
    from tvm_xengine.errors import InvalidInputError

    try:
        return as_array(value)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise InvalidInputError(f"{name}: {str(error).partition(chr(10))[0]}") from error
