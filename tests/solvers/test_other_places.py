"""An op that needs much memory is tried on another device, with all around it decided anew."""

from __future__ import annotations

import time

import pytest

from tests.solvers.networks import pair, single, unet
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.local_search.anneal import BEST, LEAST_EXCESS
from tvm_xengine.solvers.local_search.decisions import copied, keep_everything
from tvm_xengine.solvers.local_search.decoder import decode
from tvm_xengine.solvers.local_search.driver import _Search
from tvm_xengine.solvers.result import Objective

PAIR = pair(unet(3), 0.5, slow=4.0, link_gb_s=8.0)


def begun(problem: Problem):
    """A search, and the decisions it begins from: all is kept on the fastest device."""
    search = _Search(problem, Objective.COST, seed=0)
    price = search.arrays.op_price(Objective.COST)
    x = keep_everything(search.arrays, price.argmin(axis=1))
    search._note_start(search.status, x)
    assert search.status[LEAST_EXCESS] > 0.0
    return search, x


def test_the_neediest_ops_are_tried_where_they_do_not_run() -> None:
    search, x = begun(PAIR)
    places = search._other_places(x)
    found = {next(places) for _ in range(20)}
    need = sorted((search._needed_bytes(i) for i in x.order.tolist()), reverse=True)
    assert all(x.device[i] != d for i, d in found)
    assert min(search._needed_bytes(i) for i, _ in found) >= need[3]
    assert search._needed_bytes(next(search._other_places(x))[0]) == need[0]


def test_with_one_device_there_is_no_other_place() -> None:
    search, x = begun(single(unet(3), 0.6))
    assert next(search._other_places(x), None) is None


@pytest.mark.parametrize("nth", range(4))
def test_what_is_better_is_taken_over_and_the_op_stays_there(nth: int) -> None:
    search, x = begun(PAIR)
    places = search._other_places(x)
    op, device = [next(places) for _ in range(4)][nth]
    chain = copied(x)
    search._place(op, device, chain, 20_000, time.perf_counter() + 60.0)
    value, excess = decode(search.static, chain, search.work)
    assert (excess, value) == (0.0, search.status[BEST])
    assert chain.device[op] == device


def test_what_is_no_better_leaves_no_trace() -> None:
    search, x = begun(PAIR)
    search.status[[BEST, LEAST_EXCESS]] = 0.0, 0.0  # nothing can be better than that
    op, device = next(search._other_places(x))
    chain = copied(x)
    search._place(op, device, chain, 2_000, time.perf_counter() + 60.0)
    assert search.status[BEST] == 0.0
    assert all((a == b).all() for a, b in zip(chain, x, strict=True))
