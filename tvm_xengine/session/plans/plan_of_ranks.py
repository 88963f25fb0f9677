"""One plan for all processes of a run: the first one plans, the others take its plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tvm_xengine.session.stages.lowered import Lowered
from tvm_xengine.session.stages.plan import StepPlan


def plan_of_ranks(lowered: Lowered, make: Callable[[], StepPlan]) -> StepPlan:
    """Collective: what `make` returns in the first process; where there is one only, simply that.

    The others read it as a plan file, which checks that it is of the same step: model, batch,
    optimizer, kernels and platform have the same hash.

    Raises
    ------
    RankLostError
        In the other processes, if the first one ends without a plan.
    XEngineError
        In all processes, if planning fails in the first one.
    InvalidScheduleError
        If a process has lowered another step.
    """
    ranks = lowered.step.ranks
    if ranks is None:
        return make()
    with TemporaryDirectory() as folder:
        file = Path(folder) / "plan.json"
        if ranks.leads:
            with ranks.failing_together():
                planned = make()
                planned.save(file)
            ranks.share_text(file.read_text())
            return planned
        file.write_text(ranks.share_text(""))
        with ranks.failing_together():
            return StepPlan.load(file, lowered)
