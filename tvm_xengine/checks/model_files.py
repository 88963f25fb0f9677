"""What is no model file, and what to give instead."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tvm_xengine.checks.names import meant
from tvm_xengine.checks.regular_file import require_regular_file
from tvm_xengine.errors import UnsupportedModelError

MOST_SHOWN = 40
"""So many characters of a wrong value stand in a message."""

_OF_PYTORCH = (".pt", ".pth", ".bin", ".ckpt", ".safetensors")
"""Endings of files with the weights of a module, which do not say what it computes."""


def require_file(path: Path) -> None:
    """Refuse a path without a file that can be read."""
    try:
        require_regular_file(path)
    except FileNotFoundError as error:
        raise UnsupportedModelError(f"there is no file {path}") from error
    except OSError as error:
        raise UnsupportedModelError(f"cannot read {path}: {error.strerror}") from error


def no_model(text: str, networks: Collection[str]) -> str:
    """The sentence on a text that names no model."""
    shown = repr(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}...")
    if Path(text).suffix.lower() in _OF_PYTORCH:
        return (
            f"{shown} is no model file: such files hold weights, and not what is computed with them; load"
            " them into the module, and save torch.export.export(module, inputs) as .pt2"
        )
    return (
        f"{shown} is neither a .onnx nor a .pt2 file nor in the zoo ({', '.join(networks)})"
        f"{meant(text, networks)}"
    )
