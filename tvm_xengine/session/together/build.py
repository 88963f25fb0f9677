"""Build several planned steps in one arena per device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tvm_xengine.checks.arguments import checked
from tvm_xengine.model.lr_schedules import ScheduleLike
from tvm_xengine.runtime.shared_arenas import SharedArenas
from tvm_xengine.scheduling.arena.apart import check_apart
from tvm_xengine.session.step import Step
from tvm_xengine.session.together.plan import PlansTogether


@dataclass(frozen=True)
class StepsTogether(Mapping[str, Step]):
    """Steps by name, which run in turns in the same arenas; each has its own state.

    A step of one invalidates the `result_views` of all; copies of results stay.

    Attributes
    ----------
    plans
        What they run.
    arenas
        Their memory.
    steps
        By name, as in the mapping itself.
    """

    plans: PlansTogether
    arenas: SharedArenas = field(repr=False)
    steps: Mapping[str, Step] = field(repr=False)

    def __getitem__(self, name: str) -> Step:
        return self.steps[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def measured_peak_bytes(self) -> Mapping[str, int]:
        """For each device, the bytes that its allocator gave to all steps together."""
        return self.arenas.measured_peak_bytes


@checked
def build_together(
    plans: PlansTogether, *, lr_schedules: Mapping[str, ScheduleLike] | None = None
) -> StepsTogether:
    """The steps that execute plans made together: kernels compiled, one arena per device allocated.

    Parameters
    ----------
    plans
        What `plan_together` returned.
    lr_schedules
        As in `Step`, by the names of the steps.

    Raises
    ------
    ValueError
        If a learning rate is given for a name that no step has.
    """
    schedules = lr_schedules or {}
    if unknown := [name for name in schedules if name not in plans.plans]:
        raise ValueError(f"expected names among {list(plans.plans)}, got {unknown[0]!r}")
    for one in plans.plans.values():
        check_apart(one.plan.problem, one.plan.schedule, one.plan.arenas)
    first = next(iter(plans.plans.values()))
    arenas = SharedArenas(
        first.plan.problem.platform,
        {name: {one.device: one.state_bytes[name] for one in plans.memory} for name in plans.plans},
        {
            name: {one.device: one.transient_bytes[name] for one in plans.memory}
            for name in plans.plans
        },
    )
    steps = {
        name: Step(one, lr_schedule=schedules.get(name), arenas=arenas.parts[name])
        for name, one in plans.plans.items()
    }
    return StepsTogether(plans, arenas, steps)
