"""Ops that compute what another op of the graph computes."""

from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor


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
    assert OpGraph(tensors, ops, ("b2", "c", "d", "z", "y")).repetitions == {"a2", "b2"}
