"""The programs of the documentation run."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".py", ".sh"))
PROJECTS = sorted(path.parent for path in FOLDER.glob("*/main.py"))
OPTIONAL = ("transformers", "torchvision")
PROGRAMS = {
    "gcc": ("gcc",),
    "espeak-ng": ("espeak-ng",),
    "on_device": ("arm-none-eabi-gcc", "qemu-system-arm"),
}
"""What a project that contains the word runs."""

# torchvision may lack the binary for this build of torch; its models do not use it.
WITH_TORCHVISION = """
import runpy, sys
from tests.networks.models.torchvision_models import torchvision_models
torchvision_models()
runpy.run_path(sys.argv[1])
"""


def command(path: Path) -> list[str]:
    if path.suffix == ".sh":
        return ["sh", str(path)]
    if "torchvision" in path.read_text(encoding="utf-8"):
        return [sys.executable, "-c", WITH_TORCHVISION, str(path)]
    return [sys.executable, str(path)]


def printed_by(program: list[str], folder: Path) -> str:
    places = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{FOLDER.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    done = subprocess.run(
        program, capture_output=True, text=True, cwd=folder, env={**os.environ, **places}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for package in OPTIONAL:
        if package in text and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: it is in the extra networks")
    assert printed_by(command(path), tmp_path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_at_most_fifteen_lines(path: Path) -> None:
    assert 0 < len(path.read_text(encoding="utf-8").splitlines()) <= 15


def skip_without_programs(text: str) -> None:
    """Skip, visibly, where a program is missing that a project with this text runs."""
    for needed, programs in PROGRAMS.items():
        if missing := [name for name in programs if needed in text and shutil.which(name) is None]:
            pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.mark.slow
@pytest.mark.parametrize("folder", PROJECTS, ids=lambda folder: folder.name)
def test_a_project_agrees_with_pytorch(folder: Path, tmp_path: Path) -> None:
    skip_without_programs((folder / "main.py").read_text(encoding="utf-8"))
    printed = printed_by([sys.executable, str(folder / "main.py")], tmp_path)
    assert printed.splitlines()[-1].startswith("parity with PyTorch: losses differ by at most")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["image_fine_tuning", "keyword_spotting"])
def test_a_device_learns_on_an_int8_backbone(name: str, tmp_path: Path) -> None:
    """As many test samples are right as in PyTorch's float32, within five per cent."""
    main = FOLDER / name / "main.py"
    skip_without_programs(main.read_text(encoding="utf-8"))
    printed = printed_by([sys.executable, str(main), "--frozen", "int8"], tmp_path)
    before = re.search(r"Before: .* \((\d+) %\)", printed)
    after = re.search(r"After: .* \((\d+) %\)", printed)
    exact = re.search(r"PyTorch recognises (\d+)% after the same steps", printed)
    assert before and after and exact
    assert int(before[1]) + 20 < int(after[1])
    assert int(after[1]) >= int(exact[1]) - 5


def test_every_project_has_a_readme_that_the_list_names() -> None:
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert len(PROJECTS) >= 6
    for folder in PROJECTS:
        title = (folder / "README.md").read_text(encoding="utf-8").splitlines()[0]
        assert (
            f"| [{folder.name}]({folder.name}/README.md) | {title.removeprefix('# ')} |" in listed
        )
