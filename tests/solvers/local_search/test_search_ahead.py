"""What is brought back ahead of the op that needs it, and what stays when the step ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.oracles.exhaustive import solve_exhaustively
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.local_search.compiled.decode import decode
from tvm_xengine.solvers.local_search.compiled.scratch import scratch_of
from tvm_xengine.solvers.local_search.compiled.view import view_of
from tvm_xengine.solvers.local_search.driver import search
from tvm_xengine.solvers.local_search.encode import decisions_of
from tvm_xengine.solvers.result import Objective


def repeated_before_an_update() -> Problem:
    """A weight is updated between two uses of what is made from it, with no room in between."""
    graph = OpGraph(
        tensors=(
            Tensor("weight", 4, Role.PARAMETER),
            Tensor("weight'", 4),
            Tensor("large", 8),
            *(Tensor(name, 1) for name in ("small", "gradient", "out")),
        ),
        ops=(
            Op("make", "k", ("weight",), ("large",)),
            Op("shrink", "k", ("large",), ("small",)),
            Op("work", "k", ("small",), ("gradient",)),
            Op(
                "update", "k", ("gradient", "weight"), ("weight'",), (("weight'", "weight"),), False
            ),
            Op("use", "k", ("large", "weight'"), ("out",)),
        ),
        outputs=("out",),
    )
    costs = {op.name: {"d0": OpCost(1.0, 6 if op.name == "work" else 0)} for op in graph.ops}
    platform = Platform((Device("d0", "llvm", 14),), alignment_bytes=1)
    return Problem(graph, platform, costs, home={"weight": "d0"})


def two_change_places() -> Problem:
    """What waits on the other device must be back before what waits here goes there."""
    graph = OpGraph(
        tensors=(
            Tensor("state", 2, Role.OPTIMIZER_STATE),
            Tensor("state'", 2),
            Tensor("batch", 2, Role.BATCH),
            Tensor("out", 2),
            Tensor("unread", 4),
        ),
        ops=(
            Op("first", "k", ("batch",), ("out",)),
            Op("update", "k", ("state",), ("state'", "unread"), (("state'", "state"),), False),
        ),
        outputs=("out",),
    )
    costs = {"first": {"d0": OpCost(1.0, 1)}, "update": {"d0": OpCost(1.0)}}
    devices = (Device("d0", "llvm", 6), Device("d1", None, 2))
    links = (Link("d0", "d1", 1.0, 1.0), Link("d1", "d0", 1.0, 1.0))
    platform = Platform(devices, links, home="d0", alignment_bytes=1)
    return Problem(graph, platform, costs, home={"state": "d0", "batch": "d0"})


def leaves_when_there_is_room() -> Problem:
    """State that no op touches must wait elsewhere, where there is room only after the first op."""
    graph = OpGraph(
        tensors=(
            Tensor("weight", 3, Role.PARAMETER),
            Tensor("other", 1, Role.PARAMETER),
            Tensor("weight'", 3),
            Tensor("gradient", 1),
        ),
        ops=(
            Op("first", "k", ("weight",), ("gradient",)),
            Op(
                "update",
                "k",
                ("weight", "gradient"),
                ("weight'",),
                (("weight'", "weight"),),
                False,
            ),
        ),
        outputs=("weight'",),
    )
    costs = {"first": {"d1": OpCost(1.0)}, "update": {"d0": OpCost(1.0)}}
    return Problem(graph, two_devices(4, 4), costs, home={"weight": "d0", "other": "d0"})


def waits_on_the_other_device() -> Problem:
    """What both devices read leaves one of them for a large op and comes back from the other."""
    graph = OpGraph(
        tensors=tuple(Tensor(name, 4 if name == "t" else 1) for name in "tabcd"),
        ops=(
            Op("make", "k", (), ("t",), recomputable=False),
            Op("there", "k", ("t",), ("a",)),
            Op("here", "k", ("t",), ("b",)),
            Op("large", "k", ("a", "b"), ("c",)),
            Op("again", "k", ("t", "c"), ("d",)),
        ),
        outputs=("d",),
    )
    costs = {op.name: {"d0": OpCost(1.0, 4 if op.name == "large" else 0)} for op in graph.ops}
    costs["there"] = {"d1": OpCost(1.0)}
    return Problem(graph, two_devices(8, 8), costs)


def two_devices(here_bytes: int, there_bytes: int) -> Platform:
    devices = (Device("d0", "llvm", here_bytes), Device("d1", "llvm", there_bytes))
    links = (Link("d0", "d1", 1.0, 1.0), Link("d1", "d0", 1.0, 1.0))
    return Platform(devices, links, home="d0", alignment_bytes=1)


@pytest.mark.parametrize(
    "make",
    [
        repeated_before_an_update,
        two_change_places,
        leaves_when_there_is_room,
        waits_on_the_other_device,
    ],
)
def test_the_optimum_is_found(make: Callable[[], Problem]) -> None:
    problem = make()
    exact = solve_exhaustively(problem)
    assert exact.schedule is not None
    found = search(problem, evaluations=4000)
    assert found is not None
    assert simulate(problem, found).cost_us == exact.value


@pytest.mark.parametrize(
    "make", [repeated_before_an_update, two_change_places, waits_on_the_other_device]
)
def test_the_optimum_survives_the_way_through_decisions(make: Callable[[], Problem]) -> None:
    problem = make()
    exact = solve_exhaustively(problem)
    assert exact.schedule is not None
    indexed = index_problem(problem, Objective.COST)
    x = decisions_of(indexed, exact.schedule)
    value, excess = decode(view_of(indexed), x, scratch_of(indexed))
    assert (value, excess) == (exact.value, 0.0)


def test_energy_is_saved_where_only_copies_take_any() -> None:
    """All prices of ops are zero, so they are no measure of what is worth a change."""
    problem = two_change_places()
    links = tuple(replace(link, energy_uj_per_copy=1.0) for link in problem.platform.links)
    problem = replace(problem, platform=replace(problem.platform, links=links))
    exact = solve_exhaustively(problem, objective="energy")
    found = search(problem, objective=Objective.ENERGY, evaluations=4000)
    assert found is not None
    assert simulate(problem, found).energy_uj == exact.value
