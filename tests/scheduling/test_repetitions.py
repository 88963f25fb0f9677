"""Ops that compute what another op of the graph computes."""

from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.schedule import Compute, Schedule


def test_an_op_repeats_another_of_the_same_kernel_and_inputs() -> None:
    tensors = (
        Tensor("x", 8, Role.BATCH, shape=(2,)),
        *(Tensor(name, 8, shape=(2,)) for name in ("a", "b", "a2", "b2", "c", "d", "z", "y")),
        Tensor("flat", 8, alias_of="a", shape=(1, 2)),
    )
    ops = (
        Op("a", "k", ("x",), ("a",)),
        Op("b", "m", ("a",), ("b",)),
        Op("a2", "k", ("x",), ("a2",)),
        Op("b2", "m", ("a2",), ("b2",)),  # of a repetition's result
        Op("c", "other", ("a",), ("c",)),  # another kernel
        Op("d", "m", ("flat",), ("d",)),  # the same bytes in another shape
        Op("z", "zeros", (), ("z",)),
        Op("y", "zeros", (), ("y",)),  # without inputs nothing is computed again
    )
    graph = OpGraph(tensors, ops, ("b2", "c", "d", "z", "y"))
    assert graph.repetitions == {"a2", "b2"}
    schedule = Schedule(tuple(Compute(op, "cpu") for op in ("a", "b", "a2", "a", "a2")))
    assert schedule.repeats(graph) == ("a2", "a", "a2")
