"""Groups of options that say which training step is meant, and where it runs."""

from __future__ import annotations

from dataclasses import dataclass

from cyclopts import Parameter

from tvm_xengine.commands.arguments.options import (
    CacheOptions,
    ConstraintOptions,
    ModelOptions,
    PlatformOptions,
)
from tvm_xengine.commands.arguments.training_options import (
    FrozenOptions,
    LossOptions,
    OptimizerOptions,
    ParameterOptions,
)


@Parameter(name="*")
@dataclass(frozen=True)
class StepOptions:
    """Which training step is meant."""

    model: ModelOptions = ModelOptions()
    loss: LossOptions = LossOptions()
    optimizer: OptimizerOptions = OptimizerOptions()
    parameters: ParameterOptions = ParameterOptions()
    frozen: FrozenOptions = FrozenOptions()


@Parameter(name="*")
@dataclass(frozen=True)
class MachineOptions:
    """On which machine a step is planned, and what constrains it."""

    platform: PlatformOptions = PlatformOptions()
    cache: CacheOptions = CacheOptions()
    constraints: ConstraintOptions = ConstraintOptions()
