"""A plan that is compiled and installed in its arenas, with its learning rate and its count of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tvm_xengine.checks.arguments import checked
from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.model.learning_rates import as_inputs, current_rates
from tvm_xengine.model.lr_schedules import ScheduleLike, as_schedule
from tvm_xengine.model.training import Training
from tvm_xengine.processes.held_signals import interrupts_held
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.runtime.file_memory import storage_folder
from tvm_xengine.runtime.shared_arenas import ArenaPart
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.session.prediction import Prediction
from tvm_xengine.session.running import Running
from tvm_xengine.session.stages.lowered import Lowered
from tvm_xengine.session.stages.plan import StepPlan, check_plan_is_of
from tvm_xengine.state.step_state import StepState

if TYPE_CHECKING:
    from typing import Self  # Python 3.11

    from tvm_xengine.cluster.ranks import Ranks


class InstalledStep:
    """The compiled plan of a training step; another plan of the same step may take its place.

    Parameters
    ----------
    plan
        What to run.
    lr_schedule, arenas
        See `Step`.

    Attributes
    ----------
    steps_taken
        Training steps so far.
    """

    def __init__(
        self,
        plan: StepPlan,
        *,
        lr_schedule: ScheduleLike | None = None,
        arenas: Mapping[str, ArenaPart] | None = None,
    ) -> None:
        self._prediction: Prediction | None = None
        self._install(plan, arenas)
        self.lr_schedule = as_schedule(lr_schedule)
        recipe = plan.lowered.training.recipe
        self.lr = 0.0 if recipe is None else recipe.optimizer.lr
        self.steps_taken = 0

    def _install(self, plan: StepPlan, arenas: Mapping[str, ArenaPart] | None = None) -> None:
        """Compile a plan, and write the initial state into its arenas."""
        self.plan = plan
        self._running = Running(plan, arenas)
        self._state = StepState(plan.lowered.training, self._running.executable)

    @checked
    def adopt(self, plan: StepPlan) -> Self:
        """Run another plan of the same step from now on, with the state as it is.

        The old arenas are freed before the new ones are allocated; views of them show no later
        values. Returns the step itself.

        Raises
        ------
        InvalidScheduleError
            If it is the plan of another step, or the step shares its arenas with others.
        InvalidPlatformError
            If the folder of a device that is a file is gone; nothing has changed then.
        """
        check_plan_is_of(plan, self.lowered)
        if self.executable.shares_arenas:
            raise InvalidScheduleError(
                "the step shares its arenas with others, with which it was planned; plan all of them"
                " again with plan_together"
            )
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

    def saved_state(self) -> dict[str, Array]:
        """Everything that outlives a step: by names that do not depend on the plan."""
        return self._state.saved(self.steps_taken)

    def restore(self, tensors: Mapping[str, Array], steps_taken: int) -> None:
        """Load what `saved_state` returned."""
        self._state.restore(tensors, steps_taken)
        self.steps_taken = steps_taken
        self._was_written()

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
