"""The Python packages that this one needs or can use, and their versions."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import requires

from packaging.requirements import Requirement

from tvm_xengine.checks.packages import installed_version
from tvm_xengine.doctor.check import Check, State, in_child

_OURS = "tvm-xengine"
_DEVELOPMENT = ("dev", "docs", "networks", "test")
"""Extras for work on this package itself; their absence is no lack."""
_LOADED: Mapping[str, str] = {
    "apache-tvm": "import tvm; tvm.target.Target('llvm')",
    "numpy": "import numpy",
    "llvmlite": "import llvmlite.binding",
    "numba": "import numba",
    "onednn-cpu-gomp": (
        "from tvm_xengine.kernels.onednn.library import load_onednn; load_onednn()"
    ),
    "onnx": "import onnx",
    "torch": "import torch; torch.zeros(1) + 1",
    "xgboost": "import xgboost",
}
"""What shows that a package with native code works here."""


def package_checks() -> Iterator[Check]:
    """This package, Python, and every package that it names."""
    yield Check("versions", _OURS, State.WORKS, installed_version(_OURS) or "not installed")
    yield Check("versions", "python", State.WORKS, platform.python_version(), is_required=True)
    for text in requires(_OURS) or ():
        requirement = Requirement(text)
        extra = _extra(requirement)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if applies and extra not in _DEVELOPMENT:
            yield package_check(requirement, extra)


def package_check(requirement: Requirement, extra: str) -> Check:
    """Whether a package is installed in a version that is allowed, and can be loaded.

    Parameters
    ----------
    extra
        The extra that names it; empty for what is always needed.
    """
    name, is_required = requirement.name, not extra
    area = "libraries" if is_required else f"optional: {extra}"
    remedy = (
        f'pip install "{_OURS}[{extra}]"'
        if extra
        else f'pip install "{name}{requirement.specifier}"'
    )
    found = installed_version(name)
    if found is None:
        return Check(area, name, State.MISSING, "not installed", is_required, remedy)
    if not requirement.specifier.contains(found, prereleases=True):
        detail = f"{found}, and {requirement.specifier} is needed"
        return Check(area, name, State.BROKEN, detail, is_required, remedy)
    if name in _LOADED:
        works, said = in_child(_LOADED[name])
        if not works:
            detail = f"{found} cannot be loaded: {said}"
            return Check(area, name, State.BROKEN, detail, is_required, remedy)
    return Check(area, name, State.WORKS, found, is_required)


def _extra(requirement: Requirement) -> str:
    """The extra in a requirement's marker; empty without one."""
    _, _, behind = str(requirement.marker or "").partition("extra == ")
    return behind.strip('")')
