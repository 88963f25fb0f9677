"""What is known of the layers of a package before anything is planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.layers.op_amounts import least_forward_bytes, op_amounts
from tvm_xengine.aot.options import ExportOptions, machine_of
from tvm_xengine.aot.package.contents import is_zero_bytes
from tvm_xengine.aot.plan.region_problem import Machine
from tvm_xengine.aot.plan.regions import FLASH
from tvm_xengine.frontends.layers import Layer
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.planning.subsets.relaxation import Row, Subset
from tvm_xengine.solvers.result import Objective
from tvm_xengine.training.step import TrainingStep

_SURE_RATIO = 0.97
"""An op takes at least this share of its time and energy in a step that trains fewer layers, where it is
fused with others. Over subsets of the layers of mlp, lenet, resnet8 and ds_cnn the sum was up to 1 % off."""


@dataclass(frozen=True)
class StepLimits:
    """What a step of the chosen layers may take beside memory; None does not limit.

    Attributes
    ----------
    rewrites_frozen
        Whether frozen layers compute in another way than in the step that trains all layers, so that this
        step says nothing of their memory, time and energy.
    """

    time_us: float | None = None
    energy_uj: float | None = None
    rewrites_frozen: bool = False


@dataclass(frozen=True)
class LayerState:
    """Bytes of the state of each layer, in a step that trains them all."""

    layers: tuple[Layer, ...]
    step: TrainingStep

    @cached_property
    def state_bytes(self) -> list[int]:
        """Parameters and optimizer state."""
        return [sum(size for size, _ in self._of(layer)) for layer in self.layers]

    @cached_property
    def parameter_bytes(self) -> list[int]:
        """Parameters, and so the sums of their gradients."""
        return [sum(size for size, _ in self._of(layer, slots=False)) for layer in self.layers]

    @cached_property
    def zero_bytes(self) -> list[int]:
        """Parameters that take flash only where they are frozen: they start as zeros."""
        return [
            sum(size for size, is_zero in self._of(layer, slots=False) if is_zero)
            for layer in self.layers
        ]

    @cached_property
    def initial_bytes(self) -> list[int]:
        """State that takes flash where it is trained: it does not start as zeros."""
        return [
            sum(size for size, is_zero in self._of(layer) if not is_zero) for layer in self.layers
        ]

    @property
    def layer_of(self) -> dict[str, int]:
        """The layer of each state tensor."""
        return {
            name: at
            for at, layer in enumerate(self.layers)
            for name in self._names(layer, slots=True)
        }

    def _names(self, layer: Layer, *, slots: bool) -> Iterator[str]:
        for parameter in layer.parameters:
            yield parameter
            if slots:
                yield from self.step.slots.get(parameter, {}).values()

    def _of(self, layer: Layer, *, slots: bool = True) -> Iterator[tuple[int, bool]]:
        """Bytes of each tensor, and whether it starts as zeros."""
        for name in self._names(layer, slots=slots):
            value = self.step.initial_state.get(name)
            if value is not None:
                yield int(value.nbytes), is_zero_bytes(value)


def rows_of(
    state: LayerState, model: ForwardModel, options: ExportOptions, limits: StepLimits
) -> dict[str, Row]:
    """What a package of some layers takes at least, by what it is.

    Parameters
    ----------
    model
        Trains all layers.
    """
    machine = machine_of(options)
    found = {"memory": _memory_row(state, model, machine, options, limits)}
    if (flash := flash_bytes(options)) is not None:
        found["initial state in flash"] = Row.of_each(state.initial_bytes, flash)
    has_limit = limits.time_us is not None or limits.energy_uj is not None
    if has_limit and not limits.rewrites_frozen and Entry.TRAIN_STEP in options.entries:
        found |= _rows_of_ops(state, machine, options, limits)
    return found


def _memory_row(
    state: LayerState,
    model: ForwardModel,
    machine: Machine,
    options: ExportOptions,
    limits: StepLimits,
) -> Row:
    """State lies in one region; in the only one, beside sums of gradients and what an op takes."""
    devices = machine.platform.devices
    most = max(device.budget_bytes for device in devices)
    if len(devices) > 1:
        return Row.of_each(state.state_bytes, most)
    kept = state.state_bytes
    if Entry.ACCUMULATE in options.entries:
        kept = [a + b for a, b in zip(kept, state.parameter_bytes, strict=True)]
    row = Row.of_each(kept, most)
    if options.storage is not None or limits.rewrites_frozen:
        return row
    return replace(row, base=least_forward_bytes(model, machine, options.optimize))


def _rows_of_ops(
    state: LayerState, machine: Machine, options: ExportOptions, limits: StepLimits
) -> dict[str, Row]:
    """Time and energy of the ops that the update of each layer follows from."""
    amounts = op_amounts(state.step, machine, options.optimize, state.layer_of)
    found = {}
    overlaps = options.plan.objective is Objective.MAKESPAN
    if limits.time_us is not None and not overlaps:
        found["time"] = _sure(amounts.time_us, limits.time_us, amounts.base_us)
    if limits.energy_uj is not None:
        found["energy"] = _sure(amounts.energy_uj, limits.energy_uj, amounts.base_uj)
    return found


def _sure(amounts: Mapping[Subset, float], limit: float, base: float) -> Row:
    """The row of what ops take in the step that trains all layers."""
    sure = {group: _SURE_RATIO * amount for group, amount in amounts.items()}
    return Row(sure, limit, _SURE_RATIO * base)


def flash_bytes(options: ExportOptions) -> int | None:
    """The size of the region of constants and initial state; None where it is not limited."""
    return next((one.size_bytes for one in options.regions if one.name == FLASH), None)
