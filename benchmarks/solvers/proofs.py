"""``python -m benchmarks.solvers.proofs [GROUP...]``: how much the portfolio proves, and in what time.

Groups are the names of `GROUPS`; all of them by default.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.record import record
from benchmarks.solvers.training_graphs import problem_of
from tests.solvers.samples.networks import single
from tvm_xengine.scheduling.graph import Op, OpGraph, Tensor
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.result import Limits, Objective
from tvm_xengine.solvers.solve import solve

LIMIT_S = 30.0
_ALIGNMENT_BYTES = 64

Case = tuple[str, str, float, Problem, Objective]
"""Name, devices, budget ratio, problem and objective."""


def layered(nodes: int, seed: int = 0) -> OpGraph:
    """A random layered graph: nodes read some of the layer before, half of them an earlier one, too.

    Layers have as many nodes as there are layers. What no node reads is a result.
    """
    rng = random.Random(seed)
    widest = round(nodes**0.5)
    layers: list[list[int]] = []
    reads: list[tuple[int, ...]] = []
    while len(reads) < nodes:
        width = min(widest, nodes - len(reads))
        last = layers[-1] if layers else []
        before = [node for layer in layers[-6:-1] for node in layer]
        made: list[set[int]] = [{rng.choice(last)} if last else set() for _ in range(width)]
        for read in made:
            read |= {
                rng.choice(any_of) for any_of in (last, before) if any_of and rng.random() < 0.5
            }
        for node in last:
            if not any(node in read for read in made):
                rng.choice(made).add(node)
        layers.append(list(range(len(reads), len(reads) + width)))
        reads += [tuple(sorted(read)) for read in made]
    tensors = tuple(Tensor(f"t{k}", _ALIGNMENT_BYTES * rng.randint(16, 256)) for k in range(nodes))
    ops = tuple(
        Op(f"o{k}", f"o{k}", tuple(f"t{j}" for j in read), (f"t{k}",))
        for k, read in enumerate(reads)
    )
    unread = set(range(nodes)) - {j for read in reads for j in read}
    return OpGraph(tensors, ops, tuple(f"t{k}" for k in sorted(unread)))


def _cost() -> Iterator[Case]:
    for name in ("vgg19", "mobilenet_v2", "resnet18", "unet", "resnet50", "gpt2_small"):
        for platform in ("one", "pcie"):
            yield name, platform, 0.3, problem_of(name, platform, 0.3), Objective.COST


def _stores() -> Iterator[Case]:
    for name in ("unet", "resnet18", "vgg19"):
        yield name, "storage", 0.3, problem_of(name, "storage", 0.3), Objective.COST


def _layered() -> Iterator[Case]:
    for nodes in (500, 1000):
        yield f"layered {nodes}", "one", 0.8, single(layered(nodes), 0.8), Objective.COST


def _makespan() -> Iterator[Case]:
    for name in ("lenet", "vgg19", "resnet18", "unet"):
        for platform, ratio in (("pcie", 0.5), ("shared", 0.5), ("storage", 0.5)):
            yield name, platform, ratio, problem_of(name, platform, ratio), Objective.MAKESPAN


GROUPS = {"cost": _cost, "stores": _stores, "layered": _layered, "makespan": _makespan}


def main(names: Sequence[str]) -> None:
    """Record a row for each case."""
    for group in names or tuple(GROUPS):
        for case in GROUPS[group]():
            record("proofs", _row(case))


def _row(case: Case) -> Mapping[str, str | int | float | None]:
    name, platform, ratio, problem, objective = case
    found = solve(problem, "auto", objective=objective, limits=Limits(LIMIT_S))
    cheapest = index_problem(problem, Objective.COST).cheapest
    return {
        "graph": name,
        "ops": len(problem.graph.ops),
        "devices": platform,
        "ratio": ratio,
        "objective": objective.value,
        "status": found.status.value,
        "value": None if found.value is None else round(found.value / cheapest, 4),
        "bound": round(found.bound / cheapest, 4),
        "gap": None if found.gap is None else f"{100 * found.gap:.2f} %",
        "seconds": round(found.solve_s, 1),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
