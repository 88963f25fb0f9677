"""One door to all front ends."""

from __future__ import annotations

from pathlib import Path

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends import zoo
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.onnx import from_onnx
from tvm_xengine.frontends.torch import from_torch_export


def load_model(spec: str, *, batch_size: int) -> ForwardModel:
    """The forward model that a command line names: a zoo network, a .onnx or a .pt2 file.

    A .pt2 file has its batch size fixed, which must then be `batch_size`.
    """
    suffix = Path(spec).suffix
    if suffix == ".onnx":
        return from_onnx(spec, batch_size=batch_size)
    if suffix == ".pt2":
        model = from_torch_export(spec)
        if model.batch_size != batch_size:
            raise UnsupportedModelError(
                f"{spec} was exported for batches of {model.batch_size}, not {batch_size}"
            )
        return model
    if spec in zoo.NETWORKS:
        return zoo.build(spec, batch_size=batch_size)
    raise UnsupportedModelError(
        f"{spec!r} is neither a .onnx nor a .pt2 file nor in the zoo ({', '.join(zoo.NETWORKS)})"
    )
