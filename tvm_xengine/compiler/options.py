"""Options of planning a step: costs, budgets, solver and stores. Loads no TVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.planning.keep_all import budgets_for_ratio
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.problem import Problem


class CostChoice(Enum):
    """Where the costs of kernels come from.

    ``active`` starts from predictions and measures what the plan relies on; ``predicted`` and
    ``roofline`` run nothing.
    """

    ACTIVE = "active"
    MEASURED = "measured"
    PREDICTED = "predicted"
    ROOFLINE = "roofline"


@dataclass(frozen=True)
class Budgets:
    """Memory that the arenas of devices may take.

    Attributes
    ----------
    ratio
        Of every computing device, as in `budgets_for_ratio`; None keeps the platform's budgets.
    device_bytes
        Bytes of single devices; they take precedence over `ratio`.
    """

    ratio: float | None = None
    device_bytes: Mapping[str, int] = field(default_factory=dict)

    def check(self, platform: Platform) -> None:
        """Check that `platform` has every device that is named.

        Raises
        ------
        InvalidPlatformError
            If it lacks one.
        """
        if unknown := [name for name in self.device_bytes if name not in platform.index]:
            raise InvalidPlatformError(
                f"budgets are given for {', '.join(unknown)}, but the platform has"
                f" {', '.join(platform.index)}"
            )

    def of(self, problem: Problem) -> Mapping[str, int]:
        """Budgets of the devices of `problem`, in bytes."""
        self.check(problem.platform)
        by_ratio = {} if self.ratio is None else budgets_for_ratio(problem, self.ratio)
        return {**by_ratio, **self.device_bytes}


@dataclass(frozen=True)
class CompileOptions:
    """How a lowered step is costed and planned.

    Attributes
    ----------
    measurements
        File of measurements; None is the one in the user's cache folder. Compiled kernels are kept
        in the folder ``kernels`` next to it.
    tuned
        Folder of tuned schedules for generated kernels; None uses the built-in rules alone.
    """

    costs: CostChoice = CostChoice.ACTIVE
    budgets: Budgets = field(default_factory=Budgets)
    plan: PlanOptions = field(default_factory=PlanOptions)
    measurements: Path | None = None
    tuned: Path | None = None
