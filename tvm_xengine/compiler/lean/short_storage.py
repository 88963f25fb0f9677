"""Training steps that store kept tensors, and optionally parameters, in a short type."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import tvm

from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.passes.fusion.read_stored_weights import ReadStoredWeights
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.passes.store_short import StoreShort
from tvm_xengine.relax_ir.signature import (
    CONSTANTS_ATTR,
    TRAIN_STEP,
    StepSignature,
    lifted_constants,
)
from tvm_xengine.relax_ir.types import SHORT_FLOATS, Array
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.training.body.declaration import SEED, STEP
from tvm_xengine.training.forward.evaluation import evaluation_module
from tvm_xengine.training.step import TrainingStep

ROUNDINGS = ("nearest", "stochastic")


@dataclass(frozen=True)
class ShortStorage:
    """What is stored in a short type; kernels compute in float32.

    Attributes
    ----------
    parameters
        Whether trained parameters are stored in the short type, too.
    least_bytes
        Smallest size in float32 of a tensor that is stored in the short type.
    dtype
        ``float16`` (11 bits of precision, up to 65,504) or ``bfloat16`` (8 bits, range of float32).
    rounding
        Of new values of parameters: to the ``nearest`` number, where updates below half a step are
        lost, or ``stochastic``, with the exact value as its mean. The latter needs a training step that
        draws in updates (`Recipe`); its seed says how.
    """

    parameters: bool = False
    least_bytes: int = 1024
    dtype: str = "float16"
    rounding: str = "nearest"

    def __post_init__(self) -> None:
        if self.rounding not in ROUNDINGS:
            raise ValueError(
                f"rounding must be one of {', '.join(ROUNDINGS)}, got {self.rounding!r}"
            )
        if self.rounding != "nearest" and not self.parameters:
            raise ValueError(
                f"{self.rounding} rounding is for parameters, which are not stored short"
            )
        if self.least_bytes < 0:
            raise ValueError(f"least_bytes must not be negative, got {self.least_bytes}")
        if self.dtype not in SHORT_FLOATS:
            raise ValueError(f"dtype must be one of {', '.join(SHORT_FLOATS)}, got {self.dtype!r}")


def short_parameters(training: TrainingStep, storage: ShortStorage) -> tuple[str, ...]:
    """Names of the trained parameters that `storage` keeps short."""
    if not storage.parameters:
        return ()
    return tuple(
        name
        for name, role in training.roles.items()
        if role is Role.PARAMETER
        and training.initial_state[name].dtype == np.float32
        and training.initial_state[name].nbytes >= storage.least_bytes
    )


def with_short_storage(training: TrainingStep, storage: ShortStorage) -> TrainingStep:
    """The same step as kernel calls that store the tensors of `storage` in its short type."""
    names = short_parameters(training, storage)
    random_by = (SEED, STEP) if storage.rounding == "stochastic" else None
    mod, constants = _in_short_storage(training.mod, TRAIN_STEP, storage, names, random_by)
    func = mod[TRAIN_STEP]
    mod[TRAIN_STEP] = StepSignature.read(func).write(func)
    state: dict[str, Array] = {**training.initial_state, **constants}
    for name in names:
        state[name] = state[name].astype(storage.dtype)
    return replace(training, mod=mod, initial_state=state)


def short_evaluation(
    model: ForwardModel, storage: ShortStorage | None, parameters: Collection[str]
) -> tuple[tvm.IRModule, Mapping[str, Array]]:
    """The evaluation of `model` that reads `parameters` in the short type, and its constants.

    With no `storage` it is the usual evaluation.
    """
    mod = evaluation_module(model)
    count = len(model.input_names)
    main = mod["main"]
    constants = (Role.CONSTANT,) * (len(main.params) - count)
    roles = (Role.BATCH,) * count + constants
    mod["main"] = replace(StepSignature.read(main), roles=roles).write(main)
    if storage is None:
        return mod, {}
    read = {param.name for param in main.params}
    names = [name for name in parameters if name in read]
    return _in_short_storage(mod, "main", storage, names)


def _in_short_storage(
    mod: tvm.IRModule,
    func_name: str,
    storage: ShortStorage,
    parameters: Collection[str],
    random_by: tuple[str, str] | None = None,
) -> tuple[tvm.IRModule, Mapping[str, Array]]:
    """A function as kernel calls with short storage, and the constants that became parameters."""
    short = StoreShort(
        func_name,
        parameters=parameters,
        least_bytes=storage.least_bytes,
        dtype=storage.dtype,
        random_by=random_by,
    )
    passes = [LowerToKernels(func_name), ReadStoredWeights(func_name), short]
    mod = tvm.transform.Sequential(passes)(mod)
    constants = lifted_constants(mod[func_name])
    if constants:
        mod = mod.clone()
        mod[func_name] = mod[func_name].without_attr(CONSTANTS_ATTR)
    return mod, constants
