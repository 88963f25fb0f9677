"""The table of backends.

To add a backend, write a function that solves a `Program` (`SolveProgram`) and name it in `BACKENDS`,
or, from another package, in its entry points::

    [project.entry-points."tvm_xengine.backends"]
    mybackend = "my_package.backend:solve_program"

A backend of another package is given linear programs with integers, in a process of its own. The
schedule that its solution describes is validated; its bound is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import cast

from tvm_xengine.errors import ExtensionError, SolverUnavailableError
from tvm_xengine.extensions.extended import Extended, extended
from tvm_xengine.solvers.backends.answer import SolveProgram

BACKENDS: Mapping[str, str] = {
    "highs": "tvm_xengine.solvers.backends.highs:solve_program",
    "scip": "tvm_xengine.solvers.backends.scip:solve_program",
    "gurobi": "tvm_xengine.solvers.backends.gurobi:solve_program",
    "cp-sat": "tvm_xengine.solvers.backends.cpsat:solve_program",
}
"""The backends of this package by name: a function, imported where it is used."""

_PACKAGES = {
    "highs": ("highspy", "highspy"),
    "scip": ("pyscipopt", "pyscipopt"),
    "gurobi": ("gurobipy", "gurobipy"),
    "cp-sat": ("ortools", "'tvm-xengine[retention]'"),
}
"""The module that a backend of this package needs, and what pip installs it by."""

WITH_PRODUCTS = ("scip", "gurobi")
"""Backends that take products of columns; programs for the others are linear."""


def backends() -> Extended[str | SolveProgram]:
    """Every backend by name, those of other packages after `BACKENDS`."""
    return extended("tvm_xengine.backends", BACKENDS)


def require_installed(name: str) -> None:
    """Refuse a backend whose package is not installed, before the work that leads to its program.

    Raises
    ------
    SolverUnavailableError
        Says what to install.
    """
    module, package = _PACKAGES.get(name, ("", ""))
    if module and find_spec(module) is None:
        raise SolverUnavailableError(
            f"the backend {name} needs {module}, which is not installed; install it with"
            f" `pip install {package}`"
        )


def backend_function(name: str) -> SolveProgram:
    """The function of the backend with a name.

    Raises
    ------
    ExtensionError
        When another package names it and it cannot be loaded or called.
    """
    found = backends()[name]
    function = resolve_name(found) if isinstance(found, str) else found
    if not callable(function):
        raise ExtensionError(
            f"backend {name!r}: expected a function at its entry point, got {found!r}"
        )
    return cast("SolveProgram", function)
