"""One entry point for all front ends."""

from __future__ import annotations

from pathlib import Path

from tvm_xengine.checks.model_files import no_model
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends import zoo
from tvm_xengine.frontends.initialise import initialised
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.onnx.read import from_onnx
from tvm_xengine.frontends.torch.read import from_torch_export

DEFAULT_BATCH_SIZE = 16
"""Samples in a batch where neither the file nor the user says; chosen."""


def load_model(
    spec: str,
    *,
    batch_size: int | None = None,
    size: int | None = None,
    num_classes: int | None = None,
    draw_weights: bool = False,
    seed: int = 0,
) -> ForwardModel:
    """The forward model that a command line names: a zoo network, a .onnx or a .pt2 file.

    Parameters
    ----------
    batch_size
        None takes the file's own, and `DEFAULT_BATCH_SIZE` for a zoo network. A .pt2 file has
        its batch size fixed; another one is refused.
    size, num_classes
        As in `zoo.build`; refused for a file, which fixes them.
    draw_weights
        Draw random weights (`initialised`), for model files without trained ones.
        The weights of a zoo network are always drawn.
    seed
        Of the weights that are drawn.
    """
    suffix = Path(spec).suffix.lower()
    if suffix not in (".onnx", ".pt2"):
        _check_in_zoo(spec)
        return zoo.build(
            spec,
            batch_size=batch_size or DEFAULT_BATCH_SIZE,
            size=size,
            num_classes=num_classes,
            seed=seed,
        )
    if size is not None or num_classes is not None:
        raise UnsupportedModelError(
            f"{spec}: size and number of classes are fixed in the file; only zoo networks take them"
        )
    model = from_onnx(spec, batch_size=batch_size) if suffix == ".onnx" else from_torch_export(spec)
    if batch_size is not None and model.batch_size != batch_size:
        raise UnsupportedModelError(
            f"{spec} was exported for batches of {model.batch_size}, not {batch_size}"
        )
    return initialised(model, seed) if draw_weights else model


def _check_in_zoo(spec: str) -> None:
    try:
        zoo.spec_called(spec)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(no_model(spec, zoo.NETWORKS)) from error
