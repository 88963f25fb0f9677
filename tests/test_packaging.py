"""What is installed is what is there."""

import importlib.metadata
import os
import re
import sys
from pathlib import Path

import pytest
from setuptools import find_packages

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).parent.parent


def project() -> dict[str, dict[str, object]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_folder_of_sources_is_a_package_that_setuptools_finds() -> None:
    find = project()["tool"]["setuptools"]["packages"]["find"]  # type: ignore[index]
    found = set(find_packages(str(ROOT), include=find["include"]))
    package = ROOT / "tvm_xengine"
    folders = {
        Path(folder).relative_to(ROOT)
        for folder, _, files in os.walk(package, followlinks=True)
        if any(name.endswith(".py") for name in files)
    }
    assert found == {".".join(folder.parts) for folder in folders}


def test_every_data_file_is_installed() -> None:
    listed = project()["tool"]["setuptools"]["package-data"]  # type: ignore[index]
    installed = {
        path.resolve()
        for package, patterns in listed.items()
        for pattern in patterns
        for path in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    data = {
        (Path(folder) / name).resolve()
        for folder, _, files in os.walk(ROOT / "tvm_xengine", followlinks=True)
        for name in files
        if not name.endswith((".py", ".pyc", ".nbi", ".nbc"))
    }
    assert data <= installed


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
