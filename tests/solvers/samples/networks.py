"""Graphs shaped like training steps, with synthetic costs, for tests and benchmarks of solvers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, with_frees
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES

KIB = 1024


@dataclass
class _Tape:
    """Forward ops are recorded; `training_step` adds their gradients and updates."""

    tensors: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    work: dict[str, float] = field(default_factory=dict)
    forward: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)
    size: dict[str, int] = field(default_factory=dict)

    def tensor(self, name: str, size_bytes: int, role: Role = Role.INTERMEDIATE) -> str:
        self.tensors.append(Tensor(name, size_bytes, role))
        self.size[name] = size_bytes
        return name

    def op(
        self,
        kernel: str,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        work: float,
        updates: tuple[tuple[str, str], ...] = (),
    ) -> None:
        name = f"op{len(self.ops)}_{kernel}"
        self.ops.append(
            Op(name, kernel, tuple(dict.fromkeys(inputs)), outputs, updates, not updates)
        )
        self.work[name] = work

    def layer(self, kernel: str, inputs: tuple[str, ...], size_kib: int, weight_kib: int) -> str:
        """A forward op; norms also make a small saved statistic."""
        k = len(self.forward)
        weights = (self.tensor(f"w{k}", weight_kib * KIB, Role.PARAMETER),) if weight_kib else ()
        out = self.tensor(f"a{k}", size_kib * KIB)
        made = (out,)
        if kernel == "norm":
            made = (out, self.tensor(f"saved{k}", 2 * KIB))
        work = _WORK[kernel] * (size_kib + sum(self.size[x] for x in inputs) / KIB)
        self.op(kernel, (*inputs, *weights), made, work)
        self.forward.append((kernel, (*inputs, *weights), made))
        return out

    def training_step(self, loss: str) -> tuple[str, ...]:
        """Add the backward pass and the updates; returns the outputs of the step."""
        gradient = {loss: self.tensor("g_loss", 1 * KIB)}
        self.op("loss_grad", (loss,), ("g_loss",), 1.0)
        for kernel, inputs, made in reversed(self.forward):
            given = gradient[made[0]]
            for x in inputs:
                if x == "batch":
                    continue
                reads = tuple(y for y in inputs if y != x or kernel in _READS_ALL)
                part = self.tensor(f"g{len(self.tensors)}", self.size[x])
                saved = made[1:] if kernel == "norm" else ()
                work = _WORK[kernel] * (self.size[made[0]] + self.size[x]) / KIB
                self.op(f"{kernel}_grad", (given, *reads, *saved), (part,), work)
                if x.startswith("w"):
                    self.op("sgd", (x, part), (self._new(x),), 1.0, ((f"{x}_new", x),))
                elif x in gradient:
                    total = self.tensor(f"g{len(self.tensors)}", self.size[x])
                    work = _WORK["add"] * self.size[x] / KIB
                    self.op("add_grad", (gradient[x], part), (total,), work)
                    gradient[x] = total
                else:
                    gradient[x] = part
        return (loss,)

    def _new(self, x: str) -> str:
        return self.tensor(f"{x}_new", self.size[x])


_WORK = {"conv": 8.0, "norm": 1.0, "relu": 0.5, "add": 0.6, "matmul": 10.0, "loss": 1.0}
_READS_ALL = ("norm", "relu")


def chain(layers: int) -> OpGraph:
    """Convolutions, norms and activations in a row."""
    tape = _Tape()
    x = tape.tensor("batch", 64 * KIB, Role.BATCH)
    for k in range(layers):
        width = 128 >> (4 * k // layers)
        x = tape.layer("conv", (x,), width, 16)
        x = tape.layer("relu", (x,), width, 0)
    return _finish(tape, x)


def residual(blocks: int) -> OpGraph:
    """Residual blocks with norms, as in ResNet."""
    tape = _Tape()
    x = tape.layer("conv", (tape.tensor("batch", 32 * KIB, Role.BATCH),), 128, 8)
    for k in range(blocks):
        width = 128 >> (3 * k // blocks)
        skip = x
        for _ in range(2):
            x = tape.layer("relu", (tape.layer("norm", (x,), width, 1),), width, 0)
            x = tape.layer("conv", (x,), width, 16 << (3 * k // blocks))
        if tape.size[skip] != tape.size[x]:
            skip = tape.layer("conv", (skip,), width, 4)
        x = tape.layer("add", (x, skip), width, 0)
    return _finish(tape, x)


def transformer(layers: int) -> OpGraph:
    """Pre-norm attention and feed-forward blocks, as in GPT-2."""
    tape = _Tape()
    x = tape.layer("matmul", (tape.tensor("batch", 4 * KIB, Role.BATCH),), 64, 64)
    for _ in range(layers):
        h = tape.layer("norm", (x,), 64, 1)
        q, k, v = (tape.layer("matmul", (h,), 64, 16) for _ in range(3))
        scores = tape.layer("relu", (tape.layer("matmul", (q, k), 128, 0),), 128, 0)
        h = tape.layer("matmul", (tape.layer("matmul", (scores, v), 64, 0),), 64, 16)
        x = tape.layer("add", (x, h), 64, 0)
        h = tape.layer(
            "relu", (tape.layer("matmul", (tape.layer("norm", (x,), 64, 1),), 256, 64),), 256, 0
        )
        x = tape.layer("add", (x, tape.layer("matmul", (h,), 64, 64)), 64, 0)
    return _finish(tape, x)


def unet(depth: int) -> OpGraph:
    """An hourglass with long skips."""
    tape = _Tape()
    x = tape.layer("conv", (tape.tensor("batch", 32 * KIB, Role.BATCH),), 256, 4)
    skips: list[str] = []
    for k in range(depth):
        for _ in range(2):
            x = tape.layer("relu", (tape.layer("conv", (x,), 256 >> k, 8),), 256 >> k, 0)
        skips.append(x)
        x = tape.layer("relu", (x,), 128 >> k, 0)
    for k in reversed(range(depth)):
        x = tape.layer("conv", (x,), 256 >> k, 8)
        x = tape.layer("add", (x, skips[k]), 256 >> k, 0)
        x = tape.layer("relu", (tape.layer("conv", (x,), 256 >> k, 8),), 256 >> k, 0)
    return _finish(tape, x)


def _finish(tape: _Tape, x: str) -> OpGraph:
    loss = tape.layer("loss", (x,), 1, 0)
    outputs = tape.training_step(loss)
    return OpGraph(tuple(tape.tensors), tuple(tape.ops), outputs)


def single(graph: OpGraph, ratio: float = 1.0, *, seed: int = 0) -> Problem:
    """`graph` on one device whose budget is state plus `ratio` of what keeping all needs."""
    return _with_ratio(_problem(graph, (1.0,), (), seed), {"d0": ratio})


def pair(graph: OpGraph, ratio: float, *, slow: float, link_gb_s: float, seed: int = 0) -> Problem:
    """`graph` on a fast device with the budget of `single` and a `slow` times slower, ample one."""
    links = (Link("d0", "d1", 2.0, link_gb_s), Link("d1", "d0", 2.0, link_gb_s))
    return _with_ratio(_problem(graph, (1.0, slow), links, seed), {"d0": ratio})


def with_storage(graph: OpGraph, ratio: float, *, link_gb_s: float, seed: int = 0) -> Problem:
    """`graph` on one device with the budget of `single`, beside a device that only stores."""
    links = (Link("d0", "d1", 2.0, link_gb_s), Link("d1", "d0", 2.0, link_gb_s))
    return _with_ratio(_problem(graph, (1.0, None), links, seed), {"d0": ratio})


def keep_all(problem: Problem, device: str = "d0") -> Schedule:
    """Every op once, in order, on one device."""
    return with_frees(problem, [Compute(op.name, device) for op in problem.graph.ops])


def _problem(
    graph: OpGraph, slow: tuple[float | None, ...], links: tuple[Link, ...], seed: int
) -> Problem:
    """Costs follow the work of the kernels, with a factor per kernel and device."""
    rng = np.random.default_rng(seed)
    devices = tuple(
        Device(f"d{d}", "llvm" if factor else None, UNLIMITED_BYTES, power_w=5.0)
        for d, factor in enumerate(slow)
    )
    factor = {
        (kernel, d): float(rng.uniform(0.7, 1.4))
        for kernel in sorted({op.kernel for op in graph.ops})
        for d in range(len(slow))
    }
    costs = {}
    for op in graph.ops:
        moved = sum(graph.tensor[t].size_bytes for t in (*op.inputs, *op.outputs)) / KIB
        base = 0.02 * moved * _WORK.get(op.kernel.removesuffix("_grad"), 0.5) + 0.5
        costs[op.name] = {
            f"d{d}": OpCost(
                round(base * times * factor[op.kernel, d], 3),
                workspace_bytes=8 * KIB if "conv" in op.kernel else 0,
                energy_uj=round(base * factor[op.kernel, d] * 5.0, 3),
            )
            for d, times in enumerate(slow)
            if times is not None
        }
    return Problem(graph, Platform(devices, links), costs)


def _with_ratio(problem: Problem, ratios: dict[str, float]) -> Problem:
    budgets = {}
    for device, ratio in ratios.items():
        peak = simulate(problem, keep_all(problem, device)).peak_bytes[device]
        state = problem.home_bytes[device]
        budgets[device] = int(state + ratio * (peak - state))
    return problem.with_budgets(budgets)
