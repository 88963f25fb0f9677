"""What the files of all build systems say of a package."""

from __future__ import annotations

from tvm_xengine.aot.package.contents import INTERFACE, Package

VERSION = f"{INTERFACE}.0.0"
"""Of the library: a program that compiled with another first number may no longer do."""

SOURCE_OPTIONS = ("-fno-strict-aliasing", "-ffp-contract=off")
"""One byte of an arena holds values of several types; a fused multiply-add rounds otherwise."""


def summary(package: Package) -> str:
    """One sentence."""
    return f"{package.name}: neural network with training on the device, in plain C"
