"""Choosing a subset: against exhaustive search over every subset."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import cases
from tvm_xengine.planning.subsets.choose import Refusal, choose_subset
from tvm_xengine.planning.subsets.conflict import smallest_conflict
from tvm_xengine.planning.subsets.relaxation import Row, best_relaxed

Subset = frozenset[int]
MANY = 10_000


def subsets(count: int) -> list[Subset]:
    return [frozenset(c) for k in range(1, count + 1) for c in combinations(range(count), k)]


@st.composite
def memories(draw: st.DrawFn) -> tuple[list[int], Callable[[Subset], bool], list[int], int]:
    """Scores, which subsets fit, state bytes, and the budget: state is kept, each layer has a peak, and the
    gradient is carried down to the deepest layer."""
    count = draw(st.integers(1, 6))
    numbers = st.lists(st.integers(0, 20), min_size=count, max_size=count)
    scores, state, peak, chain = (draw(numbers) for _ in range(4))
    budget, time = draw(st.integers(0, 80)), draw(st.integers(0, 80))

    def fits(subset: Subset) -> bool:
        needed = sum(state[i] for i in subset) + max(peak[i] for i in subset)
        return needed <= budget and sum(chain[min(subset) :]) <= time

    return scores, fits, state, budget


def planned(
    fits: Callable[[Subset], bool], *, is_proven: bool = True
) -> Callable[[Subset], Subset | Refusal]:
    return lambda subset: subset if fits(subset) else Refusal("too much", is_proven)


@settings(max_examples=30)
@given(memories())
def test_no_subset_that_fits_has_a_greater_score(drawn) -> None:
    scores, fits, state, budget = drawn
    found = choose_subset(scores, [Row.of_each(state, budget)], planned(fits), MANY)
    best = max((sum(scores[i] for i in s) for s in subsets(len(scores)) if fits(s)), default=0)
    assert found.score == pytest.approx(best)
    assert found.bound == pytest.approx(best)
    assert found.chosen is None or (fits(found.chosen) and found.plan == found.chosen)


@settings(max_examples=30)
@given(memories(), st.integers(1, 6))
def test_a_search_that_is_cut_short_still_bounds_every_subset(drawn, most_plans: int) -> None:
    scores, fits, state, budget = drawn
    found = choose_subset(scores, [Row.of_each(state, budget)], planned(fits), most_plans)
    best = max((sum(scores[i] for i in s) for s in subsets(len(scores)) if fits(s)), default=0)
    assert found.score <= best + 1e-6
    assert found.bound >= best - 1e-6
    assert found.plans <= most_plans
    assert 0 <= found.gap <= 1


@settings(max_examples=30)
@given(memories(), st.integers(0, 3), st.integers(0, 3))
def test_what_was_only_not_found_does_not_lower_the_bound(
    drawn, missed: int, unproven: int
) -> None:
    """A planner that misses some plans, and proves some refusals: the bound holds whatever it misses."""
    scores, fits, state, budget = drawn

    def plan_of(subset: Subset) -> Subset | Refusal:
        if not fits(subset):
            return Refusal("too much", is_proven=hash(subset) % 4 != unproven)
        return Refusal("not found") if hash(subset) % 4 == missed else subset

    found = choose_subset(scores, [Row.of_each(state, budget)], plan_of, MANY)
    best = max((sum(scores[i] for i in s) for s in subsets(len(scores)) if fits(s)), default=0)
    assert found.score <= best + 1e-6
    assert found.bound >= best - 1e-6


@settings(max_examples=cases(50))
@given(st.data())
def test_a_group_counts_once_where_one_or_more_of_it_are_chosen(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    scores = data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    groups = st.frozensets(st.integers(0, count - 1), min_size=1)
    rows = [
        Row(data.draw(st.dictionaries(groups, st.integers(0, 9), max_size=6)), limit, base)
        for limit, base in data.draw(
            st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=2)
        )
    ]
    obeying = [s for s in subsets(count) if all(row.amount_of(s) <= row.limit for row in rows)]
    best = max((sum(scores[i] for i in s) for s in obeying), default=0)
    found = best_relaxed(scores, rows, ())
    assert sum(scores[i] for i in found or ()) == best
    assert found is None or found in obeying


@settings(max_examples=30)
@given(memories(), st.integers(0, 3), st.booleans())
def test_more_effort_finds_what_was_missed(drawn, missed: int, proves: bool) -> None:
    scores, fits, state, budget = drawn

    def plan_of(subset: Subset) -> Subset | Refusal:
        return subset if fits(subset) and hash(subset) % 4 != missed else Refusal("not found")

    rows, insist = [Row.of_each(state, budget)], planned(fits, is_proven=proves)
    plain = choose_subset(scores, rows, plan_of, MANY)
    found = choose_subset(scores, rows, plan_of, MANY, insist)
    best = max((sum(scores[i] for i in s) for s in subsets(len(scores)) if fits(s)), default=0)
    assert plain.score - 1e-6 <= found.score <= best + 1e-6 <= found.bound + 2e-6
    assert found.bound <= plain.bound + 1e-6
    if plain.bound == best:
        assert found.gap == pytest.approx(0)


@settings(max_examples=10)
@given(memories())
def test_without_proofs_the_bound_is_that_of_the_rows(drawn) -> None:
    scores, fits, state, budget = drawn
    rows = [Row.of_each(state, budget)]
    found = choose_subset(scores, rows, planned(fits, is_proven=False), MANY)
    obeying = (s for s in subsets(len(scores)) if sum(state[i] for i in s) <= budget)
    assert found.bound == pytest.approx(
        max((sum(scores[i] for i in s) for s in obeying), default=0)
    )


@settings(max_examples=30)
@given(memories())
def test_every_smaller_part_of_a_conflict_has_a_plan(drawn) -> None:
    scores, fits, _, _ = drawn
    every = frozenset(range(len(scores)))
    if fits(every):
        return
    found = smallest_conflict(sorted(every), lambda s: not s or fits(s))
    assert found and not fits(found)
    assert all(fits(found - {one}) for one in found if len(found) > 1)


def test_everything_that_fits_takes_one_plan() -> None:
    found = choose_subset([1.0] * 40, [], lambda s: s, MANY)
    assert (found.plans, found.score, found.gap) == (1, 40.0, 0.0)


def test_what_scores_nothing_is_left_out() -> None:
    assert choose_subset([0.0, 2.0, 0.0], [], lambda s: s, MANY).chosen == {1}
