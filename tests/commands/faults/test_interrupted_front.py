"""A front that is interrupted while it is solved ends with what there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Never

import pytest

from tests.commands.in_process import run_command
from tvm_xengine.commands.run import pareto as command
from tvm_xengine.planning.pareto import ParetoPoint
from tvm_xengine.solvers.result import StopReason


def test_no_other_form_is_looked_for_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver takes an interrupt, and returns what it has."""
    solved = command.pareto

    def interrupted(*given: Any, **options: Any) -> Sequence[ParetoPoint]:
        *points, last = solved(*given, **options)
        result = replace(last.result, stopped_by=StopReason.INTERRUPTED)
        return [*points, replace(last, result=result)]

    def begun(*_: object) -> Never:
        raise AssertionError("another form is looked for")

    monkeypatch.setattr(command, "pareto", interrupted)
    monkeypatch.setattr(command, "_in_other_form", begun)
    options = ("--costs", "roofline", "--ratios", "1", "0.9", "--time-limit", "2")
    finished = run_command("pareto", "mlp", *options)
    assert finished.returncode == 0
    assert "interrupted: 2 of 2 budgets were solved" in finished.stdout + finished.stderr
