"""All checks of the installation together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from tvm_xengine.doctor.check import Check
from tvm_xengine.doctor.machine import (
    cache_checks,
    compiler_checks,
    gpu_checks,
    processor_checks,
)
from tvm_xengine.doctor.packages import package_checks
from tvm_xengine.doctor.solver_backends import backend_checks


@dataclass(frozen=True)
class Diagnosis:
    """What was looked at, in the order in which people read it."""

    checks: tuple[Check, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether all that is required works."""
        return not any(check.is_alarming for check in self.checks)

    def document(self) -> dict[str, object]:
        """The checks as plain values."""
        rows = [{**asdict(check), "state": check.state.value} for check in self.checks]
        return {"is_healthy": self.is_healthy, "checks": rows}


def diagnose_installation(on_progress: Callable[[str], None] | None = None) -> Diagnosis:
    """Look at packages, solvers, the processor, compilers and caches.

    Parameters
    ----------
    on_progress
        Told what is being looked at.
    """
    checks: list[Check] = []
    areas: tuple[tuple[str, Callable[[], Iterator[Check]]], ...] = (
        ("packages", package_checks),
        ("solvers", backend_checks),
        ("the processor", processor_checks),
        ("the GPU", gpu_checks),
        ("compilers", compiler_checks),
        ("caches", cache_checks),
    )
    for name, look in areas:
        if on_progress is not None:
            on_progress(f"looking at {name}")
        checks += look()
    return Diagnosis(tuple(checks))
