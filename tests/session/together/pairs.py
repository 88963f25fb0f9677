"""Several steps planned together, and the same plans built apart, each with its own random batches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import tvm_xengine as xe
from tests.runtime.steps import NETWORKS, platform


def problems_of(networks: Mapping[str, str], on: xe.Platform, cache: Path) -> dict[str, Any]:
    """The problems of networks of `tests.runtime.steps` by names, with roofline costs."""
    found = {}
    for name, network in networks.items():
        torch.manual_seed(0)
        training = xe.training_step(**NETWORKS[network]())
        found[name] = xe.make_problem(xe.lower(training, on, cache=cache), costs="roofline")
    return found


def planned(
    networks: Mapping[str, str], on: str, folder: Path, cache: Path, **options: Any
) -> xe.PlansTogether:
    """Plans of networks on a platform of `tests.runtime.steps`."""
    problems = problems_of(networks, platform(on, folder), cache)
    return xe.plan_together(problems, **{"time_limit_s": 4.0, "solver": "greedy", **options})


def apart(plans: xe.PlansTogether) -> dict[str, xe.Step]:
    """Steps of the same plans, each in arenas of its own."""
    return {name: xe.Step(plan) for name, plan in plans.plans.items()}
