"""What the kernel calls of a lowered function were before fusion, by the names of variables."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax

_ORIGINS = "tvm_xengine.origins"


def read_origins(func: relax.Function) -> Mapping[str, tuple[str, ...]]:
    """For each fused call the variables of its parts, in their order; other calls are left out."""
    rows = func.attrs.get(_ORIGINS, {}) if func.attrs else {}
    return {str(name): tuple(map(str, parts)) for name, parts in rows.items()}


def write_origins(func: relax.Function, origins: Mapping[str, tuple[str, ...]]) -> relax.Function:
    """`func` with an attribute that states `origins`."""
    return func.with_attr(_ORIGINS, {name: list(parts) for name, parts in origins.items()})
