"""What a budget may be given as, and what it means on a platform."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tvm_xengine.compiler.options import Budgets
from tvm_xengine.errors import (
    InvalidPlatformError,
)
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.sizes import MOST_RATIO, parse_bytes

_LEAST_BYTES = 64
"""Tensors are aligned to so many bytes; a whole number below it was meant as a ratio."""

BudgetLike = str | int | float | Mapping[str, str | int] | None
"""Bytes (``"512MiB"``) of the home device, or by device; a float is a ratio, None no limit."""


def check_budget(budget: BudgetLike) -> None:
    """Refuse what is no budget on any platform.

    Raises
    ------
    ValueError
        If a size cannot be read, a ratio is negative or not finite, or a whole number is so small that a
        ratio must have been meant.
    """
    if isinstance(budget, float | np.floating):
        if not 0 <= budget < float("inf"):
            raise ValueError(f"expected a budget ratio of at least 0, got {budget}")
        if budget > MOST_RATIO:
            raise ValueError(
                f"a float is a ratio of what keep-all needs, and {budget:g} is none; a size in bytes is a"
                f" whole number: budget={budget:.0f}"
            )
        return
    if isinstance(budget, int | np.integer) and 0 <= budget < _LEAST_BYTES:
        raise ValueError(
            f"a whole number is a size in bytes, and {budget} B hold no tensor; a ratio is a float:"
            f" budget={float(budget)}"
        )
    sizes = budget.values() if isinstance(budget, Mapping) else () if budget is None else (budget,)
    for size in sizes:
        try:
            parse_bytes(size)
        except ValueError as error:
            raise ValueError(f"budget: {error}") from None


def budgets_of(budget: BudgetLike, platform: Platform) -> Budgets:
    """The budgets that an argument describes.

    Raises
    ------
    InvalidPlatformError
        If a single size is given for several devices, or a device is unknown.
    """
    check_budget(budget)
    if budget is None:
        return Budgets()
    if isinstance(budget, float | np.floating):
        return Budgets(ratio=float(budget))
    if isinstance(budget, Mapping):
        budgets = Budgets(device_bytes={name: parse_bytes(size) for name, size in budget.items()})
    elif len(platform.computing) > 1:
        names = ", ".join(device.name for device in platform.computing)
        raise InvalidPlatformError(
            f"the platform has several devices that compute ({names}); say whose budget"
            f" {budget!r} is, such as {{{platform.home!r}: {budget!r}}}"
        )
    else:
        budgets = Budgets(device_bytes={platform.computing[0].name: parse_bytes(budget)})
    budgets.check(platform)
    return budgets
