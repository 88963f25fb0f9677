"""Costs of kernels: measured, predicted by the shipped model, or from a roofline."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.cost_models.measure.boards import measure_on_boards
from tvm_xengine.cost_models.measure.caches import COLD
from tvm_xengine.cost_models.measure.measure import measure_kernels, require_measured
from tvm_xengine.cost_models.measure.measurements import Measurement, MeasurementCache
from tvm_xengine.cost_models.measure.this_machine import device_fingerprint
from tvm_xengine.cost_models.measure.timers import timer_for
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.cost_models.models.processors import processor_of
from tvm_xengine.cost_models.prediction.correction import Correction
from tvm_xengine.cost_models.prediction.predict import default_model, predict_to_correct
from tvm_xengine.errors import MeasurementError
from tvm_xengine.kernels.device_kernel import DeviceKernel, distinct_kernels
from tvm_xengine.kernels.store.kernel_store import KernelStore
from tvm_xengine.scheduling.problem import CostSource, OpCost

if TYPE_CHECKING:
    from tvm_xengine.cost_models.models.model_file import ModelFile

Costs = Mapping[str, OpCost]
"""By the symbol of the kernel."""


class KernelCosts(Protocol):
    """A source of costs."""

    def __call__(self, kernels: Sequence[DeviceKernel], /) -> Costs:
        """The cost of each of `kernels`, by symbol."""


def costs_on_boards(
    cache: MeasurementCache, addresses: Sequence[str], reporter: Reporter
) -> KernelCosts:
    """Costs measured on boards behind RPC, all of one kind, from `cache` where it has them.

    Raises
    ------
    MeasurementError
        Raised by the returned function, when a kernel has no measurement, or nothing answers.
    """

    def costs(kernels: Sequence[DeviceKernel], /) -> Costs:
        distinct = distinct_kernels(kernels)
        on_progress = reporter.stage("measuring kernels")
        # One of the addresses is enough for how much each kernel takes.
        (measured,) = measure_on_boards(
            {addresses[0]: distinct}, cache, on_progress=on_progress
        ).values()
        if missing := [kernel.name for kernel in distinct if kernel.symbol not in measured]:
            raise MeasurementError(
                f"kernel {missing[0]} was not measured at {addresses[0]}: it failed there before; delete"
                " its line from the measurements to try again"
            )
        return as_costs(measured)

    return costs


def as_costs(measured: Mapping[str, Measurement]) -> dict[str, OpCost]:
    """The costs of measured kernels, by symbol."""
    return {
        symbol: OpCost(m.compute_us, interval_us=(m.lo_us, m.hi_us), source=CostSource.MEASURED)
        for symbol, m in measured.items()
    }


def measured_costs(
    cache: MeasurementCache,
    *,
    store: KernelStore | None = None,
    reporter: Reporter | None = None,
    caches: str = COLD,
) -> KernelCosts:
    """Measured costs, from `cache` where it has them.

    With a store the kernels run in a process of their own.

    Parameters
    ----------
    caches
        The state in which a step leaves the caches (`step_caches`).

    Raises
    ------
    MeasurementError
        Raised by the returned function, when a kernel crashes or does not end.
    """
    reporter = reporter or Reporter()

    def costs(kernels: Sequence[DeviceKernel], /) -> Costs:
        known = {kernel.symbol for kernel in known_kernels(kernels, cache, caches)}
        distinct = distinct_kernels(kernels)
        began_s = time.perf_counter()
        try:
            measured = measure_kernels(
                distinct,
                cache,
                effort=Effort(caches=caches),
                on_progress=reporter.stage("measuring kernels"),
                timer=timer_for(store),
                on_compiled=reporter.stage("compiling kernels"),
            )
        finally:
            cache.measured_s += time.perf_counter() - began_s
        require_measured(distinct, measured, cache)
        return {
            symbol: OpCost(
                compute_us=m.compute_us,
                interval_us=(m.lo_us, m.hi_us),
                source=CostSource.CACHED if symbol in known else CostSource.MEASURED,
            )
            for symbol, m in measured.items()
        }

    return costs


def known_kernels(
    kernels: Sequence[DeviceKernel], cache: MeasurementCache, caches: str
) -> Sequence[DeviceKernel]:
    """The kernels with measurements in `cache`, in one state of the caches."""
    return [
        k for k in kernels if cache.find(k.key, device_fingerprint(k.target), caches) is not None
    ]


def predicted_costs(
    kernels: Sequence[DeviceKernel], reporter: Reporter, caches: str = COLD
) -> tuple[Costs, Correction | None]:
    """Predictions of the shipped model in a state of the caches, and their correction by measurements.

    A note names the kernels whose prediction is only a rough estimate.
    """
    model = default_model()
    costs, correction = predict_to_correct(kernels, model, caches)
    guessed = [k for k in kernels if costs[k.symbol].source is CostSource.ROOFLINE]
    if guessed:
        kinds = sorted({f"{k.source} on {k.target.kind.name}" for k in guessed})
        reporter.note(
            f"{len(distinct_kernels(guessed))} of {len(costs)} kernels have costs from a typical"
            f" roofline, because the cost model has no data of them: {', '.join(kinds)}"
        )
    if model is not None:
        note_transferred(kernels, costs, model, reporter.note)
    return costs, correction


def note_transferred(
    kernels: Sequence[DeviceKernel], costs: Costs, model: ModelFile, note: Callable[[str], None]
) -> None:
    """Name the predictions for processors without data in the model."""
    foreign = [k for k in kernels if costs[k.symbol].source is CostSource.TRANSFERRED]
    if foreign:
        here = sorted({processor_of(str(kernel.target)) for kernel in foreign})
        note(
            f"{len(distinct_kernels(foreign))} of {len(costs)} kernels run on {', '.join(here)}; the"
            f" cost model was trained on {', '.join(sorted(model.processors))}, so their costs are"
            " less certain until some are measured (active costs do), or tvm-xengine costs calibrate has run"
        )
