"""The source of a step: the model, its evaluation, and names that only the module knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from tvm import IRModule

from tvm_xengine.checks.arguments import checked
from tvm_xengine.frontends.assemble import with_output, without_final_softmax
from tvm_xengine.frontends.call_structure import Structure
from tvm_xengine.frontends.load import load_model
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.relax import from_relax
from tvm_xengine.frontends.roles import Use
from tvm_xengine.frontends.torch.arrays import to_array
from tvm_xengine.relax_ir.forward_ops import outputs_of
from tvm_xengine.relax_ir.types import Array

if TYPE_CHECKING:
    import torch

Restore = Callable[[Sequence[Any]], Any]

ModelLike = Union[
    str, Path, ForwardModel, IRModule, "torch.nn.Module", "torch.export.ExportedProgram"
]
"""A path or zoo name, a loaded model, a Relax or PyTorch module, or an exported program."""


@dataclass(frozen=True)
class Source:
    """A forward model with what is known of it beyond its function.

    Attributes
    ----------
    training, evaluation
        The forward function in training and in evaluation mode; the same where the model comes
        from a file.
    outputs
        Number of tensors that the evaluation returns.
    restore
        Puts them into the structure that the model returns.
    order
        Names of a state dict, in order; empty takes those of the tensors.
    unused
        Values of state that the step may not read, such as counters, by name.
    counters
        Those of them that each batch adds a number to, such as the calls of a norm, with the number.
    is_torch
        Whether tensors are returned as PyTorch's.
    """

    training: ForwardModel
    evaluation: ForwardModel
    outputs: int
    restore: Restore
    order: tuple[str, ...] = ()
    unused: Mapping[str, Array] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    is_torch: bool = False

    @property
    def arguments(self) -> tuple[Structure, ...]:
        """What the model was exported for; further arguments of a batch are targets."""
        return self.training.arguments

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs of the evaluation, which are the model's own."""
        return self.evaluation.input_names


def load_source(
    model: ModelLike, *, seed: int = 0, output: int | None = None, **options: Any
) -> Source:
    """The source of a model that is no PyTorch module, without its final softmax.

    Parameters
    ----------
    output
        Position of the only output that counts; None keeps all.
    options
        Of `load_model`, for paths and zoo names; of `from_relax`, for Relax modules.
    """
    if isinstance(model, str | Path):
        model = checked(load_model)(str(model), seed=seed, **options)
    elif isinstance(model, IRModule):
        model = from_relax(model, **options)
    elif not isinstance(model, ForwardModel):
        if not hasattr(model, "graph_signature"):
            raise TypeError(
                "expected a PyTorch module, an exported program, a Relax module, a file or the name"
                f" of a zoo network, got {type(model).__name__}"
            )
        from tvm_xengine.frontends.torch.read import from_torch_export

        model = from_torch_export(model)
    model = without_final_softmax(model if output is None else with_output(model, output))
    count = len(outputs_of(model.main))
    restore: Restore = (lambda values: values[0]) if count == 1 else tuple
    return Source(
        *(model, model, count, restore),
        order=tuple(model.own),
        unused=model.own,
        counters=model.counters,
    )


def module_source(
    module: torch.nn.Module,
    inputs: object,
    loss: Callable[..., torch.Tensor] | None,
    targets: Sequence[object],
    *,
    loss_inside: bool,
) -> Source:
    """The source of a PyTorch module.

    Parameters
    ----------
    loss, targets
        A loss that is exported with the module, and examples of what it compares with.
    loss_inside
        Whether the training function returns the loss, and not the module's outputs.
    """
    from tvm_xengine.frontends.torch.module import trace_module, trace_with_loss

    if loss_inside:
        training = trace_with_loss(module, inputs, loss, targets)
    else:
        training = trace_module(module, inputs, training=True).model
    known = {name for role in training.roles for name in role.names}
    written = {name for r in training.roles if r.use is Use.STATISTIC for name in r.names}
    evaluation = trace_module(
        module,
        _model_inputs(inputs),
        training=False,
        varying=written | set(training.counters),
    )
    state = module.state_dict(keep_vars=True)
    unused = {name: to_array(value).copy() for name, value in state.items() if name not in known}
    return Source(
        training,
        evaluation.model,
        evaluation.outputs,
        evaluation.restore,
        tuple(state),
        unused,
        training.counters,
        is_torch=True,
    )


def _model_inputs(inputs: object) -> object:
    """What the module is given where no loss is wanted: Hugging Face's models take labels, too."""
    if isinstance(inputs, Mapping) and "labels" in inputs:
        return {name: value for name, value in inputs.items() if name != "labels"}
    return inputs


def as_array(value: Any) -> Array:
    """A tensor of any library as an array, without a copy where its memory allows it.

    Raises
    ------
    TypeError
        If it is none of numbers that all are there.
    """
    if np.ma.is_masked(value):
        raise TypeError("expected an array without mask, got one with hidden elements; fill them")
    if hasattr(value, "detach"):  # PyTorch's
        return to_array(value)
    if not isinstance(value, np.ndarray | np.generic) and hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    array = np.asarray(value)
    if array.dtype.kind in "OUS" and array.ndim == 0 and array is not value:
        raise TypeError(f"expected an array or tensor, got {type(value).__name__}")
    return array


def with_batch(value: Any, size: int, count: int) -> Any:
    """Example tensors for another batch size: where the leading dimension is `size`, of `count`."""
    if isinstance(value, Mapping):
        return {name: with_batch(one, size, count) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(with_batch(one, size, count) for one in value)
    if not getattr(value, "shape", ()) or value.shape[0] != size:
        return value
    return value[[k % size for k in range(count)]]
