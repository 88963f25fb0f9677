"""Everything that a plan's numbers say about why it is as it is."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from tvm_xengine.explain.fates import Fate, TensorFate, fates
from tvm_xengine.explain.memory import Memory, TimePoint
from tvm_xengine.explain.names import Names
from tvm_xengine.explain.prices.bound_price import (
    BoundPrice,
    bound_prices,
    with_better_bound,
)
from tvm_xengine.explain.prices.front import FrontPoint, front
from tvm_xengine.explain.prices.memory_price import MemoryPrice, memory_price
from tvm_xengine.explain.prices.smallest_budget import SmallestBudget, smallest_budget
from tvm_xengine.explain.prices.speedups import Speedup, speedups
from tvm_xengine.explain.words.plain_text import plain_text
from tvm_xengine.explain.words.proof import proof_in_words
from tvm_xengine.planning.alternatives.changed_schedule import Alternative, PlannedSteps
from tvm_xengine.planning.alternatives.ops import op_alternatives
from tvm_xengine.planning.alternatives.tensors import tensor_alternatives
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.schedule import Compute, place_of

_MOST_WEIGHED = 12
"""Tensors whose alternatives are simulated where none is named; each takes a few simulations."""
_MOST_OFFERED = 4
"""Alternatives of a tensor or an op that are told; more of them are worse."""
_SMALLEST_S = 5.0
"""Time for the smallest budgets of all devices together."""


@dataclass(frozen=True)
class DeviceFinding:
    """What a plan does with the memory of a device.

    Attributes
    ----------
    arena_bytes
        What the address layout takes; the budget binds this.
    peak_bytes
        Most bytes that are live at once.
    price
        What more memory buys; None where that was not asked for, or the memory is not limited or unused.
    bound_price
        What it can buy at most, from the duals of a bound; None where that was not asked for, or the
        memory is not limited.
    front
        Time against the budget of this device; empty as `price` is None.
    """

    device: str
    budget_bytes: int
    arena_bytes: int
    peak_bytes: int
    time_points: tuple[TimePoint, ...]
    smallest: SmallestBudget | None
    price: MemoryPrice | None
    bound_price: BoundPrice | None
    front: tuple[FrontPoint, ...]


@dataclass(frozen=True)
class TensorFinding:
    """What happens to a tensor, and what else could.

    Attributes
    ----------
    label
        The model's name for it.
    line
        Of the model's source; empty where unknown.
    shape, dtype
        Of its elements; empty where unknown.
    alternatives
        The best first; None where they were not weighed.
    """

    name: str
    label: str
    layer: str
    line: str
    category: str
    size_bytes: int
    shape: tuple[int, ...]
    dtype: str
    fate: TensorFate
    alternatives: tuple[Alternative, ...] | None


@dataclass(frozen=True)
class OpFinding:
    """Where an op runs, and what running it elsewhere would cost.

    Attributes
    ----------
    runs
        Position in the schedule and place of each run: a device, and the variant of the kernel if it is one.
    compute_us
        Time of one run at each place where the op can run.
    """

    name: str
    layer: str
    line: str
    runs: tuple[tuple[int, str], ...]
    compute_us: Mapping[str, float]
    workspace_bytes: Mapping[str, int]
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True)
class Explanation:
    """The findings about a plan; prints as text, `to_json` gives the same numbers.

    Attributes
    ----------
    value, bound
        Of the objective, in `unit`.
    proof
        Sentences on what is proven.
    tensors
        Those that were asked for, or all.
    """

    objective: str
    unit: str
    value: float
    bound: float
    proof: tuple[str, ...]
    devices: tuple[DeviceFinding, ...]
    tensors: tuple[TensorFinding, ...]
    ops: tuple[OpFinding, ...]
    speedups: tuple[Speedup, ...]

    @property
    def gap(self) -> float | None:
        """(value - bound) / value; None where nothing is proven."""
        return (self.value - self.bound) / self.value if self.bound > 0 else None

    def document(self) -> dict[str, object]:
        """The findings as plain values; schedules of alternatives are left out."""
        bare = [
            replace(one, alternatives=None if one.alternatives is None else ())
            for one in self.tensors
        ]
        found = asdict(replace(self, tensors=tuple(bare), ops=()))
        for row, tensor in zip(found["tensors"], self.tensors, strict=True):
            row["fate"]["fate"] = tensor.fate.fate.value
            if tensor.alternatives is not None:
                row["alternatives"] = _documents(tensor.alternatives)
        found["ops"] = [
            {**asdict(replace(op, alternatives=())), "alternatives": _documents(op.alternatives)}
            for op in self.ops
        ]
        return found

    def to_json(self) -> str:
        """The findings as JSON."""
        return json.dumps(self.document(), indent=2)

    def __str__(self) -> str:
        from tvm_xengine.explain.words.tables import shown  # loads rich

        return plain_text(shown(self))


@dataclass(frozen=True)
class ExplainOptions:
    """What is explained, and how long it may take.

    Attributes
    ----------
    about
        Name or pattern of tensors, ops or layers, or a device; None is the whole plan.
    price_s
        Seconds for solving again with more memory, per device; 0 leaves the price of memory out.
    front_s
        Seconds for solving again under other budgets, per device; 0 leaves the fronts out.
    """

    about: str | None = None
    price_s: float = 0.0
    front_s: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("price_s", self.price_s), ("front_s", self.front_s)):
            if not 0 <= value < float("inf"):
                raise ValueError(f"expected {name} of at least 0 seconds, got {value}")


def explain_plan(
    plan: Plan,
    options: ExplainOptions | None = None,
    of_model: Mapping[str, Sequence[str]] | None = None,
) -> Explanation:
    """The findings about a plan.

    Parameters
    ----------
    of_model
        Names that the model gives the tensors of the step.

    Raises
    ------
    InvalidProblemError
        If nothing has the name that is asked about; the message has similar ones.
    """
    options = options or ExplainOptions()
    names = Names(plan.problem.graph, of_model or {})
    memory, planned = Memory(plan, names), PlannedSteps(plan)
    devices = [device.name for device in plan.problem.platform.devices]
    about = options.about
    of_device = about in devices
    asked = () if about is None or of_device else names.matching(about)
    objective = plan.result.objective
    named = [name for name in devices if about is None or name == about]
    prices = bound_prices(plan, options.price_s) if named and options.price_s else {}
    result = with_better_bound(plan.result, prices.values())
    return Explanation(
        objective=objective.value,
        unit=objective.unit,
        value=objective.of(plan.simulation),
        bound=result.bound,
        proof=proof_in_words(result),
        devices=tuple(_device(memory, name, options, prices.get(name)) for name in named),
        tensors=_tensors(memory, planned, None if about is None else set(asked)),
        ops=tuple(_op(planned, names, name) for name in asked if name in plan.problem.graph.op),
        speedups=() if asked else speedups(plan, names),
    )


def _device(
    memory: Memory, name: str, options: ExplainOptions, bound_price: BoundPrice | None
) -> DeviceFinding:
    plan = memory.plan
    is_used = plan.arenas.arena_bytes[name] > 0
    price_s, front_s = (s if is_used else 0.0 for s in (options.price_s, options.front_s))
    price = memory_price(plan, name, price_s, bound_price) if price_s else None
    greedy_s = _SMALLEST_S / len(plan.problem.platform.devices)
    smallest = smallest_budget(plan, name, greedy_s, front_s / 2)
    return DeviceFinding(
        name,
        plan.problem.platform.device(name).budget_bytes,
        plan.arenas.arena_bytes[name],
        plan.simulation.peak_bytes[name],
        memory.time_points(name),
        smallest,
        price,
        bound_price,
        front(plan, name, smallest, price, bound_price, front_s) if front_s else (),
    )


def _tensors(
    memory: Memory, planned: PlannedSteps, asked: Collection[str] | None
) -> tuple[TensorFinding, ...]:
    """Findings of the tensors that are asked for, or of all; the most telling are weighed."""
    graph = memory.plan.problem.graph
    found = fates(memory.plan)
    if asked is None:
        weighed: Collection[str] = _most_telling(memory, found)
    else:
        weighed = asked
        found = {name: fate for name, fate in found.items() if name in asked}
    return tuple(
        TensorFinding(
            name,
            memory.names.label(name),
            memory.names.layer[name],
            memory.names.line(name),
            memory.category[name],
            graph.tensor[name].size_bytes,
            graph.tensor[name].shape,
            graph.tensor[name].dtype,
            fate,
            _offered(tensor_alternatives(planned, name)) if name in weighed else None,
        )
        for name, fate in found.items()
    )


def _most_telling(memory: Memory, found: Mapping[str, TensorFate]) -> Collection[str]:
    """The largest tensors that are recomputed or moved, and then those that are kept at a peak."""
    size = {tensor.name: tensor.size_bytes for tensor in memory.plan.problem.graph.bases}

    def largest(names: Iterable[str]) -> list[str]:
        return sorted(names, key=lambda name: (-size[name], name))

    treated = largest(n for n, f in found.items() if f.fate in (Fate.RECOMPUTED, Fate.MOVED))
    held = largest(
        one.name
        for device in memory.plan.problem.platform.devices
        for point in memory.time_points(device.name)
        for one in point.largest
        if one.name in found and found[one.name].fate is Fate.KEPT
    )
    return list(dict.fromkeys([*treated, *held]))[:_MOST_WEIGHED]


def _op(planned: PlannedSteps, names: Names, name: str) -> OpFinding:
    plan = planned.plan
    kernels = {
        place_of(device, variant): cost
        for device, there in plan.problem.costs[name].items()
        for variant, cost in there.kernels.items()
    }
    return OpFinding(
        name,
        names.layer[name],
        names.line(name),
        tuple(
            (position, place_of(step.device, step.variant))
            for position, step in enumerate(plan.schedule.steps)
            if isinstance(step, Compute) and step.op == name
        ),
        {place: cost.compute_us for place, cost in kernels.items()},
        {place: cost.workspace_bytes for place, cost in kernels.items()},
        _offered(op_alternatives(planned, name)),
    )


def _offered(alternatives: Sequence[Alternative]) -> tuple[Alternative, ...]:
    """The best of every kind, and then the best of the rest, in their order."""
    best = {one.way: one for one in reversed(alternatives)}
    chosen = [*best.values(), *(one for one in alternatives if best[one.way] is not one)]
    return tuple(one for one in alternatives if one in chosen[: max(_MOST_OFFERED, len(best))])


def _documents(alternatives: Iterable[Alternative]) -> list[dict[str, object]]:
    return [
        {
            "way": one.way.value,
            "what": one.what,
            "difference": one.difference,
            "fits": one.fits,
            "excess": [asdict(excess) for excess in one.excess],
            "peak_bytes": dict(one.peak_bytes),
        }
        for one in alternatives
    ]
