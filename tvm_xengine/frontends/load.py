"""One door to all front ends."""

from __future__ import annotations

from pathlib import Path

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends import zoo
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.onnx import from_onnx
from tvm_xengine.frontends.torch import from_torch_export

DEFAULT_BATCH_SIZE = 16


def load_model(spec: str, *, batch_size: int | None = None, seed: int = 0) -> ForwardModel:
    """The forward model that a command line names: a zoo network, a .onnx or a .pt2 file.

    Parameters
    ----------
    batch_size
        None takes the file's own, and `DEFAULT_BATCH_SIZE` for a zoo network. A .pt2 file has
        its batch size fixed; another one is refused.
    seed
        Of the initial parameters of a zoo network.
    """
    suffix = Path(spec).suffix
    if suffix == ".onnx":
        return from_onnx(spec, batch_size=batch_size)
    if suffix == ".pt2":
        model = from_torch_export(spec)
        if batch_size is not None and model.batch_size != batch_size:
            raise UnsupportedModelError(
                f"{spec} was exported for batches of {model.batch_size}, not {batch_size}"
            )
        return model
    if spec in zoo.NETWORKS:
        return zoo.build(spec, batch_size=batch_size or DEFAULT_BATCH_SIZE, seed=seed)
    raise UnsupportedModelError(
        f"{spec!r} is neither a .onnx nor a .pt2 file nor in the zoo ({', '.join(zoo.NETWORKS)})"
    )
