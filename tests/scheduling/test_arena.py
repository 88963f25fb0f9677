from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.layouts import check_layout
from tests.scheduling.test_simulate import chain, on
from tests.strategies import Scheduled, cases, scheduled
from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.arena import packing
from tvm_xengine.scheduling.arena.apart import check_apart, state_bytes, transient_bytes
from tvm_xengine.scheduling.arena.packing import Items, pack
from tvm_xengine.scheduling.arena.plan import plan_arenas
from tvm_xengine.scheduling.compiled import as_written
from tvm_xengine.scheduling.schedule import with_frees
from tvm_xengine.scheduling.simulate import simulate


def test_the_arena_of_a_chain_is_its_peak() -> None:
    problem = chain()
    schedule = with_frees(problem, on("d0", "a", "b", "a", "c", "up"))
    arenas = plan_arenas(problem, schedule)
    # The peak of live bytes is 407; offsets are multiples of 4, so is the workspace's size.
    assert arenas.arena_bytes == {"d0": 408}


def test_state_lies_at_the_bottom_and_keeps_its_address() -> None:
    problem = chain()
    arenas = plan_arenas(problem, with_frees(problem, on("d0", "a", "b", "c", "up")))
    state = [i for i in arenas.residency.instances if i.is_home_state]
    assert [arenas.offset_bytes[i.id] for i in state] == [0]


@settings(max_examples=cases(100))
@given(scheduled(), st.booleans(), st.booleans())
def test_nothing_that_lives_together_shares_a_byte(
    given_steps: Scheduled, reserve_home: bool, state_apart: bool
) -> None:
    problem, steps = given_steps
    schedule = with_frees(problem, steps)
    peak = simulate(problem, schedule, enforce_budgets=False).peak_bytes
    problem = replace(problem, state_apart=state_apart)
    arenas = plan_arenas(problem, schedule, reserve_home=reserve_home)
    check_layout(problem, schedule, arenas)
    for device in problem.platform.index:
        assert arenas.arena_bytes[device] >= peak[device]


@settings(max_examples=cases(50))
@given(scheduled())
def test_reserved_state_lies_below_everything_that_goes(given_steps: Scheduled) -> None:
    problem, steps = given_steps
    schedule = with_frees(problem, steps)
    arenas = plan_arenas(problem, schedule, reserve_home=True)
    whole = (0, len(schedule.steps))
    for device in problem.platform.index:
        mine = [i for i in arenas.residency.instances if i.device == device]
        tops = [arenas.offset_bytes[i.id] + i.size_bytes for i in mine if i.is_home_state]
        others = [i for i in mine if not i.is_home_state and (max(i.start, 0), i.end) != whole]
        assert all(arenas.offset_bytes[i.id] >= max(tops, default=0) for i in others)


@settings(max_examples=cases(100))
@given(scheduled())
def test_state_that_lies_apart_has_nothing_across_its_line(given_steps: Scheduled) -> None:
    problem, steps = given_steps
    schedule = with_frees(problem, steps)
    apart = plan_arenas(replace(problem, state_apart=True), schedule)
    check_apart(problem, schedule, apart)
    reserved = plan_arenas(problem, schedule, reserve_home=True)
    state, transient = state_bytes(problem), transient_bytes(problem, apart)
    for device in problem.platform.index:
        assert state[device] + transient[device] == apart.arena_bytes[device]
        assert transient[device] >= 0
        homes = [i for i in apart.residency.instances if i.is_home_state and i.device == device]
        assert sum({i.tensor: i.size_bytes for i in homes}.values()) == state[device]
        # Bytes of state that is away are of use, or do no harm.
        assert apart.arena_bytes[device] <= reserved.arena_bytes[device] + sum(
            i.size_bytes for i in homes
        )


def test_a_layout_with_something_across_the_line_is_refused() -> None:
    problem = chain()
    schedule = with_frees(problem, on("d0", "a", "b", "c", "up"))
    apart = plan_arenas(replace(problem, state_apart=True), schedule)
    check_apart(problem, schedule, apart)
    moved = replace(apart, offset_bytes=tuple(offset + 4 for offset in apart.offset_bytes))
    with pytest.raises(InvalidScheduleError, match="does not lie apart"):
        check_apart(problem, schedule, moved)


interval = st.tuples(st.integers(0, 9), st.integers(0, 4)).map(lambda row: (row[0], sum(row)))
rows = st.tuples(
    st.integers(0, 4).map(lambda n: 16 * n), st.lists(interval, min_size=1, max_size=3)
)


@settings(max_examples=cases(100))
@given(st.lists(rows, min_size=1, max_size=12), st.integers(0, 9))
def test_few_items_lie_as_compiled_code_would_lay_them(
    given_rows: list[tuple[int, list[tuple[int, int]]]], seed: int
) -> None:
    items = Items.of(given_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "FEW_ITEMS", 0)
        by_compiled_code = pack(items, evaluations=50, seed=seed)
    assert pack(items, evaluations=50, seed=seed).tolist() == by_compiled_code.tolist()


def test_few_items_need_no_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which takes longer to read than a small network to plan."""
    for name in ("live_together", "_first_fit"):
        plain = SimpleNamespace(py_func=as_written(getattr(packing, name)))
        monkeypatch.setattr(packing, name, plain)  # which nobody can call
    items = Items.of([(64, [(0, 1)]), (32, [(1, 2)]), (64, [(2, 3)])])
    assert pack(items, evaluations=50).tolist() == [0, 64, 0]
