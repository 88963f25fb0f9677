"""Options of a command that is started again for other devices."""

from __future__ import annotations

from collections.abc import Collection, Sequence

_OF_DEVICES = {"--pin": -1, "--budget": 0}
"""Options whose values name a device, and on which side of the equals sign."""


def option_value(command: Sequence[str], name: str) -> str | None:
    """The value of an option; None where it is not given."""
    for token, following in zip(command, [*command[1:], ""], strict=True):
        option, equals, value = token.partition("=")
        if option == name and (value or following):
            return value if equals else following
    return None


def with_option(command: Sequence[str], name: str, value: str) -> list[str]:
    """The command with another value of an option."""
    kept: list[str] = []
    skips = False
    for token in command:
        if not skips and token.partition("=")[0] != name:
            kept.append(token)
        skips = not skips and token == name
    return [*kept, name, value]


def without_devices(command: Sequence[str], names: Collection[str]) -> list[str]:
    """The command without the values of options that name one of the devices."""
    kept: list[str] = []
    option = ""
    for token in command:
        name, _, value = token.partition("=")
        if token.startswith("-"):
            option = name
        else:
            value = token
        side = _OF_DEVICES.get(option)
        if side is not None and value and value.split("=")[side] in names:
            continue
        kept.append(token)
    return [
        token
        for token, following in zip(kept, [*kept[1:], "-"], strict=True)
        if not (token in _OF_DEVICES and following.startswith("-"))
    ]
