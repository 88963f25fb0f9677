"""Models in ONNX files."""

from __future__ import annotations

from pathlib import Path

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel


def from_onnx(
    path: str | Path,
    *,
    batch_size: int | None = None,
    initialise_seed: int | None = None,
) -> ForwardModel:
    """The forward model in an ONNX file.

    What operators do with the tensors of the file decides which are trained
    (`tvm_xengine.frontends.onnx.author.roles.decide_roles`); the model's ``roles`` tell what and why,
    its ``notes`` what the file cannot tell, and ``with_trained`` changes it.

    Parameters
    ----------
    batch_size
        What to bind the leading dimension of every input to; None keeps the one in the file.
    initialise_seed
        Seed of random weights (He's distribution); None keeps the values in the file.
    """
    try:
        from tvm_xengine.frontends.onnx.importer import import_model, load_model_file
    except ModuleNotFoundError as error:
        raise UnsupportedModelError(
            "reading a .onnx file needs onnx: pip install 'tvm-xengine[onnx]'"
        ) from error
    file = Path(path)
    return import_model(
        file.stem,
        load_model_file(file),
        batch_size=batch_size,
        initialise_seed=initialise_seed,
    )
