"""The functions of a package when they are planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from tvm import relax

from tvm_xengine.aot.check.batches import batch_inputs
from tvm_xengine.aot.check.reference import Expected, Trial, expected_results
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.package.code_size import CodeSize
from tvm_xengine.aot.package.contents import is_zero_bytes
from tvm_xengine.aot.package.names import package_name
from tvm_xengine.aot.plan.planned import PlannedFunction, StateLayout
from tvm_xengine.aot.plan.region_problem import Machine
from tvm_xengine.aot.plan.regions import FLASH
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.program.step_program import Outside, OutsideView
from tvm_xengine.relax_ir.forward_ops import outputs_of
from tvm_xengine.relax_ir.types import Array, static_shape
from tvm_xengine.solvers.result import StopReason
from tvm_xengine.training.single_samples import SingleSamples
from tvm_xengine.training.step import TrainingStep


@dataclass(frozen=True)
class PreparedExport:
    """The functions of a package, planned in the memory of one machine.

    Attributes
    ----------
    model, training
        As they were given, everything stored as it is computed.
    stored
        The training step as it is exported.
    functions
        Its entry points.
    layout
        The state that they share.
    keep_all_bytes
        Size of the first region's arena if the training step kept all tensors there; None without one.
    single
        The functions over single samples; None where the package has none.
    code
        Size of its compiled sources; None before they are compiled.
    """

    options: ExportOptions
    machine: Machine
    model: ForwardModel
    training: TrainingStep
    stored: TrainingStep
    functions: Mapping[Entry, PlannedFunction]
    layout: StateLayout
    keep_all_bytes: int | None
    single: SingleSamples | None = None
    code: CodeSize | None = None

    @property
    def name(self) -> str:
        """Prefix of every file and C name."""
        return self.options.name or package_name(self.model.name)

    @property
    def evaluated(self) -> ForwardModel:
        """What evaluation and inference compute."""
        return self.options.evaluated or self.model

    @property
    def train(self) -> PlannedFunction:
        """The training step."""
        return self.functions[Entry.TRAIN_STEP]

    @property
    def evaluate(self) -> PlannedFunction:
        """The evaluation of a batch."""
        return self.functions[Entry.EVAL]

    @property
    def arena_bytes(self) -> dict[str, int]:
        """Bytes of each region that the functions take."""
        arenas = [f.program.interface.arena_bytes for f in self.functions.values()]
        return {region: max(arena[region] for arena in arenas) for region in arenas[0]}

    @property
    def constants(self) -> dict[str, Array]:
        """Values of the arrays in flash, by name."""
        functions = reversed(tuple(self.functions.values()))
        return {name: value for f in functions for name, value in f.constants.items()}

    @property
    def flash_bytes(self) -> int:
        """Bytes of constants and initial state in flash."""
        state = (np.asarray(self.stored.initial_state[name]) for name in self.layout.state)
        initial = (value for value in state if not is_zero_bytes(value))
        return sum(int(value.nbytes) for value in (*self.constants.values(), *initial))

    @cached_property
    def trial(self) -> Trial:
        """The run of the self-test."""
        output = _as_operand(outputs_of(self.model.main)[0].ty)
        types = {param.name: param.ty for param in self.training.function.params}
        batch = {name: _as_operand(types[name]) for name in self.training.batch_names}
        settings = dict.fromkeys(self.training.hyper_names, self.options.learning_rate)
        learns = any(entry.learns for entry in self.functions)
        steps = self.options.selftest_steps if learns else 0
        ranges = self.training.signature.ranges
        drawn = batch_inputs(batch, output, self.model.input_names, ranges)
        return Trial(drawn, settings, steps)

    @cached_property
    def expected(self) -> Expected:
        """What that run computes by the definitions of the kernels."""
        return expected_results(self.evaluated, self.training, self.trial, self.options.storage)


def was_interrupted(prepared: PreparedExport) -> bool:
    """Whether an interrupt (Ctrl-C) has ended the search for a plan, which is the best one by then."""
    results = (function.plan.result for function in prepared.functions.values())
    return any(result.stopped_by is StopReason.INTERRUPTED for result in results)


def check_flash(prepared: PreparedExport) -> None:
    """Check that constants, initial state and, once it is compiled, code fit the region for them.

    Raises
    ------
    NoScheduleError
        If they do not.
    """
    data_bytes = prepared.flash_bytes
    code_bytes = 0 if prepared.code is None else prepared.code.text_bytes
    for region in prepared.options.regions:
        most_bytes = region.size_bytes
        if region.name == FLASH and data_bytes + code_bytes > most_bytes:
            code = f", and code {code_bytes}, together" if code_bytes else ","
            raise NoScheduleError(
                f"constants and initial state take {data_bytes} bytes of flash{code} more than the"
                f" {most_bytes} of the region {FLASH}"
            )


def _as_operand(ty: relax.TensorType) -> OutsideView:
    return OutsideView(Outside.CALLER, "", static_shape(ty), str(ty.dtype))
