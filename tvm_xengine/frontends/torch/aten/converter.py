"""The interface of converters from ATen operators to Relax."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tvm import relax

Builder: TypeAlias = relax.BlockBuilder
Expr: TypeAlias = relax.Expr

Converter = Callable[..., Expr | list[Expr]]
"""Takes a block builder and the arguments in the order of the operator's schema, defaults filled in,
and returns what the operator returns."""
