"""Tensors and layers that are called like a keyword of Python.

PyTorch decomposes a program by writing it as Python code, in which ``self.in.weight`` is no expression.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from torch.export import ExportedProgram


@contextmanager
def keywords_respelled(
    program: ExportedProgram,
) -> Iterator[Callable[[ExportedProgram], ExportedProgram]]:
    """Call such tensors of a program otherwise for a while.

    Yields what gives the tensors of a program that is made meanwhile their own names.
    """
    new = _spellings([*program.state_dict, *program.constants])
    old = {made: name for name, made in new.items()}

    def restored(made: ExportedProgram) -> ExportedProgram:
        _rename(made, old)
        return made

    _rename(program, new)
    try:
        yield restored
    finally:
        _rename(program, old)


def _spellings(names: list[str]) -> dict[str, str]:
    """Other names, by those that have a keyword among their parts."""
    taken = {part for name in names for part in name.split(".")}
    tail = "_"
    while any(f"{word}{tail}" in taken for word in keyword.kwlist):
        tail += "_"
    spelt = {
        name: ".".join(
            f"{part}{tail}" if keyword.iskeyword(part) else part for part in name.split(".")
        )
        for name in names
    }
    return {name: other for name, other in spelt.items() if name != other}


def _rename(program: ExportedProgram, names: Mapping[str, str]) -> None:
    if not names:
        return
    program._state_dict = {names.get(key, key): one for key, one in program.state_dict.items()}
    program._constants = {names.get(key, key): one for key, one in program.constants.items()}
    signature = program.graph_signature
    for spec in (*signature.input_specs, *signature.output_specs):
        if spec.target is not None:
            spec.target = names.get(spec.target, spec.target)
