"""Place, rematerialize and page training steps under memory budgets: a compiler stage for TVM Relax."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm_xengine.api import build as build
    from tvm_xengine.api import compile as compile
    from tvm_xengine.api import export_c as export_c
    from tvm_xengine.api import load_model as load_model
    from tvm_xengine.api import lower as lower
    from tvm_xengine.api import make_problem as make_problem
    from tvm_xengine.api import plan as plan
    from tvm_xengine.api import processor as processor
    from tvm_xengine.api import training_step as training_step
    from tvm_xengine.errors import XEngineError as XEngineError
    from tvm_xengine.scheduling.default_platform import default_platform as default_platform
    from tvm_xengine.scheduling.platform import Device as Device
    from tvm_xengine.scheduling.platform import Link as Link
    from tvm_xengine.scheduling.platform import Platform as Platform
    from tvm_xengine.session.losses import named_loss as named_loss
    from tvm_xengine.session.stages import Lowered as Lowered
    from tvm_xengine.session.stages import StepPlan as StepPlan
    from tvm_xengine.session.stages import StepProblem as StepProblem
    from tvm_xengine.session.stages import Training as Training
    from tvm_xengine.session.step import Step as Step
    from tvm_xengine.training.losses import CrossEntropy as CrossEntropy
    from tvm_xengine.training.optimizers import SGD as SGD
    from tvm_xengine.training.optimizers import Adagrad as Adagrad
    from tvm_xengine.training.optimizers import Adam as Adam
    from tvm_xengine.training.optimizers import AdamW as AdamW
    from tvm_xengine.training.optimizers import Lion as Lion
    from tvm_xengine.training.optimizers import RMSprop as RMSprop
    from tvm_xengine.training.precision import MixedPrecision as MixedPrecision

_PLACES = {
    "tvm_xengine.api": (
        "build",
        "compile",
        "export_c",
        "load_model",
        "lower",
        "make_problem",
        "plan",
        "processor",
        "training_step",
    ),
    "tvm_xengine.errors": ("XEngineError",),
    "tvm_xengine.scheduling.default_platform": ("default_platform",),
    "tvm_xengine.scheduling.platform": ("Device", "Link", "Platform"),
    "tvm_xengine.session.losses": ("named_loss",),
    "tvm_xengine.session.stages": ("Lowered", "StepPlan", "StepProblem", "Training"),
    "tvm_xengine.session.step": ("Step",),
    "tvm_xengine.training.losses": ("CrossEntropy",),
    "tvm_xengine.training.optimizers": ("SGD", "Adagrad", "Adam", "AdamW", "Lion", "RMSprop"),
    "tvm_xengine.training.precision": ("MixedPrecision",),
}
"""Where each public name is defined; a module is loaded when one of its names is used."""

_PLACE = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "CrossEntropy",
    "Device",
    "Link",
    "Lion",
    "Lowered",
    "MixedPrecision",
    "Platform",
    "RMSprop",
    "Step",
    "StepPlan",
    "StepProblem",
    "Training",
    "XEngineError",
    "build",
    "compile",
    "default_platform",
    "export_c",
    "load_model",
    "lower",
    "make_problem",
    "named_loss",
    "plan",
    "processor",
    "training_step",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACE[name]), name)


class _Package(ModuleType):
    """This package, whose `compile` stays the function when the subpackage of that name is loaded."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "compile":
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
