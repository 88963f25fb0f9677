"""Where relaxations look at memory."""

from __future__ import annotations

from tests.solvers.samples.chains import training_chain
from tests.solvers.samples.networks import chain, single
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.relaxation.choose import neediest, with_suggested
from tvm_xengine.solvers.relaxation.periods import ancestor_bits
from tvm_xengine.solvers.result import Objective


def test_the_neediest_op_touches_most_bytes() -> None:
    indexed = index_problem(training_chain(5, 200), Objective.COST)
    need = [
        sum(indexed.size[j] for j in {*reads, *makes})
        for reads, makes in zip(indexed.reads, indexed.makes, strict=True)
    ]
    (chosen,) = neediest(indexed, range(indexed.op_count))
    assert need[chosen] == max(need)
    assert neediest(indexed, []) == set()


def test_suggestions_keep_a_chain_of_dependences() -> None:
    indexed = index_problem(single(chain(5)), Objective.COST)
    ancestors = ancestor_bits(indexed)
    trunk = [0]
    for i in range(1, indexed.op_count):
        if ancestors[i] >> trunk[-1] & 1:
            trunk.append(i)
    apart = next(i for i in range(indexed.op_count) if i not in trunk)
    for time_points in ({trunk[1]}, {apart}):
        chosen = with_suggested(time_points, set(range(indexed.op_count)), trunk, ancestors)
        assert time_points <= chosen <= time_points | set(trunk)
        assert all(ancestors[b] >> a & 1 for a in chosen for b in chosen if a < b and a in trunk)
    assert len(with_suggested({trunk[1]}, set(trunk), trunk, ancestors)) == len(trunk)
