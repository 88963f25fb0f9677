"""Types of command-line values, with the sentences that refuse wrong ones."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter, Token

from tvm_xengine.checks.model_files import MOST_SHOWN, no_model
from tvm_xengine.commands.arguments.names import NETWORK_NAMES
from tvm_xengine.commands.arguments.parameter import shown_as
from tvm_xengine.commands.completion import offered
from tvm_xengine.scheduling.sizes import MOST_RATIO, parse_bytes

MOST_COUNT = 2**31 - 1
"""Steps, batches, sizes and seeds are 32-bit numbers in kernels and backends."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""Python also reads digits of other scripts, _ between digits, and blanks around."""

_Value = TypeVar("_Value")


def choice(names: Collection[str], placeholder: str = "NAME") -> Parameter:
    """A value that is one of `names`."""
    return shown_as(placeholder, choices=tuple(names))


def choices(names: Collection[str]) -> Parameter:
    """Values that are each one of `names`."""
    return shown_as(
        "NAME...", choices=tuple(names), consume_multiple=True, negative="", show_default=listed
    )


def listed(values: Sequence[object]) -> str:
    """Default values as a person would type them."""
    return " ".join(map(str, values))


def converted(convert: Callable[[str], _Value]) -> Callable[[Any, Sequence[Token]], _Value]:
    """A converter of a single token."""

    def converter(_type: Any, tokens: Sequence[Token]) -> _Value:
        return convert(tokens[0].value)

    return converter


def _each(convert: Callable[[str], _Value]) -> Callable[[Any, Sequence[Token]], tuple[_Value, ...]]:
    def converter(_type: Any, tokens: Sequence[Token]) -> tuple[_Value, ...]:
        try:
            return tuple(convert(token.value) for token in tokens)
        except ValueError as error:
            if len(tokens) == 1 or tokens[0].keyword is None:
                raise
            # Cyclopts names the option only where it takes one value.
            raise ValueError(f"invalid value for {tokens[0].keyword}: {error}") from error

    return converter


def _shown(text: str) -> str:
    return repr(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}...")


def _whole(least: int, most: int = MOST_COUNT) -> Callable[[str], int]:
    def check(text: str) -> int:
        digits = text.removeprefix("+")
        is_whole = digits.isascii() and digits.isdigit() and len(digits) <= len(str(most))
        if not is_whole or not least <= int(digits) <= most:
            raise ValueError(
                f"expected a whole number of at least {least} and at most {most}, got {_shown(text)}"
            )
        return int(digits)

    return check


def _float(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        return math.nan
    return float(text)


def _path(text: str) -> Path:
    if not text:
        raise ValueError("expected a path, got ''")
    return Path(text)


def _source(text: str) -> str:
    _path(text)
    return text


def _page(text: str) -> Path:
    if Path(text).suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"expected a file that ends in .html, got {_shown(text)}")
    return Path(text)


def model(text: str) -> str:
    """A model file or a network of the zoo, told apart before a compiler is loaded."""
    is_file = Path(text).suffix.lower() in (".onnx", ".pt2", ".toml")
    if is_file or text.replace("-", "_") in NETWORK_NAMES:
        return text
    raise ValueError(no_model(text, NETWORK_NAMES))


def _replicas(text: str) -> int | str | dict[str, int]:
    """A number of devices, auto, or the samples of each of them."""
    if text == "auto":
        return text
    if "=" not in text:
        return _whole(2)(text)
    pairs = [one.partition("=") for one in text.split(",")]
    return {device: _whole(1)(count) for device, _, count in pairs}


def _positive(text: str) -> float:
    value = _float(text)
    if not 0 < value < math.inf:
        raise ValueError(f"expected a number above 0, got {_shown(text)}")
    return value


def _not_negative(text: str) -> float:
    value = _float(text)
    if not 0 <= value < math.inf:
        raise ValueError(f"expected a number of at least 0, got {_shown(text)}")
    return value


def _ratio(text: str) -> float:
    value = _float(text)
    if not 0 <= value <= MOST_RATIO:
        raise ValueError(f"expected a number of at least 0 and at most 1000000, got {_shown(text)}")
    return value


def _share(text: str) -> float:
    value = _float(text)
    if not 0 <= value < 1:
        raise ValueError(f"expected a number of at least 0 and below 1, got {_shown(text)}")
    return value


def _size(text: str) -> int:
    size_bytes = parse_bytes(text)
    if size_bytes == 0:
        raise ValueError("expected more than 0 bytes")
    return size_bytes


def _device_size(text: str) -> tuple[str, int]:
    device, equals, size = text.partition("=")
    if not (device and equals):
        raise ValueError(f"expected DEVICE=BYTES such as cpu=2MiB, got {_shown(text)}")
    try:
        return device, _size(size)
    except ValueError as error:
        raise ValueError(f"{device}: {error}") from error


def _device_sizes(_type: Any, tokens: Sequence[Token]) -> tuple[tuple[str, int], ...]:
    return _each_once(_each(_device_size)(_type, tokens), tokens)


def _pin(text: str) -> tuple[str, str]:
    pattern, equals, device = text.rpartition("=")
    if not (pattern and equals and device):
        raise ValueError(f"expected PATTERN=DEVICE such as 'conv*=cpu', got {_shown(text)}")
    return pattern, device


_STEP_UNITS = {
    "time": {"us": 1.0, "ms": 1e3, "s": 1e6},
    "energy": {"uJ": 1.0, "mJ": 1e3, "J": 1e6},
}
"""Microseconds and microjoules of the units that limits of a step are given in."""
_LIMIT = re.compile(r"(time|energy)=([0-9.eE+-]+)([a-zA-Z]+)")


def _step_limit(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    if name == "trials" and value:
        return name, _whole(1)(value)
    match = _LIMIT.fullmatch(text)
    unit = None if match is None else _STEP_UNITS[match[1]].get(match[3])
    if match is None or unit is None:
        raise ValueError(
            "expected time=20ms (us, ms, s), energy=5mJ (uJ, mJ, J) or trials=60, got"
            f" {_shown(text)}; memory is limited by --arena-bytes, --regions or --platform"
        )
    return name, unit * _positive(match[2])


def _step_limits(_type: Any, tokens: Sequence[Token]) -> tuple[tuple[str, float], ...]:
    return _each_once([_step_limit(token.value) for token in tokens], tokens)


def _each_once(
    pairs: Sequence[tuple[str, _Value]], tokens: Sequence[Token]
) -> tuple[tuple[str, _Value], ...]:
    names = [name for name, _ in pairs]
    if double := next((name for name in names if names.count(name) > 1), None):
        # Cyclopts names the option only where it takes one value.
        raise ValueError(f"option {tokens[0].keyword}: {double} is given twice")
    return tuple(pairs)


def _betas(_type: Any, tokens: Sequence[Token]) -> tuple[float, ...]:
    try:
        return tuple(_share(token.value) for token in tokens)
    except ValueError as error:  # Cyclopts names the option only where it takes one value
        raise ValueError(f"invalid value for --betas: {error}") from error


def _check_any(_type: Any, values: Sequence[object]) -> None:
    if not values:
        raise ValueError("expected at least one value")


_MANY: dict[str, Any] = {
    "consume_multiple": True,
    "negative": "",
    "n_tokens": -1,
    "show_default": False,
}

Count = Annotated[int, shown_as("N", converter=converted(_whole(1)), n_tokens=1)]
Natural = Annotated[int, shown_as("N", converter=converted(_whole(0)), n_tokens=1)]
AtLeastTwo = Annotated[int, shown_as("N", converter=converted(_whole(2)), n_tokens=1)]
Counts = Annotated[tuple[int, ...], shown_as("N...", converter=_each(_whole(1)), **_MANY)]
Positive = Annotated[float, shown_as("X", converter=converted(_positive), n_tokens=1)]
NotNegative = Annotated[float, shown_as("X", converter=converted(_not_negative), n_tokens=1)]
Ratio = Annotated[float, shown_as("R", converter=converted(_ratio), n_tokens=1)]
Ratios = Annotated[
    tuple[float, ...],
    shown_as("R...", converter=_each(_ratio), validator=_check_any, **_MANY),
]
Share = Annotated[float, shown_as("X", converter=converted(_share), n_tokens=1)]
Betas = Annotated[tuple[float, ...], shown_as("X X", converter=_betas, n_tokens=2, negative="")]
ByteSize = Annotated[int, shown_as("BYTES", converter=converted(_size), n_tokens=1)]
Replicas = Annotated[
    int | str | dict[str, int],
    shown_as("N|auto|DEVICE=N,...", converter=converted(_replicas)),
]
DeviceBytes = Annotated[
    tuple[tuple[str, int], ...],
    shown_as("DEVICE=BYTES...", converter=_device_sizes, **_MANY),
]
StepLimits = Annotated[
    tuple[tuple[str, float], ...],
    shown_as("LIMIT...", converter=_step_limits, **_MANY),
]
Pins = Annotated[
    tuple[tuple[str, str], ...],
    shown_as("PATTERN=DEVICE...", converter=_each(_pin), **_MANY),
]
Patterns = Annotated[
    tuple[str, ...],
    shown_as("PATTERN...", consume_multiple=True, negative="", show_default=False),
]
Texts = Annotated[
    tuple[str, ...],
    shown_as("NAME...", consume_multiple=True, negative="", show_default=False),
]
Text = Annotated[str, shown_as("NAME")]
File = Annotated[Path, shown_as("FILE", converter=converted(_path))]
PageFile = Annotated[Path, shown_as("FILE", converter=converted(_page))]
Folder = Annotated[Path, shown_as("DIR", converter=converted(_path))]
Source = Annotated[
    str, shown_as("SOURCE", converter=converted(_source), completer=offered("digits"))
]
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
