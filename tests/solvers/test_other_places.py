"""An op that needs much memory is tried on another device, with all around it decided anew."""

from __future__ import annotations

import pytest

from tests.solvers.samples.networks import pair, single, unet
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.local_search.annealer import Annealer
from tvm_xengine.solvers.local_search.compiled.decisions import (
    Decisions,
    copied,
    keep_all_decisions,
)
from tvm_xengine.solvers.local_search.compiled.decode import decode
from tvm_xengine.solvers.local_search.starts import needed_units, other_places
from tvm_xengine.solvers.result import Objective

PAIR = pair(unet(3), 0.5, slow=4.0, link_gb_s=8.0)


def begun(problem: Problem) -> tuple[Annealer, Decisions]:
    """An annealer, and the decisions it begins from: all is kept on the fastest device."""
    indexed = index_problem(problem, Objective.COST)
    annealer = Annealer(indexed, by_makespan=False, seed=0)
    x = keep_all_decisions(indexed, indexed.compute_value.argmin(axis=1))
    annealer.start_from(x)
    assert annealer.status["least_excess"][0] > 0.0
    return annealer, x


def test_the_neediest_ops_are_tried_where_they_do_not_run() -> None:
    annealer, x = begun(PAIR)
    p = annealer.indexed
    places = other_places(p, x)
    found = {next(places) for _ in range(20)}
    need = sorted((needed_units(p, i) for i in x.order.tolist()), reverse=True)
    assert all(x.device[i] != d for i, d in found)
    assert min(needed_units(p, i) for i, _ in found) >= need[3]
    assert needed_units(p, next(other_places(p, x))[0]) == need[0]


def test_with_one_device_there_is_no_other_place() -> None:
    annealer, x = begun(single(unet(3), 0.6))
    assert next(other_places(annealer.indexed, x), None) is None


@pytest.mark.parametrize("nth", range(4))
def test_what_is_better_is_taken_over_and_the_op_stays_there(nth: int) -> None:
    annealer, x = begun(PAIR)
    places = other_places(annealer.indexed, x)
    op, device = [next(places) for _ in range(4)][nth]
    chain = copied(x)
    annealer.place(op, device, chain, 20_000)
    value, excess = decode(annealer.view, chain, annealer.scratch)
    assert (excess, value) == (0.0, annealer.status["best"][0])
    assert chain.device[op] == device


def test_what_is_no_better_leaves_no_trace() -> None:
    annealer, x = begun(PAIR)
    annealer.status[["best", "least_excess"]] = 0.0, 0.0  # nothing can be better than that
    op, device = next(other_places(annealer.indexed, x))
    chain = copied(x)
    annealer.place(op, device, chain, 2_000)
    assert annealer.status["best"][0] == 0.0
    assert all((a == b).all() for a, b in zip(chain, x, strict=True))
