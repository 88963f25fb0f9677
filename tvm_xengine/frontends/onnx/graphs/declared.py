"""Types and shapes that a file declares of what its nodes compute."""

from __future__ import annotations

from dataclasses import dataclass

import onnx
from onnx import helper

from tvm_xengine.frontends.onnx.graphs.shapes import inferred


@dataclass(frozen=True)
class Corrections:
    """What the nodes of a file compute otherwise than it declares.

    Attributes
    ----------
    notes
        Of shapes.
    contradiction
        Of an element type. A node without a converter is refused first, then the file for this; empty if
        there is none.
    """

    notes: tuple[str, ...]
    contradiction: str


def correct_declared(model: onnx.ModelProto) -> Corrections:
    """Let what the nodes compute replace what the file declares otherwise; returns what was replaced."""
    graph = model.graph
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.ClearField("type")
    found = inferred(bare)
    computed = {info.name: info.type.tensor_type for info in [*found.value_info, *found.output]}
    given = {info.name for info in graph.input}
    notes, contradictions = [], []
    for info in [*graph.value_info, *graph.output]:
        made = computed.get(info.name)
        if made is None or info.name in given or not info.type.HasField("tensor_type"):
            continue
        declared = info.type.tensor_type
        if made.elem_type and declared.elem_type and made.elem_type != declared.elem_type:
            contradictions.append(
                f"the tensor {info.name!r} is declared as {_type(declared)}, but its node makes"
                f" {_type(made)}; export the model again"
            )
            declared.elem_type = made.elem_type
        if declared.HasField("shape") and made.HasField("shape") and _differ(declared, made):
            notes.append(
                f"the tensor {info.name!r} is declared to have the shape {_shape(declared)}, but its node"
                f" makes {_shape(made)}, which counts"
            )
            declared.shape.CopyFrom(made.shape)
    return Corrections(tuple(notes), next(iter(contradictions), ""))


def _differ(a: onnx.TypeProto.Tensor, b: onnx.TypeProto.Tensor) -> bool:
    """Whether two shapes contradict each other; a length that is open agrees with every other."""
    if len(a.shape.dim) != len(b.shape.dim):
        return True
    pairs = zip(a.shape.dim, b.shape.dim, strict=True)
    return any(
        x.HasField("dim_value") and y.HasField("dim_value") and x.dim_value != y.dim_value
        for x, y in pairs
    )


def _type(tensor: onnx.TypeProto.Tensor) -> str:
    return str(helper.tensor_dtype_to_string(tensor.elem_type)).removeprefix("TensorProto.").lower()


def _shape(tensor: onnx.TypeProto.Tensor) -> str:
    lengths = [
        str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"
        for dim in tensor.shape.dim
    ]
    return f"({', '.join(lengths)}{',' if len(lengths) == 1 else ''})"
