"""Files of trained tensors, by the model author's names."""

from __future__ import annotations

import io
import pickle
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tvm_xengine.aot.package.checkpoint_file import (
    HEADER_BYTES,
    SUFFIX,
    check_beginning,
    decoded,
)
from tvm_xengine.checks.arguments import checked
from tvm_xengine.checks.regular_file import require_regular_file
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
    return _own(_read(Path(path)))


def read_state_of(path: Path, model: Iterable[Array]) -> dict[str, Array]:
    """The same for a model with these tensors; a file that is far larger than they are is not read.

    Raises
    ------
    InvalidStateError
        If it is that large, does not exist, or cannot be read.
    """
    return _own(_read(path, most_state_bytes(model)))


def most_state_bytes(tensors: Iterable[Array]) -> int:
    """What a file with these tensors takes at most, in wider types and with an optimizer's moments."""
    return _MOST_COPIES * sum(tensor.nbytes for tensor in tensors) + _MOST_OTHER_BYTES


def check_state_file(path: Path) -> None:
    """Look at how a file begins and ends, before the model is loaded whose state it holds.

    Raises
    ------
    InvalidStateError
        If it does not exist, or is no file that `read_state` reads.
    """
    with _refusing(path):
        require_regular_file(path)
        _CHECKS.get(path.suffix.lower(), _check_safetensors)(path)


def _own(tensors: dict[str, Array]) -> dict[str, Array]:
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


def _read(path: Path, most_bytes: int | None = None) -> dict[str, Array]:
    check_state_file(path)
    with _refusing(path):
        content = read_bytes(path, most_bytes)
        # Checkpoints of runs are safetensors, whatever they are called.
        return _READERS.get(path.suffix.lower(), _from_safetensors)(content)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Each library has errors of its own for damaged files."""
    is_known = path.suffix.lower() in _READERS
    expected = "" if is_known else f"; expected a checkpoint of a run, or one of {_KNOWN}"
    try:
        yield
    except MissingPackageError:
        raise
    except OSError as error:
        raise InvalidStateError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:
        raise InvalidStateError(
            f"{path} holds no tensors that can be read: {error}{expected}"
        ) from error


def _check_safetensors(path: Path) -> None:
    from tvm_xengine.state.safetensors_file import check_header

    check_header(path)


def _check_zip(path: Path) -> None:
    if not zipfile.is_zipfile(path):
        raise ValueError("it is no zip file")


def _check_torch(path: Path) -> None:
    with path.open("rb") as file:
        begin = file.read(1)
    if begin not in (_ZIP, _PICKLE):
        raise ValueError("it is no file of torch.save")


def _check_package(path: Path) -> None:
    with path.open("rb") as file:
        check_beginning(file.read(HEADER_BYTES), path.stat().st_size)


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
_CHECKS: Mapping[str, Callable[[Path], None]] = {
    ".pt": _check_torch,
    ".npz": _check_zip,
    SUFFIX: _check_package,
}
_ZIP, _PICKLE = b"P", b"\x80"
"""How what `torch.save` writes begins, and what it wrote before PyTorch 1.6."""

_MOST_COPIES = 8
"""A tensor and two moments of it, in float64 in place of float32, and names and padding beside them."""
_MOST_OTHER_BYTES = 1 << 26
"""Of what a model does not take, which is refused by name."""

_READERS: Mapping[str, Callable[[bytes], dict[str, Array]]] = {
    ".safetensors": _from_safetensors,
    ".pt": _from_torch,
    ".npz": _from_npz,
    SUFFIX: _from_package,
}
_KNOWN = ", ".join(_READERS)
