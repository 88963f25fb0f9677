"""What changed between two plans: budgets, times, peaks, fates of tensors, places of ops."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from tvm_xengine.explain.fates import TensorFate, fates
from tvm_xengine.explain.names import Names
from tvm_xengine.explain.words.plain_text import plain_text
from tvm_xengine.explain.words.sentences import fate_in_words
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.schedule import Compute


@dataclass(frozen=True)
class Change:
    """A figure or a description in both plans.

    Attributes
    ----------
    before, after
        None where only the other plan has it.
    """

    what: str
    before: float | int | str | None
    after: float | int | str | None

    @property
    def is_different(self) -> bool:
        """Whether the plans differ in it."""
        return self.before != self.after


@dataclass(frozen=True)
class Comparison:
    """The differences of two plans; prints as text, `to_json` gives the same.

    Attributes
    ----------
    figures
        Objective, times, proof and counts, equal ones included; units in the names.
    devices
        Budget, arena, peak and busy time of each device, equal ones included.
    problem
        How the problems differ, in sentences; empty where only budgets do.
    fates, placements
        Tensors that are treated differently, and ops that run on other devices or another number
        of times; the largest tensors first.
    """

    figures: tuple[Change, ...]
    devices: Mapping[str, tuple[Change, ...]]
    problem: tuple[str, ...]
    fates: tuple[Change, ...]
    placements: tuple[Change, ...]

    def document(self) -> dict[str, object]:
        """The differences as plain values."""
        return asdict(self)

    def to_json(self) -> str:
        """The differences as JSON."""
        return json.dumps(self.document(), indent=2)

    def __str__(self) -> str:
        from tvm_xengine.explain.words.comparison_tables import shown  # loads rich

        return plain_text(shown(self))


def compare_plans(
    before: Plan, after: Plan, of_model: Mapping[str, Sequence[str]] | None = None
) -> Comparison:
    """What changed from one plan to another.

    Parameters
    ----------
    of_model
        Names that the model gives the tensors of the step.
    """
    devices = dict.fromkeys([*before.problem.platform.index, *after.problem.platform.index])
    of_first, of_second = _figures(before), _figures(after)
    return Comparison(
        figures=_changes(of_first, of_second),
        devices={
            name: _changes(_device_figures(before, name), _device_figures(after, name))
            for name in devices
        },
        problem=tuple(_problem_differences(before, after)),
        fates=_fate_changes(before, after, of_model or {}),
        placements=tuple(
            one for one in _changes(_places(before), _places(after)) if one.is_different
        ),
    )


def _changes(
    before: Mapping[str, float | int | str], after: Mapping[str, float | int | str]
) -> tuple[Change, ...]:
    names = dict.fromkeys([*before, *after])
    return tuple(Change(name, before.get(name), after.get(name)) for name in names)


def _figures(plan: Plan) -> dict[str, float | int | str]:
    result, simulation = plan.result, plan.simulation
    return {
        "objective": result.objective.value,
        "cost_us": simulation.cost_us,
        "makespan_us": simulation.makespan_us,
        "energy_uj": simulation.energy_uj,
        f"bound_{result.objective.unit.lower()}": result.bound,
        "status": result.status.value,
        "solver": result.solver,
        "scope": result.scope.value,
        "recomputed_ops": plan.recomputed_ops,
        "transfers": plan.schedule.transfers,
    }


def _device_figures(plan: Plan, name: str) -> dict[str, float | int | str]:
    if name not in plan.problem.platform.index:
        return {}
    return {
        "budget_bytes": plan.problem.platform.device(name).budget_bytes,
        "arena_bytes": plan.arenas.arena_bytes[name],
        "peak_bytes": plan.simulation.peak_bytes[name],
        "busy_us": plan.simulation.busy_us[name],
    }


def _problem_differences(before: Plan, after: Plan) -> Iterator[str]:
    """Sentences on how the problems differ beside their budgets."""
    first, second = before.problem, after.problem
    for kind, one, two in (
        ("ops", first.graph.op, second.graph.op),
        ("tensors", first.graph.tensor, second.graph.tensor),
    ):
        for plan, only in (("first", one.keys() - two.keys()), ("second", two.keys() - one.keys())):
            if only:
                yield f"{len(only)} {kind} are in the {plan} plan only, such as {min(only)}"
        common = [name for name in one if name in two and one[name] != two[name]]
        if common:
            yield f"{len(common)} {kind} of the same name differ, such as {common[0]}"
    differing = [
        op for op in first.costs if op in second.costs and first.costs[op] != second.costs[op]
    ]
    if differing:
        yield f"costs of {len(differing)} ops differ, such as {differing[0]}"
    if first.platform.links != second.platform.links:
        yield "the links of the platforms differ"
    if first.constraints != second.constraints:
        yield "the constraints differ"
    if first.home != second.home:
        yield "some state is at home on another device"


def _fate_changes(
    before: Plan, after: Plan, of_model: Mapping[str, Sequence[str]]
) -> tuple[Change, ...]:
    first, second = fates(before), fates(after)
    names = Names(after.problem.graph, of_model)
    size = {t.name: t.size_bytes for plan in (before, after) for t in plan.problem.graph.bases}
    common = [name for name in first if name in second]
    changes = [
        (name, Change(names.label(name), _told(first[name]), _told(second[name])))
        for name in common
    ]
    found = sorted(
        ((name, change) for name, change in changes if change.is_different),
        key=lambda item: (-size[item[0]], item[0]),
    )
    return tuple(change for _, change in found)


def _told(fate: TensorFate) -> str:
    where = ", ".join(dict.fromkeys(stay.device for stay in fate.stays))
    return f"{fate_in_words(fate)} (on {where})"


def _places(plan: Plan) -> dict[str, str]:
    """For each op the devices of its runs, in order."""
    places: dict[str, list[str]] = {}
    for step in plan.schedule.steps:
        if isinstance(step, Compute):
            places.setdefault(step.op, []).append(step.device)
    return {op: ", ".join(devices) for op, devices in places.items()}
