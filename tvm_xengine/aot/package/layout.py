"""For which build system a package is laid out, and where its files then lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm_xengine.errors import ExportError


@dataclass(frozen=True)
class Layout:
    """The layout of a package.

    Attributes
    ----------
    source_folder
        Where the C files lie; empty for the package's own folder.
    test_folder
        Where the self-test lies, which an application must not compile.
    takes_objects
        Whether kernels may be an object file.
    prologue
        What every C file begins with.
    """

    name: str
    source_folder: str = ""
    test_folder: str = ""
    takes_objects: bool = False
    prologue: str = ""

    def source(self, file: str) -> str:
        """Where a C file lies in the package."""
        return f"{self.source_folder}/{file}" if self.source_folder else file

    def test(self, file: str) -> str:
        """Where a file of the self-test lies in the package."""
        return f"{self.test_folder}/{file}" if self.test_folder else file


# A library for Arduino cannot give options to the compiler, which is GCC there.
_OPTIONS = """\
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-strict-aliasing", "fp-contract=off")
#endif
"""
CMAKE = Layout("cmake", takes_objects=True)
# Arduino compiles everything in src, PlatformIO everything in src, and both leave `extras` alone.
LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout
    for layout in (
        CMAKE,
        Layout("zephyr"),
        Layout("arduino", "src", "extras", prologue=_OPTIONS),
        Layout("platformio", "src", "extras"),
        Layout("esp-idf"),
    )
}
"""Every layout, by name."""


def layout_called(name: str, *, has_objects: bool) -> Layout:
    """The layout called `name`.

    Raises
    ------
    ExportError
        If there is none, or it takes no object files.
    """
    if name not in LAYOUTS:
        raise ExportError(f"unknown layout {name!r}; expected one of {', '.join(LAYOUTS)}")
    layout = LAYOUTS[name]
    if has_objects and not layout.takes_objects:
        raise ExportError(
            f"the layout {name} compiles the kernels itself: take --backend c, or --layout cmake"
        )
    return layout
