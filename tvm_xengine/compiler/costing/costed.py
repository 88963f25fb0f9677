"""The costs of a lowered step's kernels, and its scheduling problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm_xengine.compiler.costing.costs import (
    Costs,
    KernelCosts,
    known_kernels,
    measured_costs,
    predicted_costs,
)
from tvm_xengine.compiler.costing.step_caches import step_caches
from tvm_xengine.compiler.kernel_choice import with_clearly_faster_kernels, with_fastest_kernels
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.compiler.options import Budgets, CostChoice
from tvm_xengine.compiler.problem import make_problem, op_costs
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.cost_models.models.model import Predictor
from tvm_xengine.cost_models.prediction.correction import Correction
from tvm_xengine.cost_models.prediction.predict import (
    default_model,
    predict_by,
    predict_costs,
    predict_to_correct,
)
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.scheduling.problem import Problem


@dataclass(frozen=True)
class CostedStep:
    """A lowered step with the costs of its kernels and its scheduling problem.

    Attributes
    ----------
    lowered
        With the kernels that were chosen.
    problem
        With the costs below, and the budgets to plan for.
    costs
        Of every kernel, by symbol.
    offered
        As it was lowered, with a library's kernel wherever there is one.
    correction
        Corrects predicted costs by measured ones; None where nothing was predicted by a model.
    """

    lowered: LoweredStep
    problem: Problem
    choice: CostChoice | Predictor
    costs: Costs
    offered: LoweredStep
    correction: Correction | None = None

    def with_budgets(self, budgets: Budgets) -> CostedStep:
        """The same step under other budgets.

        Raises
        ------
        InvalidPlatformError
            If a device is not on the platform.
        """
        return replace(self, problem=self.problem.with_budgets(budgets.of(self.problem)))

    def with_kernels(self, lowered: LoweredStep, stores: Stores, reporter: Reporter) -> CostedStep:
        """The same step with other kernels, costed alike, under the same budgets."""
        costed = cost_kernels(lowered, self.choice, stores, reporter)
        problem = costed.problem.asked_as(self.problem)
        return replace(costed, problem=problem, offered=self.offered)

    def with_costs(self, costs: Costs) -> Problem:
        """The problem with other costs, under the same budgets."""
        return replace(self.problem, costs=op_costs(self.lowered, lambda _: costs))


def cost_step(
    lowered: LoweredStep, choice: CostChoice | Predictor, stores: Stores, reporter: Reporter
) -> CostedStep:
    """The step with costs from the source that `choice` is.

    Costs also choose the faster kernel on devices with kernel source ``auto``, predicted ones where it is
    clearly so. ``active`` starts with predictions, and what is measured already; `plan_costed` measures.
    """
    match choice:
        case CostChoice.MEASURED:
            measured = _measured(lowered, stores, reporter)
            fastest = with_fastest_kernels(lowered, measured, stores.tuned)
        case CostChoice.PREDICTED | CostChoice.ACTIVE:
            known = known_costs(lowered, choice, stores)
            fastest = with_clearly_faster_kernels(lowered, known, stores.tuned)
        case _:
            fastest = lowered
    return replace(cost_kernels(fastest, choice, stores, reporter), offered=lowered)


def known_costs(
    lowered: LoweredStep, choice: CostChoice | Predictor, stores: Stores
) -> KernelCosts:
    """What is known of kernels without measuring: predictions, and with ``active`` earlier measurements."""
    caches, measured = step_caches(lowered), _measured(lowered, stores, Reporter())

    def costs(kernels: Sequence[DeviceKernel], /) -> Costs:
        predicted, _ = predict_to_correct(kernels, default_model(), caches)
        if choice is CostChoice.PREDICTED:
            return predicted
        return {**predicted, **measured(known_kernels(kernels, stores.measurements, caches))}

    return costs


def _measured(lowered: LoweredStep, stores: Stores, reporter: Reporter) -> KernelCosts:
    caches = step_caches(lowered)
    return measured_costs(
        stores.measurements, store=stores.kernels, reporter=reporter, caches=caches
    )


def cost_kernels(
    lowered: LoweredStep, choice: CostChoice | Predictor, stores: Stores, reporter: Reporter
) -> CostedStep:
    """The step with the costs of the kernels that it has."""
    correction = None
    match choice:
        case CostChoice.MEASURED:
            costs = _measured(lowered, stores, reporter)(lowered.distinct)
        case CostChoice.ROOFLINE:
            costs = predict_costs(lowered.distinct, None)
        case CostChoice.PREDICTED | CostChoice.ACTIVE:
            costs, correction = predicted_costs(lowered.distinct, reporter, step_caches(lowered))
        case predictor:
            costs = predict_by(predictor, lowered.distinct)
    problem = make_problem(lowered, lambda _: costs)
    return CostedStep(lowered, problem, choice, costs, lowered, correction)
