"""Place, rematerialize and page training steps under memory budgets: a compiler stage for TVM Relax."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm_xengine.api import build as build
    from tvm_xengine.api import compile as compile
    from tvm_xengine.api import estimate as estimate
    from tvm_xengine.api import load_model as load_model
    from tvm_xengine.api import lower as lower
    from tvm_xengine.api import make_problem as make_problem
    from tvm_xengine.api import plan as plan
    from tvm_xengine.api import processor as processor
    from tvm_xengine.api import training_step as training_step
    from tvm_xengine.errors import XEngineError as XEngineError
    from tvm_xengine.model.int8 import Int8 as Int8
    from tvm_xengine.model.losses import named_loss as named_loss
    from tvm_xengine.model.lr_schedules import named_schedule as named_schedule
    from tvm_xengine.model.training import Training as Training
    from tvm_xengine.scheduling.default_platform import default_platform as default_platform
    from tvm_xengine.scheduling.platform import Device as Device
    from tvm_xengine.scheduling.platform import Link as Link
    from tvm_xengine.scheduling.platform import Platform as Platform
    from tvm_xengine.session.estimate import Estimate as Estimate
    from tvm_xengine.session.export import export_c as export_c
    from tvm_xengine.session.export import export_for_target as export_for_target
    from tvm_xengine.session.layers.gradient_scores import layer_scores as layer_scores
    from tvm_xengine.session.layers.train_budget import TrainBudget as TrainBudget
    from tvm_xengine.session.loop.evaluate_state import evaluate_state as evaluate_state
    from tvm_xengine.session.loop.fit import fit as fit
    from tvm_xengine.session.loop.validation import evaluate as evaluate
    from tvm_xengine.session.loop.workload import CheckpointOptions as CheckpointOptions
    from tvm_xengine.session.loop.workload import FitProgress as FitProgress
    from tvm_xengine.session.loop.workload import FitResult as FitResult
    from tvm_xengine.session.loop.workload import Workload as Workload
    from tvm_xengine.session.own_step import with_step_signature as with_step_signature
    from tvm_xengine.session.pipeline import scheduling_pipeline as scheduling_pipeline
    from tvm_xengine.session.plans.given_schedule import plan_of_schedule as plan_of_schedule
    from tvm_xengine.session.stages.lowered import Lowered as Lowered
    from tvm_xengine.session.stages.plan import StepPlan as StepPlan
    from tvm_xengine.session.stages.problem import StepProblem as StepProblem
    from tvm_xengine.session.step import Step as Step
    from tvm_xengine.session.together.build import StepsTogether as StepsTogether
    from tvm_xengine.session.together.build import build_together as build_together
    from tvm_xengine.session.together.fit import fit_together as fit_together
    from tvm_xengine.session.together.plan import PlansTogether as PlansTogether
    from tvm_xengine.session.together.plan import plan_together as plan_together
    from tvm_xengine.session.training_data import training_data as training_data
    from tvm_xengine.state.state_file import read_state as read_state
    from tvm_xengine.state.state_file import write_onnx_state as write_onnx_state
    from tvm_xengine.state.state_file import write_state as write_state
    from tvm_xengine.training.adam import Adam as Adam
    from tvm_xengine.training.adam import Adamax as Adamax
    from tvm_xengine.training.adam import AdamW as AdamW
    from tvm_xengine.training.adam import NAdam as NAdam
    from tvm_xengine.training.adam import RAdam as RAdam
    from tvm_xengine.training.forward.precision import MixedPrecision as MixedPrecision
    from tvm_xengine.training.losses import CrossEntropy as CrossEntropy
    from tvm_xengine.training.optimizers import SGD as SGD
    from tvm_xengine.training.optimizers import Adadelta as Adadelta
    from tvm_xengine.training.optimizers import Adagrad as Adagrad
    from tvm_xengine.training.optimizers import Lion as Lion
    from tvm_xengine.training.optimizers import RMSprop as RMSprop

_PLACES = {
    "tvm_xengine.api": (
        "build",
        "compile",
        "estimate",
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
    "tvm_xengine.session.estimate": ("Estimate",),
    "tvm_xengine.session.export": ("export_c", "export_for_target"),
    "tvm_xengine.session.loop.fit": ("fit",),
    "tvm_xengine.session.loop.validation": ("evaluate",),
    "tvm_xengine.session.loop.workload": (
        "CheckpointOptions",
        "FitProgress",
        "FitResult",
        "Workload",
    ),
    "tvm_xengine.model.int8": ("Int8",),
    "tvm_xengine.model.losses": ("named_loss",),
    "tvm_xengine.session.own_step": ("with_step_signature",),
    "tvm_xengine.session.pipeline": ("scheduling_pipeline",),
    "tvm_xengine.model.training": ("Training",),
    "tvm_xengine.session.stages.lowered": ("Lowered",),
    "tvm_xengine.session.stages.plan": ("StepPlan",),
    "tvm_xengine.session.stages.problem": ("StepProblem",),
    "tvm_xengine.session.loop.evaluate_state": ("evaluate_state",),
    "tvm_xengine.session.plans.given_schedule": ("plan_of_schedule",),
    "tvm_xengine.state.state_file": ("read_state", "write_onnx_state", "write_state"),
    "tvm_xengine.session.together.build": ("StepsTogether", "build_together"),
    "tvm_xengine.session.together.fit": ("fit_together",),
    "tvm_xengine.session.together.plan": ("PlansTogether", "plan_together"),
    "tvm_xengine.session.layers.gradient_scores": ("layer_scores",),
    "tvm_xengine.session.layers.train_budget": ("TrainBudget",),
    "tvm_xengine.session.training_data": ("training_data",),
    "tvm_xengine.model.lr_schedules": ("named_schedule",),
    "tvm_xengine.session.step": ("Step",),
    "tvm_xengine.training.losses": ("CrossEntropy",),
    "tvm_xengine.training.adam": ("Adam", "AdamW", "Adamax", "NAdam", "RAdam"),
    "tvm_xengine.training.optimizers": ("SGD", "Adadelta", "Adagrad", "Lion", "RMSprop"),
    "tvm_xengine.training.forward.precision": ("MixedPrecision",),
}
"""Where each public name is defined; a module is loaded when one of its names is used."""

_PLACE = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "CheckpointOptions",
    "CrossEntropy",
    "Device",
    "Estimate",
    "FitProgress",
    "FitResult",
    "Int8",
    "Link",
    "Lion",
    "Lowered",
    "MixedPrecision",
    "NAdam",
    "PlansTogether",
    "Platform",
    "RAdam",
    "RMSprop",
    "Step",
    "StepPlan",
    "StepProblem",
    "StepsTogether",
    "TrainBudget",
    "Training",
    "Workload",
    "XEngineError",
    "build",
    "build_together",
    "compile",
    "default_platform",
    "estimate",
    "evaluate",
    "evaluate_state",
    "export_c",
    "export_for_target",
    "fit",
    "fit_together",
    "layer_scores",
    "load_model",
    "lower",
    "make_problem",
    "named_loss",
    "named_schedule",
    "plan",
    "plan_of_schedule",
    "plan_together",
    "processor",
    "read_state",
    "scheduling_pipeline",
    "training_data",
    "training_step",
    "with_step_signature",
    "write_onnx_state",
    "write_state",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACE[name]), name)
    _register_pipeline()
    return value


def _pipeline(**options: Any) -> Any:
    from tvm_xengine.session.pipeline import scheduling_pipeline

    return scheduling_pipeline(**options)


def _register_pipeline() -> None:
    """Make ``relax.get_pipeline("tvm_xengine", ...)`` work, once TVM is loaded."""
    registry = sys.modules.get("tvm.relax.pipeline")
    if registry is not None and "tvm_xengine" not in registry.PIPELINE_MAP:
        registry.register_pipeline("tvm_xengine")(_pipeline)


_register_pipeline()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
