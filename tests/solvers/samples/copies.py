"""What the stage model `tight` cannot express."""

from __future__ import annotations

from itertools import pairwise

from tvm_xengine.scheduling.schedule import Free, Schedule, Transfer


def copies_in_turn(schedule: Schedule | None) -> bool:
    """Whether copies follow each other without a run between them: the model makes them at once."""
    steps = () if schedule is None else schedule.steps
    kinds = [type(step) for step in steps if not isinstance(step, Free)]
    return any(a is b is Transfer for a, b in pairwise(kinds))
