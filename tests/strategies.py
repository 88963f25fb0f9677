"""Hypothesis strategies that draw small scheduling problems with every feature of the problem definition.

Several outputs, views, workspace, variants of ops, resident state with homes on several devices, in-place
updates, ops that must not be repeated, devices that only store, and missing links. Costs are
small integers, so that objectives can be compared exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import assume, settings
from hypothesis import strategies as st

from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute, Step, Transfer
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES

Scheduled = tuple[Problem, list[Step]]

UNIT_BYTES = 64
"""Every size and budget that is drawn is a multiple of this."""


def cases(most: int) -> int:
    """Of `most` drawn cases those of the profile: a fourth, or with ``--hypothesis-profile many`` all."""
    return max(1, most * settings.default.max_examples // 100)


_PERSISTENT = (Role.PARAMETER, Role.OPTIMIZER_STATE, Role.STATISTIC, Role.CONSTANT)
_TRANSIENT = (Role.BATCH, Role.HYPER)


@dataclass
class _Draft:
    """A graph while ops are still being added to it."""

    tensors: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    readable: list[str] = field(default_factory=list)

    def forget(self, base: str) -> None:
        """Nothing may read `base` or its views any more."""
        parent = {tensor.name: tensor.alias_of for tensor in self.tensors}

        def root(name: str) -> str:
            while (above := parent[name]) is not None:
                name = above
            return name

        self.readable = [name for name in self.readable if root(name) != base]


@st.composite
def graphs(draw: st.DrawFn, *, max_ops: int = 5, max_state: int = 3) -> OpGraph:
    """Graphs of 1 to `max_ops` ops over at most `max_state` resident tensors."""
    draft = _Draft()
    for i in range(draw(st.integers(0, max_state))):
        role = draw(st.sampled_from(_PERSISTENT if draw(st.booleans()) else _TRANSIENT))
        draft.tensors.append(Tensor(f"s{i}", draw(_sizes()), role))
        draft.readable.append(f"s{i}")
    for i in range(draw(st.integers(1, max_ops))):
        _add_op(draw, draft, i)
        if draw(st.integers(0, 4)) == 0 and draft.readable:
            _add_view(draw, draft)
    made = [name for op in draft.ops for name in op.outputs]
    outputs = [made[-1], *draw(st.lists(st.sampled_from(made), max_size=2))]
    views = [t.name for t in draft.tensors if t.alias_of in made]
    if views and draw(st.booleans()):
        outputs.append(draw(st.sampled_from(views)))
    return OpGraph(tuple(draft.tensors), tuple(draft.ops), tuple(dict.fromkeys(outputs)))


@st.composite
def platforms(draw: st.DrawFn, *, max_devices: int = 2) -> Platform:
    """Platforms of 1 to `max_devices` devices without budgets; at least one computes."""
    count = draw(st.integers(1, max_devices))
    stores = [False] + [draw(st.integers(0, 3)) == 0 for _ in range(count - 1)]
    devices = tuple(
        Device(f"d{d}", None if store else "llvm", UNLIMITED_BYTES)
        for d, store in enumerate(stores)
    )
    links = []
    for src in range(count):
        for dst in range(count):
            if src != dst and draw(st.integers(0, 5)) > 0:
                latency, per_unit = draw(st.integers(1, 4)), draw(st.sampled_from((0.5, 1.0, 2.0)))
                bandwidth = UNIT_BYTES / (1000.0 * per_unit)
                nanojoule = float(draw(st.integers(0, 3)) * 1000) / UNIT_BYTES
                names = (f"d{src}", f"d{dst}")
                computing = [f"d{d}" for d in (src, dst) if not stores[d]]
                engine = draw(st.sampled_from((None, None, *computing)))
                links.append(Link(*names, float(latency), bandwidth, nanojoule, 1.0, engine))
    home = draw(st.sampled_from(devices)).name
    handover_us = draw(st.sampled_from([None, 0.0, 7.5]))
    return Platform(devices, tuple(links), home, UNIT_BYTES, handover_us)


@st.composite
def problems(
    draw: st.DrawFn, *, max_ops: int = 5, max_devices: int = 2, max_state: int = 3
) -> Problem:
    """Problems with budgets between far too small and ample."""
    graph = draw(graphs(max_ops=max_ops, max_state=max_state))
    platform = draw(platforms(max_devices=max_devices))
    computing = [device.name for device in platform.computing]
    resident = [tensor for tensor in graph.bases if tensor.role.is_resident]
    names = [device.name for device in platform.devices]
    home = {t.name: draw(st.sampled_from(names)) for t in resident if draw(st.integers(0, 3)) == 0}
    costs = {
        op.name: {
            device: _cost(draw)
            for device in draw(
                st.lists(
                    st.sampled_from(computing), min_size=1, max_size=len(computing), unique=True
                )
            )
        }
        for op in graph.ops
    }
    total = sum(tensor.size_bytes for tensor in graph.bases) // UNIT_BYTES
    budgets: dict[str, int] = {}
    for name in names:
        at_home = [t for t in resident if home.get(t.name, platform.home) == name]
        together = draw(st.integers(0, 9)) > 0
        least = (sum if together else max)([t.size_bytes // UNIT_BYTES for t in at_home] or [0])
        budgets[name] = UNIT_BYTES * (max(1, least) + draw(st.integers(0, total)))
    return Problem(graph, platform.with_budgets(budgets), costs, home)


@st.composite
def scheduled(draw: st.DrawFn, *, max_devices: int = 3) -> Scheduled:
    """Problems with computations and copies of a schedule, which may exceed the budgets."""
    problem = draw(problems(max_devices=max_devices))
    steps = _run_somehow(draw, problem)
    assume(steps)
    return problem, steps


def _run_somehow(draw: st.DrawFn, problem: Problem) -> list[Step]:
    """Computations in order on devices that have their inputs after copies; empty where links lack."""
    steps: list[Step] = []
    there = {(name, device) for name, device in problem.home.items()}
    for op in problem.graph.ops:
        device = draw(st.sampled_from(sorted(problem.costs[op.name])))
        for name in problem.graph.reads[op.name]:
            if (name, device) not in there:
                sources = [s for s, d in problem.platform.link_between if d == device]
                source = next((s for s in sources if (name, s) in there), None)
                if source is None:
                    return []
                steps.append(Transfer(name, source, device))
                there.add((name, device))
        steps.append(Compute(op.name, device))
        there -= {(state, device) for _, state in op.updates}
        there |= {(name, device) for name in op.outputs}
        for output, state in op.updates:
            home = problem.home[state]
            if home != device:
                if (device, home) not in problem.platform.link_between:
                    return []
                steps.append(Transfer(output, device, home))
                there.add((output, home))
                there.discard((state, home))
    return steps


def _add_op(draw: st.DrawFn, draft: _Draft, i: int) -> None:
    inputs = (
        draw(st.lists(st.sampled_from(draft.readable), min_size=0, max_size=3, unique=True))
        if draft.readable
        else []
    )
    outputs = [
        Tensor(f"t{i}_{k}", draw(_sizes())) for k in range(2 if draw(st.integers(0, 3)) == 0 else 1)
    ]
    updates: tuple[tuple[str, str], ...] = ()
    updatable = [
        t
        for t in draft.tensors
        if t.role.is_persistent and t.alias_of is None and t.name in draft.readable
    ]
    if updatable and draw(st.integers(0, 3)) == 0:
        state = draw(st.sampled_from(updatable))
        outputs[0] = Tensor(outputs[0].name, state.size_bytes)
        updates = ((outputs[0].name, state.name),)
        inputs = list(dict.fromkeys([state.name, *inputs]))
        draft.forget(state.name)
    draft.tensors.extend(outputs)
    draft.ops.append(
        Op(
            name=f"op{i}",
            kernel=f"k{i}",
            inputs=tuple(inputs),
            outputs=tuple(t.name for t in outputs),
            updates=updates,
            recomputable=not updates and draw(st.integers(0, 7)) > 0,
        )
    )
    draft.readable.extend(t.name for t in outputs)


def _add_view(draw: st.DrawFn, draft: _Draft) -> None:
    of = draw(st.sampled_from(draft.readable))
    size = next(t.size_bytes for t in draft.tensors if t.name == of)
    view = Tensor(f"v{len(draft.tensors)}", size, alias_of=of)
    draft.tensors.append(view)
    draft.readable.append(view.name)


def _cost(draw: st.DrawFn) -> OpCost:
    cost = _kernel(draw)
    if draw(st.integers(0, 2)) > 0:
        return cost
    names = ("lean", "leaner")[: draw(st.integers(1, 2))]
    return replace(cost, variants={name: _kernel(draw) for name in names})


def _kernel(draw: st.DrawFn) -> OpCost:
    workspace = draw(st.sampled_from((0, 0, 0, 1, 2))) * UNIT_BYTES
    return OpCost(
        float(draw(st.integers(1, 9))),
        workspace_bytes=workspace,
        energy_uj=float(draw(st.integers(0, 5))),
    )


def _sizes() -> st.SearchStrategy[int]:
    return st.integers(1, 4).map(lambda units: units * UNIT_BYTES)
