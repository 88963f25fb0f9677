"""What is installed is what is there."""

import importlib.metadata
import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).parent.parent


def project() -> dict[str, dict[str, object]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_on_disk_is_listed() -> None:
    listed = set(project()["tool"]["setuptools"]["packages"])  # type: ignore[index]
    sources = {"tvm_xengine": ROOT / "tvm_xengine"}
    sources |= {f"tvm_xengine.{name}": ROOT / name for name in ("passes", "cost_models")}
    on_disk = set()
    for package, folder in sources.items():
        for init in folder.rglob("__init__.py"):
            parts = init.parent.relative_to(folder).parts
            on_disk.add(".".join((package, *parts)))
    assert listed == on_disk


@pytest.mark.parametrize("name", ["passes", "cost_models"])
def test_the_rooms_at_the_top_are_linked_into_the_package(name: str) -> None:
    assert (ROOT / "tvm_xengine" / name).is_symlink()
    assert (ROOT / "tvm_xengine" / name).resolve() == ROOT / name


def test_every_dependency_has_its_reason_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for requirement in project()["project"]["dependencies"]:
        name = re.match(r"[A-Za-z0-9-]+", str(requirement))
        assert name is not None
        assert f"`{name.group()}`" in readme, f"{requirement} is not explained in the README"


def test_the_command_is_installed() -> None:
    names = {entry.name for entry in importlib.metadata.distribution("tvm-xengine").entry_points}
    assert "tvm-xengine" in names
