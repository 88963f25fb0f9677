"""A diagnosis as a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from tvm_xengine.doctor.check import Check, State
from tvm_xengine.doctor.diagnosis import Diagnosis
from tvm_xengine.explain.words.framed import framed

_STYLE = {
    State.WORKS: "green",
    State.LIMITED: "yellow",
    State.MISSING: "dim",
    State.BROKEN: "red",
}


def shown(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    """One table by area, what is missing with its command, and a last sentence."""
    table = framed()
    for column in ("", "", "state", "detail"):
        table.add_column(column, overflow="fold")
    area = ""
    for check in diagnosis.checks:
        told = "" if check.area == area else check.area
        if told and area:
            table.add_section()
        area = check.area
        table.add_row(told, Text(check.name), _state(check), _detail(check))
    yield table
    alarming = [check.name for check in diagnosis.checks if check.is_alarming]
    if alarming:
        yield Text(f"Required, and not working: {', '.join(alarming)}.", "bold red")
    else:
        yield Text("Everything that is required works.")


def _state(check: Check) -> Text:
    style = "bold red" if check.is_alarming else _STYLE[check.state]
    return Text(check.state.value, style)


def _detail(check: Check) -> Text:
    return Text(f"{check.detail}\n{check.remedy}" if check.remedy else check.detail)
