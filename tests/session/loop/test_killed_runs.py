"""A run that is killed at any moment goes on with the losses of a run that is not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("moments", [4, 200])
def test_every_resumed_run_has_the_losses_of_one_in_one_go(
    cache: Path, tmp_path: Path, moments: int
) -> None:
    command = [sys.executable, "-m", "tests.session.loop.killed_runs", str(tmp_path)]
    command += ["--cache", str(cache), "--moments", str(moments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(
        r"killed (\d+) \(while writing (\d+)\) finished \d+ losses (\d+) equal", done.stdout.strip()
    )
    assert found is not None, done.stdout
    killed, writing, losses = map(int, found.groups())
    assert killed == moments
    assert writing
    assert losses
