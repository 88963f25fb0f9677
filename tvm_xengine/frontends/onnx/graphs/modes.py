"""Whether batch norms and dropouts of a graph work as in training."""

from __future__ import annotations

import onnx
from onnx import helper, numpy_helper

from tvm_xengine.frontends.onnx.graphs.constants import constant_tensors


def of_inference(graph: onnx.GraphProto) -> dict[str, int]:
    """The operators that a file has in inference mode because all of it is for that, and how many.

    Of a file with a norm or a dropout in training mode there are none: it means the mode of each.
    """
    known = constant_tensors(graph)
    nodes = [node for node in graph.node if node.op_type in _TOLD]
    if any(_is_in_training(node, known) for node in nodes):
        return {}
    counts = dict.fromkeys((node.op_type for node in nodes), 0)
    for node in nodes:
        counts[node.op_type] += 1
    return counts


_TOLD = {
    "BatchNormalization": "batch norms, which train with the statistics of the batch",
    "Dropout": "dropouts, which drop elements",
}


def told(counts: dict[str, int]) -> str:
    """What becomes of operators of a file for inference in a training step, for a note."""
    kinds = " and ".join(f"{count} {_TOLD[kind]}" for kind, count in counts.items())
    return (
        f"the file is for inference and has {kinds}; where they shall stay as in inference, use"
        " torch.export with them in evaluation mode"
    )


def _is_in_training(node: onnx.NodeProto, known: dict[str, onnx.TensorProto]) -> bool:
    """By its attribute or input; of a norm before opset 14, by its further results."""
    if node.op_type == "Dropout":
        mode = known.get("".join(node.input[2:3]))
        return mode is not None and bool(numpy_helper.to_array(mode).any())
    return len(node.output) > 1 or any(a.name == "training_mode" and a.i for a in node.attribute)


def set_modes(graph: onnx.GraphProto, *, train: bool) -> None:
    """Put batch norms and dropouts into training mode where asked; else each does what the file says.

    ONNX weighs the old statistics with `momentum`; Relax, like PyTorch, the new ones, which TVM's
    importer does not convert.
    """
    known = constant_tensors(graph)
    read = {name for node in graph.node for name in node.input}
    read |= {output.name for output in graph.output}
    for node in graph.node:
        training = train or _is_in_training(node, known)
        if node.op_type == "Dropout" and not training and len(node.output) == 1:
            node.op_type = "Identity"
            del node.input[1:], node.attribute[:]
        if node.op_type != "BatchNormalization":
            continue
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        momentum = 1 - attributes.get("momentum", 0.9)
        epsilon = attributes.get("epsilon", 1e-5)
        del node.attribute[:]
        node.attribute.extend(
            [
                helper.make_attribute("epsilon", float(epsilon)),
                helper.make_attribute("momentum", float(momentum)),
                helper.make_attribute("training_mode", int(training)),
            ]
        )
        if not training or read.isdisjoint(node.output[1:]):
            del node.output[1:]
