"""The models that the onnx package brings along, weights drawn at random."""

from __future__ import annotations

from pathlib import Path

import onnx
import torch

from tests.networks.network import Network, Setting, Subject
from tests.networks.onnx_in_torch import run_graph
from tests.networks.rewritten import as_float64, without_dropout
from tvm_xengine.frontends.assemble import without_final_softmax
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.naming_builder import identifier
from tvm_xengine.frontends.onnx.read import from_onnx

_SIZE = 224


def light_model(name: str, *, batch: int = 2) -> Network:
    """One of the models under ``onnx/backend/test/data/light``; their images are 224 x 224."""
    path = Path(onnx.__file__).parent / "backend/test/data/light" / f"light_{name}.onnx"

    def published(setting: Setting) -> ForwardModel:
        model = from_onnx(path, batch_size=setting.batch, initialise_seed=0)
        return without_final_softmax(model)

    def subject(setting: Setting, dtype: torch.dtype) -> Subject:
        model = without_dropout(published(setting))
        if dtype is torch.float64:
            model = as_float64(model)
        leaves = {
            key: torch.from_numpy(value.copy()).requires_grad_()
            for key, value in model.parameters.items()
        }
        return Subject(model, leaves, _Graph(onnx.load(path).graph, leaves))

    return Network(
        name,
        "onnx light",
        published,
        subject,
        full=Setting(8, _SIZE),
        checked=Setting(batch, _SIZE),
        is_imported_twice=True,
    )


class _Graph:
    """An ONNX graph up to its final softmax as a function of its input."""

    def __init__(self, graph: onnx.GraphProto, leaves: dict[str, torch.Tensor]) -> None:
        self._graph = graph
        outputs = {output for node in graph.node for output in node.output}
        made = {tensor.name for tensor in graph.initializer} | outputs
        (self._input,) = {one.name for one in graph.input} - made
        self._weights = {
            name: leaves[identifier(name)] for name in made if identifier(name) in leaves
        }
        last = graph.node[-1]
        self._result = last.input[0] if last.op_type == "Softmax" else last.output[0]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return run_graph(self._graph, {self._input: x, **self._weights}, self._result)
