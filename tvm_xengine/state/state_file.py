"""Files of trained tensors, by the model author's names."""

from __future__ import annotations

import io
import pickle
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tvm_xengine.aot.package.checkpoint_file import SUFFIX, decoded
from tvm_xengine.checks.arguments import checked
from tvm_xengine.errors import InvalidStateError, MissingPackageError
from tvm_xengine.files.archives import DAMAGED_ZIP, read_arrays
from tvm_xengine.files.atomic_write import write_bytes_atomically
from tvm_xengine.files.read_text import read_bytes
from tvm_xengine.frontends.torch.arrays import to_array, to_tensor
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.training.saved_names import OF_MODEL


@checked
def write_state(state: Mapping[str, Any], path: str | Path) -> None:
    """Write tensors to a ``.safetensors``, ``.pt`` (a state_dict) or ``.npz`` file, whole or not at all.

    Parameters
    ----------
    state
        Tensors by name.
    path
        Its suffix selects the format.

    Raises
    ------
    InvalidStateError
        If the suffix is another one.
    MissingPackageError
        If a ``.pt`` file is wanted, and PyTorch is not installed.
    """
    path = Path(path)
    encode = _one_of(_WRITERS, path)
    arrays = {name: np.ascontiguousarray(value) for name, value in state.items()}
    # np.ascontiguousarray makes a vector of a scalar.
    shaped = {name: array.reshape(np.shape(state[name])) for name, array in arrays.items()}
    write_bytes_atomically(path, encode(shaped))


@checked
def read_state(path: str | Path) -> dict[str, Array]:
    """The tensors of a ``.safetensors``, ``.pt`` or ``.npz`` file, or of a checkpoint, by name.

    Nothing in the file is executed. Of a checkpoint, a package's (``.xecp``) too, the model's own
    tensors are returned.

    Parameters
    ----------
    path
        Its suffix selects the format; with any other suffix it is a checkpoint of a run.

    Raises
    ------
    InvalidStateError
        If it does not exist, or cannot be read.
    """
    tensors = _read(Path(path))
    own = {
        name.removeprefix(OF_MODEL): value
        for name, value in tensors.items()
        if name.startswith(OF_MODEL)
    }
    return own or tensors


def read_checkpoint_tensors(path: Path) -> dict[str, Array]:
    """All tensors of such a file by their names in checkpoints (`tvm_xengine.training.saved_names`).

    Raises
    ------
    InvalidStateError
        If it does not exist, or cannot be read.
    """
    tensors = _read(path)
    if any(name.startswith(OF_MODEL) for name in tensors):
        return tensors
    return {f"{OF_MODEL}{name}": value for name, value in tensors.items()}


def _read(path: Path) -> dict[str, Array]:
    # Checkpoints of runs are safetensors, whatever they are called.
    decode = _READERS.get(path.suffix.lower())
    expected = (
        "" if decode else f"; expected a checkpoint of a run, or one of {', '.join(_READERS)}"
    )
    try:
        content = read_bytes(path)
    except OSError as error:
        raise InvalidStateError(f"cannot read {path}: {error.strerror}") from error
    try:
        return (decode or _from_safetensors)(content)
    except MissingPackageError:
        raise
    except Exception as error:  # each library has errors of its own for damaged files
        raise InvalidStateError(
            f"{path} holds no tensors that can be read: {error}{expected}"
        ) from error


def check_state_path(path: str | Path) -> None:
    """Check that `write_state` knows the suffix of `path`.

    Raises
    ------
    InvalidStateError
        If it does not.
    """
    _one_of(_WRITERS, Path(path))


@checked
def write_onnx_state(state: Mapping[str, Array], model: str | Path, path: str | Path) -> None:
    """Write the ONNX file of a model with the tensors of `state` as its initializers.

    Tensors that an exporter merged or copied are separate, or tied, as in training.

    Parameters
    ----------
    state
        Tensors by the model's own names.
    model
        The ONNX file that was trained.
    path
        Where to write the trained one.

    Raises
    ------
    UnsupportedModelError
        If `model` is no ONNX file.
    InvalidStateError
        If `state` has a tensor that is unknown to the model, or of another shape.
    """
    try:
        from tvm_xengine.frontends.onnx.write import with_tensors
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "writing ONNX needs it: pip install 'tvm-xengine[onnx]'"
        ) from error
    write_bytes_atomically(Path(path), with_tensors(Path(model), state))


def _one_of(kinds: Mapping[str, Callable[..., Any]], path: Path) -> Callable[..., Any]:
    kind = kinds.get(path.suffix.lower())
    if kind is None:
        raise InvalidStateError(f"{path}: expected a file name that ends in {', '.join(kinds)}")
    return kind


def _to_safetensors(state: Mapping[str, Array]) -> bytes:
    from safetensors.numpy import save

    return bytes(save(dict(state)))


def _to_torch(state: Mapping[str, Array]) -> bytes:
    torch = _torch()
    file = io.BytesIO()
    torch.save({name: to_tensor(value) for name, value in state.items()}, file)
    return file.getvalue()


def _to_npz(state: Mapping[str, Array]) -> bytes:
    file = io.BytesIO()
    # numpy writes bfloat16 as bytes without a type; float32 holds its values.
    plain = {
        name: value.astype("float32") if str(value.dtype) == "bfloat16" else value
        for name, value in state.items()
    }
    np.savez(file, allow_pickle=False, **plain)
    return file.getvalue()


def _from_safetensors(content: bytes) -> dict[str, Array]:
    from tvm_xengine.state.safetensors_file import decoded as tensors_of

    return tensors_of(content)


def _from_torch(content: bytes) -> dict[str, Array]:
    torch = _torch()
    if _is_torchscript(content):
        raise ValueError("it holds TorchScript, which is code; save the state_dict() of the module")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickles that others have made
            state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # whose advice is to execute it
        raise ValueError(
            "it is damaged, or holds more than plain tensors, which would execute code of the file"
        ) from None
    if not isinstance(state, dict) or not all(torch.is_tensor(v) for v in state.values()):
        raise ValueError("expected a state_dict: tensors by name")
    return {str(name): to_array(value) for name, value in state.items()}


def _is_torchscript(content: bytes) -> bool:
    """Whether a file is an archive of TorchScript, which PyTorch would execute."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return any("/code/" in name for name in archive.namelist())
    except DAMAGED_ZIP:
        return False


def _from_npz(content: bytes) -> dict[str, Array]:
    return read_arrays(io.BytesIO(content))


def _from_package(content: bytes) -> dict[str, Array]:
    return dict(decoded(content).tensors)


def _torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "files of PyTorch need it: pip install 'tvm-xengine[torch]'"
        ) from error
    return torch


_WRITERS: Mapping[str, Callable[[Mapping[str, Array]], bytes]] = {
    ".safetensors": _to_safetensors,
    ".pt": _to_torch,
    ".npz": _to_npz,
}
_READERS: Mapping[str, Callable[[bytes], dict[str, Array]]] = {
    ".safetensors": _from_safetensors,
    ".pt": _from_torch,
    ".npz": _from_npz,
    SUFFIX: _from_package,
}
