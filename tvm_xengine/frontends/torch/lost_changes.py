"""What forward changes in a module and an exported program does not hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn

_FLAG = "requires_grad"


@contextmanager
def changes_undone(module: nn.Module, changed: set[str]) -> Iterator[None]:
    """Undo what changes in plain values of a module's submodules and in ``requires_grad``.

    Parameters
    ----------
    changed
        Gets the names of what has changed.
    """
    before = _plain(module)
    yield
    now = _plain(module)
    for (path, name), value in before.items():
        if now.get((path, name), value) != value:
            is_flag = name == _FLAG
            owner = module.get_parameter(path) if is_flag else module.get_submodule(path)
            setattr(owner, name, value)
            changed.add(f"{path}.{name}".lstrip("."))


def notes_of(changed: Iterable[str]) -> list[str]:
    """A sentence about each of the names."""
    return [
        f"forward changes {name}, which a step does not follow; keep what changes in buffers, and set"
        " requires_grad before the step is made"
        for name in sorted(changed)
    ]


def _plain(module: nn.Module) -> dict[tuple[str, str], object]:
    values = {
        (path, name): value
        for path, one in module.named_modules()
        for name, value in vars(one).items()
        if isinstance(value, bool | int | float | str) and name != "training"
    }
    flags = {(name, _FLAG): one.requires_grad for name, one in module.named_parameters()}
    return {**values, **flags}
