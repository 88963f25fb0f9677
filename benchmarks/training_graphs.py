"""Training graphs of any size with made-up times, for questions about solvers.

Their shape is that of what this project extracts: forward ops, one backward op for each and a
gradient for each parameter, updates in place right after the last reader. Times are of the
order of a roofline. Graphs extracted from real models can be saved with ``tvm-xengine plan``
and are better where they exist.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from tvm_xengine.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.platform import Device, Link, Platform
from tvm_xengine.problem import OpCost, Problem
from tvm_xengine.simulate import simulate
from tvm_xengine.solvers.baselines.placed import run_once

KIB = 1024
PCIE = (10.0, 12.0)
"""Latency in us and bandwidth in GB/s of a link as over PCIe."""
SHARED = (1.0, 50.0)
"""The same of devices that share memory."""


@dataclass
class _Draft:
    """A graph while ops are added; every op's time is on the first device."""

    random: random.Random
    tensors: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    compute_us: dict[str, float] = field(default_factory=dict)
    workspace: dict[str, int] = field(default_factory=dict)

    def op(
        self, name: str, inputs: Iterable[str], size_bytes: int, mean_us: float, workspace: int = 0
    ) -> str:
        """Add an op with one output of its own name."""
        self.tensors.append(Tensor(name, size_bytes))
        self.ops.append(Op(name, name, tuple(inputs), (name,)))
        self._cost(name, mean_us, workspace)
        return name

    def update(self, weight: str, gradient: str, size_bytes: int) -> None:
        """Add an update in place of `weight`."""
        name = f"new_{weight}"
        self.tensors.append(Tensor(name, size_bytes))
        inputs, updates = (weight, gradient), ((name, weight),)
        self.ops.append(Op(name, "update", inputs, (name,), updates, recomputable=False))
        self._cost(name, 2.0, 0)

    def _cost(self, name: str, mean_us: float, workspace: int) -> None:
        self.compute_us[name] = mean_us * self.random.uniform(0.8, 1.2)
        self.workspace[name] = workspace


def residual_network(blocks: int, *, seed: int = 0) -> _Draft:
    """Convolution, norm and activation, every other with a skip; 8 ops a block."""
    draft = _Draft(random.Random(seed))
    draft.tensors.append(Tensor("x", 64 * KIB, Role.BATCH))
    size, below = 256 * KIB, "x"
    made: list[tuple[str, str, int]] = []
    for b in range(blocks):
        if b and b % max(1, blocks // 3) == 0:
            size //= 2
        weight, weight_bytes = f"w{b}", 32 * KIB * (1 + b % 4)
        draft.tensors.append(Tensor(weight, weight_bytes, Role.PARAMETER))
        draft.op(f"conv{b}", (below, weight), size, 125, size // 4)
        draft.op(f"norm{b}", (f"conv{b}",), size, 15)
        is_joined = b >= 2 and b % 2 == 1 and made[b - 2][2] == size
        skipped = (f"act{b - 2}",) if is_joined else ()
        draft.op(f"act{b}", (f"norm{b}", *skipped), size, 11)
        made.append((below, weight, size))
        below = f"act{b}"
    gradient = draft.op("loss_gradient", (draft.op("loss", (below,), KIB, 5), below), size, 5)
    for b in reversed(range(blocks)):
        below, weight, size = made[b]
        inner = draft.op(f"act_back{b}", (gradient, f"act{b}"), size, 11)
        inner = draft.op(f"norm_back{b}", (inner, f"conv{b}"), size, 25)
        bytes_of_weight = 32 * KIB * (1 + b % 4)
        if b:
            below_bytes = made[b - 1][2]
            gradient = draft.op(f"back{b}", (inner, weight), below_bytes, 125, size // 4)
        draft.op(f"grad{b}", (inner, below), bytes_of_weight, 125, size // 4)
        draft.update(weight, f"grad{b}", bytes_of_weight)
    return draft


def transformer(layers: int, *, seed: int = 0) -> _Draft:
    """Attention and feed-forward with residuals and four weights a layer; about 30 ops a layer."""
    draft = _Draft(random.Random(seed))
    draft.tensors.append(Tensor("x", 192 * KIB, Role.BATCH))
    hidden, below, layers_made = 192 * KIB, "x", []
    for n in range(layers):
        weights = [f"w{n}_{k}" for k in range(4)]
        for weight in weights:
            draft.tensors.append(Tensor(weight, 96 * KIB, Role.PARAMETER))
        a = draft.op(f"norm_a{n}", (below,), hidden, 8)
        qkv = draft.op(f"qkv{n}", (a, weights[0]), 3 * hidden, 90)
        scores = draft.op(f"scores{n}", (qkv,), 4 * hidden, 30)
        soft = draft.op(f"softmax{n}", (scores,), 4 * hidden, 20)
        mixed = draft.op(f"mixed{n}", (soft, qkv), hidden, 30)
        out = draft.op(f"out{n}", (mixed, weights[1], below), hidden, 40)
        b = draft.op(f"norm_b{n}", (out,), hidden, 8)
        up = draft.op(f"up{n}", (b, weights[2]), 4 * hidden, 120)
        gelu = draft.op(f"gelu{n}", (up,), 4 * hidden, 25)
        down = draft.op(f"down{n}", (gelu, weights[3], out), hidden, 120)
        layers_made.append((below, a, qkv, soft, mixed, out, b, up, gelu, weights))
        below = down
    gradient = draft.op("loss_gradient", (draft.op("loss", (below,), KIB, 5), below), hidden, 5)
    for n in reversed(range(layers)):
        below, a, qkv, soft, mixed, out, b, up, gelu, weights = layers_made[n]
        names = ("w3", "w2", "w1", "w0")
        d_gelu = draft.op(f"d_gelu{n}", (gradient, weights[3]), 4 * hidden, 120)
        g3 = draft.op(f"g_{names[0]}_{n}", (gelu, gradient), 96 * KIB, 120)
        d_up = draft.op(f"d_up{n}", (d_gelu, up), 4 * hidden, 30)
        d_b = draft.op(f"d_b{n}", (d_up, weights[2]), hidden, 120)
        g2 = draft.op(f"g_{names[1]}_{n}", (b, d_up), 96 * KIB, 120)
        d_out = draft.op(f"d_out{n}", (d_b, out, gradient), hidden, 15)
        d_mixed = draft.op(f"d_mixed{n}", (d_out, weights[1]), hidden, 40)
        g1 = draft.op(f"g_{names[2]}_{n}", (mixed, d_out), 96 * KIB, 40)
        d_soft = draft.op(f"d_soft{n}", (d_mixed, qkv), 4 * hidden, 30)
        d_scores = draft.op(f"d_scores{n}", (d_soft, soft), 4 * hidden, 25)
        d_qkv = draft.op(f"d_qkv{n}", (d_scores, d_mixed, soft, qkv), 3 * hidden, 60)
        d_a = draft.op(f"d_a{n}", (d_qkv, weights[0]), hidden, 90)
        g0 = draft.op(f"g_{names[3]}_{n}", (a, d_qkv), 96 * KIB, 90)
        gradient = draft.op(f"d_below{n}", (d_a, below, d_out), hidden, 15)
        for weight, grad in zip(weights, (g0, g1, g2, g3), strict=True):
            draft.update(weight, grad, 96 * KIB)
    return draft


def on_platform(
    draft: _Draft,
    budget_ratio: float,
    *,
    computing: int = 1,
    has_storage: bool = False,
    link: tuple[float, float] = PCIE,
) -> Problem:
    """The problem of `draft` on an accelerator with that budget, slower devices, and a store.

    The ratio is of what keeping everything on the accelerator needs beside the state; the
    others have three times its peak. Slower devices take 2 to 4 times as long.
    """
    names = ["accelerator", "cpu", "little"][:computing]
    devices = [Device(name, "llvm") for name in names]
    pairs = [(a, b) for a in names for b in names if a != b]
    if has_storage:
        devices.append(Device("store", None))
        pairs += [("accelerator", "store"), ("store", "accelerator")]
    slowness = {"accelerator": (1.0, 1.0), "cpu": (2.0, 4.0), "little": (2.5, 4.0)}
    costs = {
        name: {
            device: OpCost(us * draft.random.uniform(*slowness[device]), draft.workspace[name])
            for device in names
        }
        for name, us in draft.compute_us.items()
    }
    problem = Problem(
        OpGraph(tuple(draft.tensors), tuple(draft.ops), ("loss",)),
        Platform(tuple(devices), tuple(Link(a, b, *link) for a, b in pairs)),
        costs,
    )
    everything = run_once(problem, dict.fromkeys(draft.compute_us, "accelerator"))
    if everything is None:
        raise ValueError("the accelerator must be able to run everything")
    peak = simulate(problem, everything).peak_bytes["accelerator"]
    state = problem.home_bytes["accelerator"]
    budgets = {device.name: 3 * peak for device in devices}
    budgets["accelerator"] = int(state + budget_ratio * (peak - state))
    return problem.with_budgets(budgets)
