"""External weights of an ONNX model: only from files below the model's folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from onnx import external_data_helper

from tvm_xengine.errors import UnsupportedModelError


def load_external_data(path: Path, model: onnx.ModelProto) -> None:
    """Read the external data of `model`, which was loaded from `path` without them.

    Raises
    ------
    UnsupportedModelError
        If a tensor lies outside the model's folder (an absolute path, ``..``, a link that leads out),
        beyond its file, or its file is missing.
    """
    folder = path.parent.resolve()
    stored = [one for one in _of_model(model) if external_data_helper.uses_external_data(one)]
    for tensor in stored:
        _check(path, folder, tensor)
    for tensor in stored:
        external_data_helper.load_external_data_for_tensor(tensor, str(folder))
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _of_model(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from _of_graph(model.graph)
    for function in model.functions:
        yield from _of_nodes(function.node)
    for info in model.training_info:
        yield from (*_of_graph(info.initialization), *_of_graph(info.algorithm))


def _of_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
            for inner in (attribute.g, *attribute.graphs):
                yield from _of_graph(inner)


def _check(path: Path, folder: Path, tensor: onnx.TensorProto) -> None:
    fields = {entry.key: entry.value for entry in tensor.external_data}
    location = fields.get("location", "")
    file = Path(location)
    where = f"{path}: the data of {tensor.name!r} are in {location!r}"
    if (
        not location
        or file.is_absolute()
        or "\\" in location
        or "\0" in location
        or not (folder / file).resolve().is_relative_to(folder)
    ):
        raise UnsupportedModelError(
            f"{where}, outside the model's folder; only files below it are read"
        )
    if not (folder / file).is_file():
        raise UnsupportedModelError(f"{where}, and there is no such file in the model's folder")
    size_bytes = (folder / file).stat().st_size
    try:
        offset, length = int(fields.get("offset") or 0), int(fields.get("length") or 0)
    except ValueError as error:
        raise UnsupportedModelError(f"{where}, at a place that is no number: {error}") from error
    if min(offset, length) < 0 or offset + length > size_bytes:
        raise UnsupportedModelError(
            f"{where} at {offset}..{offset + length}, but the file has {size_bytes} bytes"
        )
