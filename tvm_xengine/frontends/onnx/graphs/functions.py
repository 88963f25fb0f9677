"""Expansion of operators that ONNX defines by simpler ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import onnx
from onnx import defs, helper, inliner

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.graphs.shapes import inferred

_BODIES = "tvm_xengine.bodies"
"""The domain of the definitions while they are put in place of their nodes."""

_OTHER_IN_TVM = frozenset({("", "Attention"), ("ai.onnx", "Attention")})
"""Operators for which TVM's importer has another one of the same name: Microsoft's attention."""


def write_out_own_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without functions of its own."""
    if not model.functions:
        return model
    return inliner.inline_local_functions(model, convert_version=True)


def write_out_functions(model: onnx.ModelProto, kept: Collection[str]) -> onnx.ModelProto:
    """The model without operators that are not in `kept`.

    Operators stay that ONNX does not define by others, and those whose definition needs types
    that cannot be inferred.

    Parameters
    ----------
    kept
        Names of the operators that have a converter.
    """
    while True:
        types = _types(model)
        written = [
            node
            for node in all_nodes(model.graph)
            if (node.op_type not in kept or (node.domain, node.op_type) in _OTHER_IN_TVM)
            and _write_out(model, node, types)
        ]
        if not written:
            return model
        model = _inlined(model, types)


def _inlined(model: onnx.ModelProto, types: Mapping[str, onnx.TypeProto]) -> onnx.ModelProto:
    """The model with its functions in place of their calls.

    Definitions may be of an older operator set, and to convert them takes the types of all tensors.
    """
    used = opset_of(model)
    versions = {
        (one.version, function.name.rpartition("_")[0])
        for function in model.functions
        for one in function.opset_import
        if not one.domain and one.version != used
    }
    if not versions:
        return inliner.inline_local_functions(model)
    graph = model.graph
    told = {one.name for one in (*graph.input, *graph.value_info, *graph.output)}
    graph.value_info.extend(
        helper.make_value_info(name, kind) for name, kind in types.items() if name not in told
    )
    try:
        return inliner.inline_local_functions(model, convert_version=True)
    except RuntimeError as error:
        version, name = max(versions)
        raise UnsupportedModelError(
            f"the definition of {name} by other operators is of operator set {version}, and cannot be"
            f" converted to {used}, that of the file; export for operator set {version}"
        ) from error


def _write_out(
    model: onnx.ModelProto, node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]
) -> bool:
    """Make a node the call of a function of the model; False for what has no body."""
    opset = opset_of(model, node.domain)
    try:
        schema = defs.get_schema(node.op_type, opset, node.domain)
    except defs.SchemaError:
        return False
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.name:
            node.attribute.append(attribute.default_value)
    body = _body(schema, node, types, opset)
    if body is None:
        return False
    body.domain, body.name = _BODIES, f"{node.op_type}_{len(model.functions)}"
    node.domain, node.op_type = body.domain, body.name
    model.functions.append(body)
    if all(one.domain != _BODIES for one in model.opset_import):
        model.opset_import.append(helper.make_opsetid(_BODIES, 1))
    return True


def _body(
    schema: defs.OpSchema, node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto], opset: int
) -> onnx.FunctionProto | None:
    """The newest definition by other operators that a version of the operator set has."""
    if schema.has_function:
        versions = [version for version in schema.function_opset_versions if version <= opset]
        if versions:
            body = schema.get_function_with_opset_version(max(versions))
            return onnx.FunctionProto.FromString(body)
    versions = [
        version for version in schema.context_dependent_function_opset_versions if version <= opset
    ]
    read = [types.get(name, onnx.TypeProto()) for name in node.input]
    if not versions or any(
        name and not one.HasField("tensor_type") for name, one in zip(node.input, read, strict=True)
    ):
        return None
    body = schema.get_context_dependent_function_with_opset_version(
        max(versions), node.SerializeToString(), [one.SerializeToString() for one in read]
    )
    return onnx.FunctionProto.FromString(body) if body else None


def _types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """The types of all tensors that can be inferred."""
    graph = inferred(model)
    known = {
        tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        for tensor in graph.initializer
    }
    for info in [*graph.input, *graph.value_info, *graph.output]:
        known[info.name] = info.type
    return known


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of the graphs inside its nodes."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_nodes(attribute.g)


def reads_of(node: onnx.NodeProto) -> list[str]:
    """The tensors that a node reads, those included that its inner graphs take from around it."""
    read = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.HasField("g"):
            graph = attribute.g
            own = {one.name for one in (*graph.input, *graph.initializer)}
            own |= {made for one in graph.node for made in one.output}
            inner = [*(name for one in graph.node for name in reads_of(one))]
            read += [name for name in inner if name not in own]
    return read


def opset_of(model: onnx.ModelProto, domain: str = "") -> int:
    """The version of an operator set that a model uses; 1 if it names none."""
    names = ("", "ai.onnx") if domain in ("", "ai.onnx") else (domain,)
    return next((int(o.version) for o in model.opset_import if o.domain in names), 1)
