"""Small problems whose optima are known by hand."""

from __future__ import annotations

from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem

START_READ_AGAIN = OpGraph(
    tensors=(Tensor("a", 4), Tensor("b", 8), Tensor("c", 4), Tensor("d", 4)),
    ops=(
        Op("a", "k", (), ("a",)),
        Op("b", "k", ("a",), ("b",)),
        Op("c", "k", ("b",), ("c",)),
        Op("d", "k", ("c", "a"), ("d",)),
    ),
    outputs=("d",),
)
"""A chain a, b, c, d whose last op reads the result of the first again."""


def repeated_start(budget_bytes: int) -> Problem:
    """A chain a, b, c, d whose last op reads the result of the first again; costs 1, 2, 2, 1.

    The tensor of b has 8 bytes, the others 4: below 12 bytes nothing fits, below 16 op a must
    be repeated (cost 7), from 16 on nothing is (cost 6).
    """
    cost = {"a": 1.0, "b": 2.0, "c": 2.0, "d": 1.0}
    return on_one_device(START_READ_AGAIN, cost, budget_bytes)


def on_one_device(graph: OpGraph, compute_us: dict[str, float], budget_bytes: int) -> Problem:
    """`graph` on a single device."""
    platform = Platform((Device("cpu", "llvm", budget_bytes),), alignment_bytes=1)
    return Problem(graph, platform, {op: {"cpu": OpCost(us)} for op, us in compute_us.items()})


def training_chain(
    length: int, budget_bytes: int, *, parameter_bytes: int = 0, activation_bytes: int = 8
) -> Problem:
    """A chain of layers, its backward pass, and updates in place when there are parameters."""
    tensors: list[Tensor] = [Tensor("x", activation_bytes, Role.BATCH)]
    ops: list[Op] = []
    cost: dict[str, float] = {}

    def add(name: str, inputs: tuple[str, ...], size: int, us: float) -> None:
        tensors.append(Tensor(name, size))
        ops.append(Op(name, name, inputs, (name,)))
        cost[name] = us

    for i in range(length):
        weight = (f"w{i}",) if parameter_bytes else ()
        tensors.extend(Tensor(name, parameter_bytes, Role.PARAMETER) for name in weight)
        add(f"f{i}", ((f"f{i - 1}" if i else "x"), *weight), activation_bytes, 1.0 + i % 3)
    add("loss", (f"f{length - 1}",), 1, 1.0)
    for i in reversed(range(length)):
        above = f"b{i + 1}" if i + 1 < length else "loss"
        below = f"f{i - 1}" if i else "x"
        weight = (f"w{i}",) if parameter_bytes else ()
        add(f"b{i}", (above, below, *weight), activation_bytes, 2.0 + i % 3)
        if parameter_bytes:
            add(f"g{i}", (above, below), parameter_bytes, 1.0)
            tensors.append(Tensor(f"u{i}", parameter_bytes))
            inputs = (f"w{i}", f"g{i}")
            ops.append(Op(f"u{i}", "u", inputs, (f"u{i}",), ((f"u{i}", f"w{i}"),), False))
            cost[f"u{i}"] = 1.0
    outputs = ("loss",) if parameter_bytes else ("loss", "b0")
    return on_one_device(OpGraph(tuple(tensors), tuple(ops), outputs), cost, budget_bytes)
