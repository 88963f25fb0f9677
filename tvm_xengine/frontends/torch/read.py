"""Models saved by ``torch.export.save``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel

if TYPE_CHECKING:
    import torch


def from_torch_export(
    program: str | Path | torch.export.ExportedProgram, *, name: str | None = None
) -> ForwardModel:
    """The forward model of an exported program or of a ``.pt2`` file.

    Batch norms and dropout keep the mode that the module was exported in: call ``.train()`` on
    it before ``torch.export.export``.
    """
    try:
        from tvm_xengine.frontends.torch.importer import (
            import_exported_program,
            load_program,
        )
    except ModuleNotFoundError as error:
        raise UnsupportedModelError(
            "reading a .pt2 file needs PyTorch: pip install 'tvm-xengine[torch]'"
        ) from error
    if isinstance(program, str | Path):
        return import_exported_program(name or Path(program).stem, load_program(Path(program)))
    return import_exported_program(name or "model", program)
