"""A forward model and its gradient as a step: our kernels, planned, in arenas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm

from tests.databases.vjp import FUNCTION, Differentiated, Evaluation, differentiated
from tvm_xengine.compiler.build import build_step
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.frontends.model import Array, ForwardModel
from tvm_xengine.relax_ir.signature import StepSignature
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost

PLATFORM = Platform(devices=(Device("cpu", "llvm -mcpu=native", kernels=("tir",)),), links=())


@dataclass(frozen=True)
class OwnStep:
    """A model and its gradient as a step called `FUNCTION`.

    Attributes
    ----------
    results
        Names of its results, of which the first one is no tensor of the model.
    """

    mod: tvm.IRModule
    function: Differentiated
    results: tuple[str, ...]


def as_step(
    model: ForwardModel, inputs: Sequence[Array], output_gradients: Mapping[int, Array]
) -> OwnStep:
    """The forward pass and the backward pass of a model as a step that updates nothing."""
    function = differentiated(model, inputs, output_gradients, with_op=True)
    mod = function.mod
    names = tuple(f"result_{k}" for k in range(len(mod[FUNCTION].ret_ty.fields)))
    roles = tuple(Role.PARAMETER if n in model.state else Role.BATCH for n in function.values)
    mod[FUNCTION] = StepSignature(roles, len(names), names).write(mod[FUNCTION])
    return OwnStep(mod, function, names)


def evaluate_in_step(
    model: ForwardModel, inputs: Sequence[Array], output_gradients: Mapping[int, Array]
) -> Evaluation:
    """Run the forward pass and the backward pass once as a step, from an arena full of garbage."""
    step = as_step(model, inputs, output_gradients)
    lowered = lower_step(step.mod, PLATFORM, func_name=FUNCTION)
    costs = {kernel.symbol: OpCost(1.0) for kernel in lowered.kernels.values()}
    plan = plan_keep_all(make_problem(lowered, lambda _: costs), "cpu")
    executable = build_step(lowered, plan)
    values = step.function.values
    executable.write({name: value for name, value in values.items() if name in model.state})
    executable.poison()
    made = executable.step({n: value for n, value in values.items() if n not in model.state})
    return Evaluation.of([made[name] for name in step.results[1:]], step.function.trained)
