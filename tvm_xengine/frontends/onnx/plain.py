"""ONNX models as the importer reads them: fixed shapes, one graph, weights as initialisers."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.graphs.declared import correct_declared
from tvm_xengine.frontends.onnx.graphs.functions import write_out_own_functions
from tvm_xengine.frontends.onnx.graphs.names import require_single_names, unique_names
from tvm_xengine.frontends.onnx.graphs.opsets import in_known_opset
from tvm_xengine.frontends.onnx.graphs.quantized import dequantize_weights, join_pairs
from tvm_xengine.frontends.onnx.graphs.rewrites import (
    bind_batch,
    drop_unread_masks,
    lift_weights,
    materialise_filled_weights,
    write_constants_as_tensors,
    write_sparse_as_dense,
)
from tvm_xengine.frontends.onnx.graphs.separate import hoist_initialisers
from tvm_xengine.frontends.onnx.refusals import require_lengths, require_made, require_tensors
from tvm_xengine.relax_ir.types import Array


@dataclass(frozen=True)
class PlainModel:
    """A model of fixed shapes, one graph and operators of ONNX, whose weights are initialisers.

    Attributes
    ----------
    weight_scales
        Of weights that the file holds as whole numbers, by name.
    other_batches
        Batch sizes that the file is for, where it was given another one.
    notes
        What the file says and the model does not hold.
    contradiction
        That of `tvm_xengine.frontends.onnx.graphs.declared.Corrections`.
    """

    model: onnx.ModelProto
    weight_scales: dict[str, Array]
    other_batches: tuple[int, ...]
    notes: tuple[str, ...]
    contradiction: str

    def refusal(self, error: UnsupportedModelError) -> UnsupportedModelError:
        """The error, with advice where the batch size may be its reason."""
        if not self.other_batches:
            return error
        batches = " and ".join(map(str, self.other_batches))
        return UnsupportedModelError(
            f"{error}; the file is for batches of {batches}: export it with an open batch dimension,"
            " or with the batch size that it shall be trained with"
        )


def plain(name: str, model: onnx.ModelProto, batch_size: int | None) -> PlainModel:
    """The model with every tensor under a name of its own, bound to a batch size; changes `model`."""
    notes = []
    if model.training_info:
        notes.append(
            "the file brings its own training (training_info), which is not read: loss and optimizer"
            " are those that are asked for"
        )
    require_tensors(model)
    require_made(model)
    require_single_names(model.graph)
    corrections = correct_declared(model)
    notes += corrections.notes
    model = write_out_own_functions(in_known_opset(model))
    graph = model.graph
    unique_names(graph)
    hoist_initialisers(graph)
    write_sparse_as_dense(graph)
    write_constants_as_tensors(graph)
    batches = sorted(bind_batch(name, model, batch_size))
    require_lengths(graph)
    if batches:
        notes.append(
            f"the file is for batches of {' and '.join(map(str, batches))}; numbers that its code"
            f" computed from that are as they were. To train with batches of {batch_size}, an export"
            " with an open batch dimension is safer"
        )
    drop_unread_masks(graph)
    materialise_filled_weights(graph)
    scales = dequantize_weights(graph)
    join_pairs(graph)
    lift_weights(graph)
    return PlainModel(model, scales, tuple(batches), tuple(notes), corrections.contradiction)
