"""Tensors in the safetensors format, bfloat16 included, which the package's own numpy reader lacks."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import deserialize, safe_open

from tvm_xengine.relax_ir.types import Array

_TYPES = {
    **{
        f"{kind}{bits}": f"{name}{bits}"
        for kind, name in (("I", "int"), ("U", "uint"))
        for bits in (8, 16, 32, 64)
    },
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "BF16": ml_dtypes.bfloat16,
    "BOOL": "bool",
    "C64": "complex64",
}
"""Types of numpy by their names in a file."""


def check_header(path: Path) -> None:
    """Read the header of a file, which says how long the file is; what `decoded` raises for a damaged one."""
    with safe_open(path, framework="np"):
        pass


def decoded(content: bytes) -> dict[str, Array]:
    """The tensors of a file by name, in memory of its own that is not written to.

    Raises
    ------
    ValueError
        If a tensor has elements of a type that numpy does not have.
    SafetensorError
        If it is no such file.
    """
    tensors: dict[str, Array] = {}
    for name, found in deserialize(content):  # type: ignore[no-untyped-call]
        dtype = _TYPES.get(found["dtype"])
        if dtype is None:
            raise ValueError(f"{name} has elements of the type {found['dtype']}")
        tensors[name] = np.frombuffer(found["data"], dtype).reshape(found["shape"])
    return tensors


def metadata_of(content: bytes) -> dict[str, str]:
    """The texts beside the tensors of a file that `decoded` takes, by name.

    Eight bytes say how long the header is, a JSON object behind them.
    """
    size = int.from_bytes(content[:8], "little")
    return dict(json.loads(content[8 : 8 + size]).get("__metadata__", {}))
