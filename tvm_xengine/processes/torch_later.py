"""PyTorch is loaded by what needs it, not by TVM."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_IMPORT_TORCH = ("tvm", "tvm_ffi")
"""TVM 0.27 and its foreign function interface import PyTorch where it is installed, which takes two
seconds of three and a half: one for a class that is not used here, the other for the order in which
libraries are loaded on Windows."""


def load_torch_later() -> None:
    """Hide PyTorch from TVM while that is imported; whoever imports it later gets it.

    For processes that belong to this package. Does nothing where PyTorch or TVM has been imported,
    and on Windows.
    """
    if sys.platform != "win32" and not {"torch", *_IMPORT_TORCH} & sys.modules.keys():
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds those that import PyTorch."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _IMPORT_TORCH:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None and sys.modules.get("torch") is None:
            spec.loader = _WithoutTorch(spec.loader)
        return spec


class _WithoutTorch(Loader):
    """Loads a module that finds no PyTorch."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        loaded: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
        is_outermost = "torch" not in loaded
        loaded["torch"] = None  # how Python says that there is none
        try:
            self._loader.exec_module(module)
        finally:
            if is_outermost:
                del loaded["torch"]
