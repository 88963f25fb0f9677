"""Plans to explain: of random small problems, and of chains under a budget."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from tests.solvers.samples.networks import chain, single
from tests.strategies import problems
from tvm_xengine.errors import InvalidProblemError, NoScheduleError
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.solvers.result import Limits, Objective


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans of the greedy solver, under any objective."""
    problem = draw(problems())
    objective = draw(st.sampled_from(Objective))
    try:
        return plan_schedule(problem, PlanOptions("greedy", objective, Limits(5.0)))
    except (NoScheduleError, InvalidProblemError):
        assume(False)
        raise


def chain_plan(ops: int = 8, ratio: float = 0.5) -> Plan:
    """A plan of a chain that has to recompute."""
    return plan_schedule(single(chain(ops), ratio), PlanOptions("greedy", limits=Limits(5.0)))
