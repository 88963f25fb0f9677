"""Printing of times such as ``1.638 ms``, and of what a solve minimises."""

from __future__ import annotations


def format_us(time_us: float) -> str:
    """A time with four digits and a unit that suits it."""
    if time_us < 1000:
        return f"{time_us:.4g} us"
    if time_us < 1e6:
        return f"{time_us / 1000:.4g} ms"
    return f"{time_us / 1e6:.4g} s"


def format_amount(value: float, unit: str) -> str:
    """A value of an objective, whose unit is ``us`` or ``uJ``."""
    return format_us(value) if unit == "us" else f"{value:.4g} {unit}"
