"""The programs of the documentation run."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    if "transformers" in path.read_text(encoding="utf-8"):
        pytest.importorskip("transformers", reason="needs the extra networks")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_at_most_fifteen_lines_of_code(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    assert sum(bool(line.strip()) for line in lines) <= 15
