"""The same plans in all processes of a run: the first one plans, the others take what it has planned."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tvm_xengine.session.stages.lowered import Lowered
from tvm_xengine.session.stages.plan import StepPlan


def plan_of_ranks(lowered: Lowered, make: Callable[[], StepPlan]) -> StepPlan:
    """Collective: the plan that `make` returns in the first process, as of `plans_of_ranks`."""
    (plan,) = plans_of_ranks(lowered, lambda: [make()])
    assert plan is not None
    return plan


def plans_of_ranks(
    lowered: Lowered, make: Callable[[], Sequence[StepPlan | None]]
) -> Sequence[StepPlan | None]:
    """Collective: what `make` returns in the first process; where there is one only, simply that.

    The others read each plan as a plan file, which checks that it is of the same step: model, batch,
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
                texts = [_text(plan, file) for plan in planned]
            ranks.share_text(json.dumps(texts))
            return planned
        texts = json.loads(ranks.share_text(""))
        with ranks.failing_together():
            return [_plan(text, file, lowered) for text in texts]


def _text(plan: StepPlan | None, file: Path) -> str | None:
    if plan is None:
        return None
    plan.save(file)
    return file.read_text()


def _plan(text: str | None, file: Path, lowered: Lowered) -> StepPlan | None:
    if text is None:
        return None
    file.write_text(text)
    return StepPlan.load(file, lowered)
