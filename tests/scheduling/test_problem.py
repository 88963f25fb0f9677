import dataclasses
import json
import math

import pytest
from hypothesis import given

from tests.strategies import problems
from tvm_xengine.errors import InvalidProblemError
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem, problem_from_json, problem_to_json

X = Tensor("x", 64, Role.BATCH)
W = Tensor("w", 64, Role.PARAMETER)
CPU = Platform((Device("cpu", "llvm", 1000),))


def graph(
    *ops: Op, tensors: tuple[Tensor, ...] = (X, W, Tensor("a", 64), Tensor("b", 64))
) -> OpGraph:
    made = {name for op in ops for name in op.outputs}
    used = tuple(t for t in tensors if t.role.is_resident or t.alias_of or t.name in made)
    return OpGraph(used, ops)


A = Op("a", "k", ("x",), ("a",))
B = Op("b", "k", ("a",), ("b",))


@given(problems(max_devices=3))
def test_a_problem_survives_json(problem: Problem) -> None:
    assert problem_from_json(problem_to_json(problem)) == problem


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": 99}', '{"schema": 1}'])
def test_json_that_is_no_problem_is_refused(text: str) -> None:
    with pytest.raises(InvalidProblemError):
        problem_from_json(text)


def test_json_with_a_wrong_field_is_refused() -> None:
    problem = Problem(graph(A), CPU, {"a": {"cpu": OpCost(1.0)}})
    document = json.loads(problem_to_json(problem))
    document["costs"]["a"]["cpu"]["compute_us"] = "fast"
    with pytest.raises(InvalidProblemError):
        problem_from_json(json.dumps(document))


@pytest.mark.parametrize("compute_us", [0.0, -1.0, float("nan"), float("inf")])
def test_a_cost_that_is_no_positive_time_is_refused(compute_us: float) -> None:
    with pytest.raises(InvalidProblemError, match="compute_us"):
        OpCost(compute_us)


def test_bytes_beyond_what_a_double_counts_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match=r"2\^53"):
        Tensor("x", 2**53)


def test_an_empty_graph_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="empty"):
        OpGraph((), ())


def test_a_cyclic_graph_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="topological order"):
        graph(Op("a", "k", ("b",), ("a",)), B)


def test_ops_out_of_order_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match="before any op makes it"):
        graph(B, A)


def test_two_ops_may_not_make_one_tensor() -> None:
    with pytest.raises(InvalidProblemError, match="both a and c make a"):
        graph(A, Op("c", "k", ("x",), ("a",)))


def test_a_tensor_that_nothing_makes_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="no op makes tensor lost"):
        OpGraph((X, Tensor("a", 64), Tensor("lost", 64)), (A,))


def test_views_that_alias_each_other_are_refused() -> None:
    loop = (X, Tensor("a", 64), Tensor("p", 64, alias_of="q"), Tensor("q", 64, alias_of="p"))
    with pytest.raises(InvalidProblemError, match="cycle"):
        OpGraph(loop, (A,))


def test_reading_state_after_its_update_is_refused() -> None:
    update = Op("b", "k", ("w", "a"), ("b",), (("b", "w"),), recomputable=False)
    late = Op("c", "k", ("w",), ("c",))
    tensors = (X, W, Tensor("a", 64), Tensor("b", 64), Tensor("c", 64))
    with pytest.raises(InvalidProblemError, match="c reads w after b has overwritten it"):
        OpGraph(tensors, (A, update, late))


def test_an_update_must_fit_the_state_it_overwrites() -> None:
    update = Op("b", "k", ("w", "a"), ("b",), (("b", "w"),), recomputable=False)
    with pytest.raises(InvalidProblemError, match="sizes must agree"):
        OpGraph((X, W, Tensor("a", 64), Tensor("b", 128)), (A, update))


def test_an_op_that_updates_state_must_not_be_recomputable() -> None:
    with pytest.raises(InvalidProblemError, match="recomputable=False"):
        Op("b", "k", ("w",), ("b",), (("b", "w"),))


def test_an_op_that_no_device_can_run_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="no device can run it"):
        Problem(graph(A, B), CPU, {"a": {"cpu": OpCost(1.0)}})


def test_a_storage_device_cannot_run_ops() -> None:
    platform = Platform((Device("cpu", "llvm"), Device("sd", None)))
    with pytest.raises(InvalidProblemError, match="only stores"):
        Problem(graph(A), platform, {"a": {"sd": OpCost(1.0)}})


def test_an_unmeasured_link_is_refused() -> None:
    platform = Platform((Device("cpu", "llvm"), Device("sd", None)), (Link("cpu", "sd"),))
    with pytest.raises(InvalidProblemError, match="measure it"):
        Problem(graph(A), platform, {"a": {"cpu": OpCost(1.0)}})


def test_state_lives_on_the_platforms_home_unless_told_otherwise() -> None:
    platform = Platform((Device("cpu", "llvm"), Device("sd", None)))
    problem = Problem(graph(A), platform, {"a": {"cpu": OpCost(1.0)}}, home={"w": "sd"})
    assert problem.home == {"x": "cpu", "w": "sd"}
    assert problem.home_bytes == {"cpu": 64, "sd": 64}


def test_a_cost_without_an_interval_has_its_own_time_at_both_ends() -> None:
    cost = dataclasses.replace(OpCost(2.0), compute_us=5.0)
    assert (cost.interval_us, cost.lo_us, cost.hi_us) == (None, 5.0, 5.0)


@pytest.mark.parametrize("interval_us", [(3.0, 4.0), (0.5, 1.0), (-1.0, 3.0), (1.0, math.inf)])
def test_an_interval_holds_the_time(interval_us: tuple[float, float]) -> None:
    with pytest.raises(InvalidProblemError, match="lo_us <= compute_us <= hi_us"):
        OpCost(2.0, interval_us=interval_us)


def test_intervals_survive_the_file() -> None:
    costs = {"a": {"cpu": OpCost(2.0, interval_us=(1.0, 3.0))}}
    problem = Problem(graph(A), CPU, costs)
    assert problem_from_json(problem_to_json(problem)) == problem


def test_half_an_interval_is_refused() -> None:
    document = json.loads(problem_to_json(Problem(graph(A), CPU, {"a": {"cpu": OpCost(2.0)}})))
    document["costs"]["a"]["cpu"]["lo_us"] = 1.0
    with pytest.raises(InvalidProblemError, match="both lo_us and hi_us"):
        problem_from_json(json.dumps(document))


def test_nouns_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        X.size_bytes = 3  # type: ignore[misc]
