"""The programs of the documentation run."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".py", ".sh"))
OPTIONAL = ("transformers", "torchvision")

# torchvision may lack the binary for this build of torch; its models do not use it.
WITH_TORCHVISION = """
import runpy, sys
from tests.networks.torchvision_models import torchvision_models
torchvision_models()
runpy.run_path(sys.argv[1])
"""


def command(path: Path) -> list[str]:
    if path.suffix == ".sh":
        return ["sh", str(path)]
    if "torchvision" in path.read_text(encoding="utf-8"):
        return [sys.executable, "-c", WITH_TORCHVISION, str(path)]
    return [sys.executable, str(path)]


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for package in OPTIONAL:
        if package in text and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: it is in the extra networks")
    places = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{FOLDER.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    done = subprocess.run(
        command(path), capture_output=True, text=True, cwd=tmp_path, env={**os.environ, **places}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_at_most_fifteen_lines_of_code(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    code = [line for line in lines if line.strip() and not line.startswith("#")]
    assert 0 < len(code) <= 15
