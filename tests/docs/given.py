"""Files that a page takes for granted: a reader's own model and data, as small as they can be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

SCHEMAS = Path(__file__).parents[2] / "docs" / "reference" / "schemas"


def make(name: str, folder: Path) -> None:
    """Write the file of this name into the folder.

    Raises
    ------
    KeyError
        If no such file is known.
    """
    _MAKERS[name](folder / name)


def _onnx(path: Path) -> None:
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    torch.onnx.export(model, (torch.rand(16, 8),), path, dynamo=False)


def _pt2(path: Path) -> None:
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    torch.export.save(torch.export.export(model, (torch.rand(16, 8),)), path)


def _npz(path: Path) -> None:
    x = np.random.default_rng(0).random((64, 8), dtype=np.float32)
    np.savez(path, x=x, y=x.sum(1, keepdims=True))


def _scores(path: Path) -> None:
    path.write_text("conv1 = 0.1\nconv2 = 0.4\nfc1 = 2.0\nfc2 = 1.0\nfc3 = 1.5\n")


def _schema(path: Path) -> None:
    path.write_bytes((SCHEMAS / path.name).read_bytes())


_MAKERS: dict[str, Callable[[Path], None]] = {
    "model.onnx": _onnx,
    "model.pt2": _pt2,
    "data.npz": _npz,
    "scores.toml": _scores,
    "report-estimate.schema.json": _schema,
}
