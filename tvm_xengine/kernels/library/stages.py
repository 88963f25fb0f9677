"""The functions that a library runs, in order, for a call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One function of a library.

    Attributes
    ----------
    implementation
        The library's name of its code, such as ``brg:avx512_core``.
    is_copy
        Whether it only copies a tensor into another layout.
    tensors_bytes
        Of its operands and results in their layouts, padding included.
    """

    implementation: str
    is_copy: bool
    tensors_bytes: int
