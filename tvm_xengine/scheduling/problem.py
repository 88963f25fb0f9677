"""The scheduling problem: a graph, a platform, and what every op costs on every device."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from tvm_xengine.checks.documents import is_of_schema, reject_unknown_keys, typed, typed_value
from tvm_xengine.errors import InvalidProblemError
from tvm_xengine.files.atomic_write import write_atomically
from tvm_xengine.files.read_text import parse_json, read_document
from tvm_xengine.scheduling.constraints import (
    Constraints,
    constraints_from_json,
    constraints_to_json,
)
from tvm_xengine.scheduling.graph import MAX_BYTES, Op, OpGraph, Tensor
from tvm_xengine.scheduling.platform import STREAM_TIMES, Device, Link, Platform

SCHEMA = 1
"""Version of the file, raised when a field is added or changes its meaning."""

_KEYS = (
    *("schema", "tensors", "ops", "outputs", "devices", "links", "platform", "costs", "home"),
    *("constraints", *STREAM_TIMES),
)

_Row = TypeVar("_Row")


class CostSource(Enum):
    """Where a cost comes from; transferred is predicted by a model of other processors."""

    MEASURED = "measured"
    CACHED = "cached"
    PREDICTED = "predicted"
    TRANSFERRED = "transferred"
    ROOFLINE = "roofline"
    GIVEN = "given"

    @property
    def is_measured(self) -> bool:
        """Whether the kernel itself was timed, now or before."""
        return self in (CostSource.MEASURED, CostSource.CACHED)

    @property
    def is_predicted(self) -> bool:
        """Whether a model that has learned says so."""
        return self in (CostSource.PREDICTED, CostSource.TRANSFERRED)


@dataclass(frozen=True)
class OpCost:
    """What one run of an op costs on one device.

    Attributes
    ----------
    compute_us
        Expected run time, > 0.
    workspace_bytes
        Scratch memory while it runs, rounded up to the alignment.
    energy_uj
        Energy of one run; 0 when unknown.
    interval_us
        Interval of the run time; None where only `compute_us` is known.
    variants
        Other kernels that a run may take, by name, with what a run then costs. Their numbers may differ
        in the last bits.
    """

    compute_us: float
    workspace_bytes: int = 0
    energy_uj: float = 0.0
    interval_us: tuple[float, float] | None = None
    source: CostSource = CostSource.GIVEN
    variants: Mapping[str, OpCost] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if "" in self.variants or any(cost.variants for cost in self.variants.values()):
            raise InvalidProblemError(
                "each variant of an op needs a name and has no variants of its own, got"
                f" {sorted(self.variants)}"
            )
        if not (math.isfinite(self.compute_us) and self.compute_us > 0):
            raise InvalidProblemError(f"compute_us must be finite and > 0, got {self.compute_us}")
        if not 0 <= self.workspace_bytes <= MAX_BYTES:
            raise InvalidProblemError(
                f"workspace_bytes must be in 0..2^53-1, got {self.workspace_bytes}"
            )
        if not (math.isfinite(self.energy_uj) and self.energy_uj >= 0):
            raise InvalidProblemError(f"energy_uj must be finite and >= 0, got {self.energy_uj}")
        if not 0 <= self.lo_us <= self.compute_us <= self.hi_us < math.inf:
            raise InvalidProblemError(
                "expected 0 <= lo_us <= compute_us <= hi_us, got"
                f" {self.lo_us}, {self.compute_us}, {self.hi_us}"
            )

    @cached_property
    def kernels(self) -> Mapping[str, OpCost]:
        """This cost by the name ``""``, and those of the variants by theirs."""
        return {"": self, **self.variants}

    @property
    def least_workspace_bytes(self) -> int:
        """Scratch memory of the kernel that needs the least."""
        return min(cost.workspace_bytes for cost in self.kernels.values())

    def changed(self, change: Callable[[OpCost], OpCost]) -> OpCost:
        """This cost after a change of it and of each variant."""
        variants = {name: change(cost) for name, cost in self.variants.items()}
        return replace(change(self), variants=variants)

    @property
    def lo_us(self) -> float:
        """Lower end of the interval of the run time."""
        return self.compute_us if self.interval_us is None else self.interval_us[0]

    @property
    def hi_us(self) -> float:
        """Upper end of the interval of the run time."""
        return self.compute_us if self.interval_us is None else self.interval_us[1]


@dataclass(frozen=True)
class Problem:
    """Everything a solver needs, in plain numbers.

    Attributes
    ----------
    costs
        ``costs[op][device]``; a device that is absent cannot run the op.
    home
        Device on which each resident tensor is when the step begins, and on which
        persistent ones must be when it ends. Tensors that are not named live on
        ``platform.home``.
    constraints
        What every schedule must respect in addition.
    state_apart
        Whether layouts put all state that is at home below everything else, so that the two parts can
        lie in different places (:mod:`tvm_xengine.scheduling.arena.apart`). No part of the file.
    saves_energy
        Whether runs that have a choice take the kernel of least energy, not the fastest. No part of the
        file.
    """

    graph: OpGraph
    platform: Platform
    costs: Mapping[str, Mapping[str, OpCost]]
    home: Mapping[str, str] = field(default_factory=dict)
    constraints: Constraints = field(default_factory=Constraints)
    state_apart: bool = False
    saves_energy: bool = False

    def __post_init__(self) -> None:
        resident = [tensor for tensor in self.graph.bases if tensor.role.is_resident]
        for name in self.home:
            if name not in self.graph.tensor or not self.graph.tensor[name].role.is_resident:
                raise InvalidProblemError(f"home names {name!r}, which is not a resident tensor")
        complete = {
            tensor.name: self.home.get(tensor.name, self.platform.home) for tensor in resident
        }
        object.__setattr__(self, "home", complete)
        self._check_links()
        self._check_costs()
        self._check_homes()
        self.constraints.check(self.graph, self.costs)

    def can_run(self, op: str, device: str) -> bool:
        """Whether `op` can run on `device` and the constraints allow it."""
        return device in self.costs[op] and self.constraints.pinned.get(op, device) == device

    def run_cost(self, op: str, device: str, variant: str = "") -> OpCost:
        """What a run of `op` on `device` costs with that variant; a `KeyError` without it."""
        return self.costs[op][device].kernels[variant]

    @cached_property
    def has_variants(self) -> bool:
        """Whether some op may take one of several kernels on a device."""
        return any(cost.variants for there in self.costs.values() for cost in there.values())

    def may_repeat(self, op: str) -> bool:
        """Whether `op` may run more than once."""
        return self.graph.op[op].recomputable and op not in self.constraints.kept

    @cached_property
    def without_constraints(self) -> Problem:
        """A problem with the same schedules, whose costs and ops themselves say what may run.

        An op has costs only where it may run, and is not recomputable where it must run once. All
        solvers get this form, so each of them respects every constraint.
        """
        if not self.constraints:
            return self
        kept = self.constraints.kept
        ops = tuple(
            replace(op, recomputable=False) if op.name in kept else op for op in self.graph.ops
        )
        costs = {
            op: {device: cost for device, cost in there.items() if self.can_run(op, device)}
            for op, there in self.costs.items()
        }
        graph = replace(self.graph, ops=ops)
        return replace(self, graph=graph, costs=costs, constraints=Constraints())

    @cached_property
    def home_bytes(self) -> Mapping[str, int]:
        """Bytes of resident state whose home each device is."""
        total = {device.name: 0 for device in self.platform.devices}
        for name, device in self.home.items():
            total[device] += self.graph.tensor[name].size_bytes
        return total

    @cached_property
    def state_fits(self) -> bool:
        """Whether every device has room for the state at home there, before the first step."""
        return all(self.home_bytes[d.name] <= d.budget_bytes for d in self.platform.devices)

    @cached_property
    def cheapest_us(self) -> float:
        """Sum over all ops of their time on the fastest device: the scale of the problem.

        No schedule costs less, unless it leaves out ops without readers.
        """
        return sum(
            min(
                cost.compute_us
                for there in self.costs[op.name].values()
                for cost in there.kernels.values()
            )
            for op in self.graph.ops
        )

    def with_budgets(self, budgets: Mapping[str, int]) -> Problem:
        """The same problem with other budgets for the devices that `budgets` names."""
        return replace(self, platform=self.platform.with_budgets(budgets))

    def asked_as(self, other: Problem) -> Problem:
        """The same problem, with the budgets and the rule of layout of another one."""
        budgets = {device.name: device.budget_bytes for device in other.platform.devices}
        return replace(self.with_budgets(budgets), state_apart=other.state_apart)

    def _check_links(self) -> None:
        for link in self.platform.links:
            if not link.is_measured:
                raise InvalidProblemError(
                    f"link {link.src} -> {link.dst} has no latency_us and bandwidth_gb_s; measure it"
                    " or give both"
                )

    def _check_costs(self) -> None:
        names = set(self.graph.op)
        if extra := sorted(set(self.costs) - names):
            raise InvalidProblemError(
                f"costs are given for {extra}, which are not ops of the graph"
            )
        for op in self.graph.ops:
            if not self.costs.get(op.name):
                raise InvalidProblemError(f"op {op.name} has no cost: no device can run it")
            for device in self.costs[op.name]:
                if device not in self.platform.index:
                    raise InvalidProblemError(
                        f"op {op.name} has a cost on unknown device {device!r}"
                    )
                if not self.platform.device(device).can_compute:
                    raise InvalidProblemError(
                        f"op {op.name} has a cost on {device}, a device without target that only"
                        " stores"
                    )

    def _check_homes(self) -> None:
        for name, device in self.home.items():
            if device not in self.platform.index:
                raise InvalidProblemError(
                    f"the home of {name} must be one of {list(self.platform.index)}, got {device!r}"
                )


def problem_to_json(problem: Problem) -> str:
    """`problem` as a JSON text that `problem_from_json` reads back to an equal problem."""
    graph = problem.graph
    document: dict[str, object] = {
        "schema": SCHEMA,
        "tensors": [{**asdict(t), "role": t.role.value} for t in graph.tensors],
        "ops": [asdict(op) for op in graph.ops],
        "outputs": graph.outputs,
        "devices": [asdict(device) for device in problem.platform.devices],
        "links": [asdict(link) for link in problem.platform.links],
        "platform": {
            "home": problem.platform.home,
            "alignment_bytes": problem.platform.alignment_bytes,
        },
        "costs": {
            op: {d: _cost_to_json(cost) for d, cost in costs.items()}
            for op, costs in problem.costs.items()
        },
        "home": dict(problem.home),
    }
    for name in STREAM_TIMES:
        if (time_us := getattr(problem.platform, name)) is not None:
            document[name] = time_us
    if problem.constraints:
        document["constraints"] = constraints_to_json(problem.constraints)
    return json.dumps(document, allow_nan=False)


def problem_from_json(text: str) -> Problem:
    """The problem that `text` describes.

    Raises
    ------
    InvalidProblemError
        If the text is not JSON, is of another schema, or describes no valid problem.
    """
    try:
        document = parse_json(text)
    except ValueError as error:
        raise InvalidProblemError(f"the problem is not valid JSON: {error}") from error
    if not is_of_schema(document, SCHEMA):
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise InvalidProblemError(f"expected a problem of schema {SCHEMA}, found {found!r}")
    try:
        reject_unknown_keys("it", document, _KEYS)
        reject_unknown_keys("platform", document["platform"], ("home", "alignment_bytes"))
        return Problem(
            graph=OpGraph(
                tensors=_rows(Tensor, document["tensors"]),
                ops=_rows(Op, document["ops"]),
                outputs=typed_value(tuple[str, ...], document["outputs"]),
            ),
            platform=Platform(
                devices=_rows(Device, document["devices"]),
                links=_rows(Link, document["links"]),
                home=typed_value(str, document["platform"]["home"]),
                alignment_bytes=typed_value(int, document["platform"]["alignment_bytes"]),
                handover_us=typed_value(float | None, document.get("handover_us")),
                start_us=typed_value(float | None, document.get("start_us")),
            ),
            costs={
                op: {device: _cost_from_json(cost) for device, cost in costs.items()}
                for op, costs in document["costs"].items()
            },
            home=typed_value(Mapping[str, str], document["home"]),
            constraints=constraints_from_json(
                document.get("constraints", constraints_to_json(Constraints()))
            ),
        )
    except KeyError as error:
        raise InvalidProblemError(f"the problem lacks the key {error}") from error
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidProblemError(f"the problem is malformed: {error}") from error


def _cost_to_json(cost: OpCost) -> dict[str, object]:
    lo_us, hi_us = cost.interval_us or (None, None)
    document: dict[str, object] = {
        "compute_us": cost.compute_us,
        "workspace_bytes": cost.workspace_bytes,
        "energy_uj": cost.energy_uj,
        "lo_us": lo_us,
        "hi_us": hi_us,
        "source": cost.source.value,
    }
    if cost.variants:
        document["variants"] = {name: _cost_to_json(one) for name, one in cost.variants.items()}
    return document


def _cost_from_json(document: Mapping[str, Any]) -> OpCost:
    fields = dict(document)
    lo_us, hi_us = fields.pop("lo_us", None), fields.pop("hi_us", None)
    variants = fields.pop("variants", {})
    if (lo_us is None) != (hi_us is None):
        raise ValueError("expected both lo_us and hi_us of a cost, or neither")
    made = typed(OpCost, {**fields, "interval_us": None if lo_us is None else [lo_us, hi_us]})
    return replace(
        made, variants={str(name): _cost_from_json(one) for name, one in variants.items()}
    )


def _rows(cls: type[_Row], rows: object) -> tuple[_Row, ...]:
    if not isinstance(rows, list):
        raise TypeError(f"expected a list of {cls.__name__}, got {type(rows).__name__}")
    return tuple(typed(cls, row) for row in rows)


def read_problem(path: str | Path) -> Problem:
    """The problem in the JSON file at `path`; errors as in `problem_from_json`."""
    return read_document(Path(path), "problem", InvalidProblemError, problem_from_json)


def write_problem(problem: Problem, path: str | Path) -> None:
    """Write `problem` as JSON; an existing file is replaced only when all is written."""
    write_atomically(Path(path), problem_to_json(problem))
