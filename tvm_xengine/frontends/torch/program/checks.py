"""What a program must not be, said before it is translated."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument

from tvm_xengine.checks.names import some
from tvm_xengine.checks.operators import located
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.program.nodes import layer_of, op_name
from tvm_xengine.frontends.torch.program.past_autograd import silent_writes
from tvm_xengine.frontends.torch.program.shared_memory import check_shared_memory

RETURNED = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
"""Kinds of what forward returns, beside the buffers that it writes."""


def is_returned_tensor(spec: OutputSpec) -> bool:
    """Whether it is a tensor that forward returns; None and numbers are no outputs of the model."""
    return spec.kind in RETURNED and isinstance(spec.arg, TensorArgument)


def check_program(name: str, program: ExportedProgram, prefix: str) -> None:
    """Refuse what cannot be trained as it is meant.

    Raises
    ------
    UnsupportedModelError
        Says what was found, where, and what to do.
    """
    _check_shapes(name, program)
    _check_silent_writes(name, program)
    check_shared_memory(name, program, prefix)
    _check_outputs(name, program)


def check_decomposed(name: str, program: ExportedProgram, prefix: str) -> None:
    """The same of what shows only in a program without mutation."""
    _check_shapes(name, program)
    _check_written(name, program, prefix)


def _check_silent_writes(name: str, program: ExportedProgram) -> None:
    if nodes := silent_writes(program):
        places = located((op_name(node), layer_of(node)) for node in nodes)
        raise UnsupportedModelError(
            f"{name}: forward writes in place to tensors whose gradient it needs, and autograd does not see"
            f" it (under torch.no_grad, or through detach()): {places}; write to a copy (clone), or where"
            " gradients are enabled"
        )


def _check_outputs(name: str, program: ExportedProgram) -> None:
    if not any(map(is_returned_tensor, program.graph_signature.output_specs)):
        raise UnsupportedModelError(
            f"{name}: forward returns no tensor; return one, not a number of it as t.item() makes"
        )


def _check_written(name: str, program: ExportedProgram, prefix: str) -> None:
    """A forward pass may write buffers; parameters are written by the optimizer."""
    written = [
        str(spec.target).removeprefix(prefix)
        for spec in program.graph_signature.output_specs
        if spec.kind is OutputKind.PARAMETER_MUTATION
    ]
    if written:
        raise UnsupportedModelError(
            f"{name}: the forward pass writes the parameters {some(written)}, which the optimizer of a"
            " training step replaces; keep what forward writes in buffers"
        )


def _check_shapes(name: str, program: ExportedProgram) -> None:
    dynamic = [
        node.name
        for node in program.graph.nodes
        if node.op == "placeholder"
        and isinstance(value := node.meta.get("val"), torch.Tensor)
        and any(not isinstance(extent, int) for extent in value.shape)
    ]
    if dynamic:
        raise UnsupportedModelError(
            f"{name}: the inputs {dynamic} have dynamic shapes; export without dynamic_shapes"
        )
    strange = [
        (op_name(node), layer_of(node))
        for node in program.graph.nodes
        for value in _tensors(node.meta.get("val"))
        if value.is_complex() or value.layout is not torch.strided
    ]
    if strange:
        raise UnsupportedModelError(
            f"{name}: complex and sparse tensors are not supported: {located(strange)}; compute with"
            " real and imaginary parts (torch.view_as_real), and with dense tensors (to_dense)"
        )


def _tensors(value: object) -> list[torch.Tensor]:
    values = value if isinstance(value, list | tuple) else [value]
    return [one for one in values if isinstance(one, torch.Tensor)]
