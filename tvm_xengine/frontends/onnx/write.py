"""Trained tensors in the ONNX file that the model came from."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from tvm_xengine.checks.names import some
from tvm_xengine.errors import InvalidStateError
from tvm_xengine.frontends.onnx.graphs.functions import all_nodes
from tvm_xengine.frontends.onnx.graphs.rewrites import lift_weights, write_constants_as_tensors
from tvm_xengine.frontends.onnx.graphs.separate import (
    hoist_initialisers,
    separate_merged,
    tie_copies,
)
from tvm_xengine.frontends.onnx.importer import load_model_file


def with_tensors(path: Path, state: Mapping[str, NDArray[Any]]) -> bytes:
    """The file at `path` with the tensors of `state` as its initializers, by their names.

    Raises
    ------
    UnsupportedModelError
        If it is no ONNX file.
    InvalidStateError
        If it has no tensor of a name, or one of another shape.
    """
    model = load_model_file(path)
    graph = model.graph
    if _missing_in(graph, state):
        hoist_initialisers(graph)
        write_constants_as_tensors(graph)
        lift_weights(graph)
        separate_merged(graph)
    tied = {copy for copy, _ in tie_copies(graph)}
    state = {name: value for name, value in state.items() if name not in tied}
    _remove_unread(graph, tied)
    if missing := _missing_in(graph, state):
        raise InvalidStateError(f"{path} has no tensors {some(missing)}; is it of another model?")
    for tensor in graph.initializer:
        if tensor.name not in state:
            continue
        value, old = np.asarray(state[tensor.name]), numpy_helper.to_array(tensor)
        if value.shape != old.shape:
            raise InvalidStateError(
                f"{tensor.name} must have shape {old.shape}, the state has {value.shape}"
            )
        tensor.CopyFrom(numpy_helper.from_array(value.astype(old.dtype), tensor.name))
    return bytes(model.SerializeToString())


def _remove_unread(graph: onnx.GraphProto, names: AbstractSet[str]) -> None:
    """Remove those of `names` that no operator reads any more; they hold untrained values."""
    read = {name for node in all_nodes(graph) for name in node.input}
    kept = [each for each in graph.initializer if each.name not in names - read]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _missing_in(graph: onnx.GraphProto, state: Mapping[str, object]) -> list[str]:
    """The tensors of a state that are no initializers."""
    names = {tensor.name for tensor in graph.initializer}
    return [name for name in state if name not in names]
