"""The part of the ONNX front end that needs onnx: ONNX graphs to Relax."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path

import onnx
from onnx import numpy_helper
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, _get_convert_map, get_constant

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.assemble import assemble
from tvm_xengine.frontends.initialise import initialised
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.naming_builder import NamingBlockBuilder, UniqueNames, identifier
from tvm_xengine.frontends.onnx.constants import fold_constants
from tvm_xengine.frontends.onnx.converters import CONVERTERS
from tvm_xengine.frontends.onnx.rewrites import (
    bind_batch,
    materialise_filled_weights,
    set_norm_modes,
    write_padding,
)
from tvm_xengine.relax_ir.types import Array


def load_model_file(path: Path) -> onnx.ModelProto:
    """The model in a file."""
    if not path.is_file():
        raise UnsupportedModelError(f"there is no file {path}")
    try:
        model = onnx.load(str(path))
    except Exception as error:
        raise UnsupportedModelError(
            f"{path} is not an ONNX model: {str(error).strip() or type(error).__name__}"
        ) from error
    if not model.graph.node:
        raise UnsupportedModelError(f"{path} is not an ONNX model: it has no nodes")
    return model


def import_model(
    name: str,
    model: onnx.ModelProto,
    *,
    batch_size: int | None,
    train_norms: bool,
    initialise_seed: int | None,
) -> ForwardModel:
    """The forward model of an ONNX model, which is not changed."""
    prepared = onnx.ModelProto()
    prepared.CopyFrom(model)
    graph = prepared.graph
    opset = next((o.version for o in prepared.opset_import if o.domain in ("", "ai.onnx")), 1)
    if unknown := _unknown_nodes(graph):
        raise UnsupportedModelError(
            f"{name}: {len(unknown)} ops of the graph are unknown: {', '.join(unknown)}"
        )
    bind_batch(name, prepared, batch_size)
    materialise_filled_weights(graph)
    fold_constants(prepared)
    write_padding(prepared)
    set_norm_modes(graph, train=train_norms)
    values = _values(graph)
    importer = _Importer()
    complaints = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(complaints):
            warnings.simplefilter("ignore")
            mod = importer.from_onnx(graph, opset)
    except Exception as error:
        raise UnsupportedModelError(
            f"{name}: {importer.place} cannot be imported: {_first_line(error)}"
        ) from error
    trainable = {one for one, value in values.items() if _is_parameter(value)}
    model_with_values = assemble(name, mod, values, trainable)
    if initialise_seed is None:
        return model_with_values
    return initialised(model_with_values, initialise_seed)


def _values(graph: onnx.GraphProto) -> dict[str, Array]:
    """The initialisers by identifier; they are renamed in the graph."""
    names = UniqueNames()
    renamed = {
        tensor.name: names.fresh(identifier(tensor.name))
        for tensor in [*graph.input, *graph.initializer]
        if tensor.name
    }
    for tensor in [*graph.input, *graph.initializer]:
        tensor.name = renamed.get(tensor.name, tensor.name)
    for node in graph.node:
        for position, read in enumerate(node.input):
            node.input[position] = renamed.get(read, read)
    for output in graph.output:
        output.name = renamed.get(output.name, output.name)
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}


class _Importer(ONNXGraphImporter):  # type: ignore[misc]
    """TVM's importer, with bindings named after the nodes of the graph."""

    def __init__(self) -> None:
        super().__init__({}, "float32", keep_params_in_input=True, sanitize=False)
        self.bb = NamingBlockBuilder()
        self.place = "the graph"

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """Nothing: `_unknown_nodes` has looked, which knows our converters, too."""

    def _convert_operator(
        self, op_name: str, inputs: list[relax.Expr], attrs: dict[str, object], opset: int
    ) -> relax.Expr:
        custom = attrs["tvm_custom"]
        node = str(custom["name"]) if isinstance(custom, dict) else ""
        self.bb.layer = _layer(node, op_name)
        self.place = f"{op_name} (in {self.bb.layer})"
        if op_name in CONVERTERS:
            value = self._converted(op_name, inputs, attrs)
        else:
            value = super()._convert_operator(op_name, inputs, attrs, opset)
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self._bound(field) for field in value.fields])
        return self._bound(value)

    def _converted(
        self, op_name: str, inputs: list[relax.Expr], attrs: dict[str, object]
    ) -> relax.Expr:
        """By our converter; what the file says is no parameter is a constant to it."""
        known = [
            self._nodes,
            {k: v for k, v in self._params.items() if not _is_parameter(v[1].numpy())},
        ]
        read = [None if one is None else get_constant(one, known) for one in inputs]
        value = CONVERTERS[op_name](self.bb, read, attrs)
        custom = attrs["tvm_custom"]
        count = custom["num_outputs"] if isinstance(custom, dict) else 1
        if isinstance(value, relax.Tuple):
            return value.fields[0] if count == 1 else relax.Tuple(value.fields[:count])
        return value

    def _bound(self, value: relax.Expr) -> relax.Expr:
        if isinstance(value, relax.Call | relax.TupleGetItem):
            return self.bb.emit(value)
        return value


def _is_parameter(value: Array) -> bool:
    return value.dtype.kind == "f" and value.ndim > 0


def _unknown_nodes(graph: onnx.GraphProto) -> list[str]:
    """The nodes that have no importer: operator and layer of each."""
    known = {name for name, convert in _get_convert_map().items() if convert is not None}
    known |= {"Constant", "If", *CONVERTERS}
    return [
        f"{node.op_type} (in {_layer(node.name or node.output[0], node.op_type)})"
        for node in graph.node
        if node.op_type not in known
    ]


def _layer(node: str, op_name: str) -> str:
    """``/layer1/0/conv1/Conv`` becomes ``layer1_0_conv1``."""
    parts = [part for part in node.split("/") if part]
    if len(parts) > 1 and parts[-1].split("_")[0] == op_name:
        parts = parts[:-1]
    return identifier("_".join(parts)) if parts else op_name.lower()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
