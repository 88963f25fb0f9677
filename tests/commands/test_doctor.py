"""``doctor`` reports as text, as JSON and by its exit code."""

from __future__ import annotations

import json

import pytest

from tests.commands.in_process import run_command
from tvm_xengine.doctor.check import Check, State
from tvm_xengine.doctor.diagnosis import Diagnosis


@pytest.mark.slow
def test_the_installation_that_runs_the_tests_is_healthy() -> None:
    done = run_command("doctor", "--json", "-")
    document = json.loads(done.stdout)
    alarming = [
        one
        for one in document["checks"]
        if one["is_required"] and one["state"] in ("missing", "broken")
    ]
    assert not alarming
    assert (done.returncode, document["is_healthy"]) == (0, True)
    named = {one["name"] for one in document["checks"]}
    assert {"highs", "scip", "gurobi", "cp-sat", "apache-tvm", "processor", "cortex-m4"} <= named


def test_something_required_that_is_broken_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = Check("solvers", "highs", State.BROKEN, "does not start", is_required=True)
    monkeypatch.setattr(
        "tvm_xengine.commands.run.doctor.diagnose_installation", lambda _: Diagnosis((broken,))
    )
    done = run_command("doctor")
    assert done.returncode == 1
    assert "not working: highs" in done.stdout
