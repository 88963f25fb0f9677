"""Checks that refuse a model before the import, each with the reason."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx
from onnx import TensorProto
from tvm import relax

from tvm_xengine.checks.operators import ONNX_ADVICE, located
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.naming_builder import identifier
from tvm_xengine.frontends.onnx.graphs.functions import all_nodes, opset_of
from tvm_xengine.frontends.onnx.graphs.shapes import element_types, inferred
from tvm_xengine.relax_ir.types import is_static

VALUES_DECIDE_SHAPE: Mapping[str, str] = {
    "NonMaxSuppression": "boxes that it selects",
    "NonZero": "elements that are not zero",
    "Unique": "different elements",
}
"""Operators whose results have as many elements as their input has ... ."""

_DRAWN = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform"}
    | {"RandomUniformLike"}
)

_DOMAINS = ("", "ai.onnx", "com.microsoft")
"""Of operators whose names mean what ONNX defines; Microsoft's attention is told apart elsewhere."""

_TYPES = frozenset(
    {"FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "BOOL"}
    | {f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
)
"""Element types that TVM's kernels get right: of 8-bit floats it reads 0 as another number."""


def require_tensors(model: onnx.ModelProto) -> None:
    """Refuse inputs and outputs that are no tensors of numbers, missing or doubled, and negative lengths.

    Opsets that come later than the installed onnx have unknown rules.
    """
    newest = onnx.defs.onnx_opset_version()
    if (opset := opset_of(model)) > newest:
        raise UnsupportedModelError(
            f"the graph is of opset {opset}, the installed onnx knows up to {newest}; export it with"
            " an earlier one, or install a newer onnx"
        )
    if not model.graph.output:
        raise UnsupportedModelError("the graph has no outputs; export the model with one")
    names = [info.name for info in model.graph.input]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UnsupportedModelError(
            f"the graph has several inputs of the name {twice[0]!r}; give each its own"
        )
    for tensor in model.graph.initializer:
        if any(dim < 0 for dim in tensor.dims):
            raise UnsupportedModelError(
                f"the tensor {tensor.name!r} has the shape {tuple(tensor.dims)}; no length is negative, so"
                " the file is damaged: export the model again"
            )
    for info in [*model.graph.input, *model.graph.output]:
        kind = info.type.WhichOneof("value")
        if kind not in (None, "tensor_type"):
            raise UnsupportedModelError(
                f"{info.name} is a {kind.removesuffix('_type')}; inputs and outputs must be tensors"
            )
    for info in model.graph.input:
        if info.type.tensor_type.elem_type == TensorProto.UNDEFINED:
            raise UnsupportedModelError(
                f"the input {info.name!r} has no element type; export the model again"
            )


def require_lengths(graph: onnx.GraphProto) -> None:
    """Refuse inputs of negative lengths, which are what some exporters write for an open batch."""
    for info in graph.input:
        dims = tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
        if min(dims, default=0) < 0:
            raise UnsupportedModelError(
                f"the input {info.name!r} has the shape {dims}; no length is negative: give the batch size,"
                " or export the model with fixed lengths"
            )


def require_made(model: onnx.ModelProto) -> None:
    """Refuse nodes that read what is neither given nor made before them."""
    graph, opset = model.graph, opset_of(model)
    given = [*graph.input, *graph.initializer]
    made = {
        "",
        *(one.name for one in given),
        *(one.values.name for one in graph.sparse_initializer),
    }
    for node in graph.node:
        missing = [name for name in node.input if name not in made]
        layer = layer_name(node.name or "".join(node.output[:1]), node.op_type)
        if (lacked := _lacked(node, opset)) is not None:
            raise UnsupportedModelError(
                f"{node.op_type} (in {layer}) lacks its input {lacked}; export the model again"
            )
        if missing:
            raise UnsupportedModelError(
                f"{node.op_type} (in {layer}) reads the tensor {missing[0]!r}, which is no input, no"
                " initialiser and not made by a node before it; export the model again, with its weights"
            )
        made.update(node.output)


def _lacked(node: onnx.NodeProto, opset: int) -> str | None:
    """The first input without which the operator has no meaning, and that the node leaves out."""
    if _is_of_others(node) or not onnx.defs.has(node.op_type, opset):
        return None
    formal = onnx.defs.get_schema(node.op_type, opset).inputs
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    given = [*node.input, *[""] * len(formal)]
    return next(
        (
            one.name
            for one, name in zip(formal, given, strict=False)
            if one.option == single and not name
        ),
        None,
    )


def require_known_types(model: onnx.ModelProto) -> None:
    """Refuse tensors of strings, complex numbers and numbers of less than a byte."""
    found = element_types(model)
    for node in inferred(model).node:
        if node.op_type == "Constant":
            found[node.output[0]] = node.attribute[0].t.data_type
    for name, code in found.items():
        if (
            code != TensorProto.UNDEFINED
            and (kind := TensorProto.DataType.Name(code)) not in _TYPES
        ):
            raise UnsupportedModelError(
                f"the tensor {name!r} holds {kind}; known are {', '.join(sorted(_TYPES))}"
            )


def require_known_operators(model: onnx.ModelProto, known: Collection[str]) -> None:
    """Refuse nodes that have no converter, all at once, each with its layer."""
    reasons: dict[str, list[tuple[str, str]]] = {}
    for node in all_nodes(model.graph):
        if node.op_type not in known or _is_of_others(node):
            layer = layer_name(node.name or node.output[0], node.op_type)
            reasons.setdefault(_reason(node), []).append((node.op_type, layer))
    if reasons:
        count = sum(len(nodes) for nodes in reasons.values())
        told = "; ".join(f"{located(nodes)}: {reason}" for reason, nodes in reasons.items())
        raise UnsupportedModelError(f"{count} ops of the graph cannot be imported: {told}")


def _is_of_others(node: onnx.NodeProto) -> bool:
    """Whether a node only has the name of an operator of ONNX: converters go by names."""
    return node.domain not in _DOMAINS and onnx.defs.has(node.op_type)


def _reason(node: onnx.NodeProto) -> str:
    if node.op_type in VALUES_DECIDE_SHAPE:
        return (
            f"the shape of its result depends on the number of {VALUES_DECIDE_SHAPE[node.op_type]};"
            " every shape must be known beforehand: choose by Where, or outside of the model"
        )
    if node.op_type in _DRAWN:
        return (
            "it draws random numbers, which a recomputation would not repeat: make them an input of"
            " the model"
        )
    if node.op_type == "If":
        return (
            "its condition is computed and must follow from constants and shapes: export one of the"
            " branches"
        )
    if node.op_type in ("Loop", "Scan"):
        return (
            "its number of iterations is computed and must follow from constants and shapes: export"
            " with a fixed number"
        )
    domain = f" of {node.domain}" if node.domain not in ("", "ai.onnx") else ""
    return f"the operator{domain} has no converter: {ONNX_ADVICE}"


def require_fixed_shapes(func: relax.Function) -> None:
    """Refuse a function that makes a tensor whose shape is not known."""
    for block in func.body.blocks:
        for binding in block.bindings:
            kinds = [binding.var.ty]
            while kinds:
                kind = kinds.pop()
                if isinstance(kind, relax.TupleType):
                    kinds += list(kind.fields)
                elif isinstance(kind, relax.TensorType) and not is_static(kind):
                    raise UnsupportedModelError(
                        f"{binding.var.name} makes {kind}, whose shape is computed; "
                        "every shape must follow from the shapes of the inputs and from constants"
                    )
                elif isinstance(kind, relax.ShapeType):
                    continue  # tensors whose shape it gives are looked at themselves
                elif not isinstance(kind, relax.TensorType):
                    raise UnsupportedModelError(
                        f"{binding.var.name} makes a {type(kind).__name__}; it must be a tensor"
                    )


def layer_name(node: str, op_name: str) -> str:
    """``/layer1/0/conv1/Conv`` becomes ``layer1_0_conv1``."""
    parts = [part for part in node.split("/") if part]
    if len(parts) > 1 and parts[-1].split("_")[0] == op_name:
        parts = parts[:-1]
    return identifier("_".join(parts)) if parts else op_name.lower()
