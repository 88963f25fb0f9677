"""What does not work is named, with the command that gets it."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tvm_xengine.doctor.check import Check, State, in_child
from tvm_xengine.doctor.diagnosis import Diagnosis
from tvm_xengine.doctor.machine import compiler_checks, folder_checks
from tvm_xengine.doctor.packages import package_check
from tvm_xengine.doctor.solver_backends import backend_check


def _shadowed(monkeypatch: pytest.MonkeyPatch, folder: Path, module: str, body: str) -> None:
    """Make worker processes find a module of this content in place of the installed one."""
    (folder / f"{module}.py").write_text(body)
    monkeypatch.syspath_prepend(folder)


def test_a_solver_that_cannot_be_loaded_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert backend_check("highs").state is State.WORKS
    _shadowed(monkeypatch, tmp_path, "highspy", "raise ImportError('shadowed')")
    found = backend_check("highs")
    assert found.state in (State.MISSING, State.BROKEN)
    assert found.is_alarming
    assert "highspy" in found.remedy


def test_a_licence_that_limits_the_size_is_told() -> None:
    found = backend_check("gurobi")
    assert found.state in (State.WORKS, State.LIMITED, State.BROKEN)
    if found.state is State.LIMITED:
        assert "2,000" in found.detail
        assert found.remedy
        assert not found.is_alarming


def test_a_package_that_is_missing_comes_with_the_command_that_gets_it() -> None:
    found = package_check(Requirement("no-such-package-xyz>=1"), "plot")
    assert found.state is State.MISSING
    assert found.remedy == 'pip install "tvm-xengine[plot]"'
    assert not found.is_alarming
    assert package_check(Requirement("no-such-package-xyz>=1"), "").is_alarming


def test_a_package_of_a_version_that_is_not_allowed_is_broken() -> None:
    found = package_check(Requirement("numpy<1"), "")
    assert found.state is State.BROKEN
    assert version("numpy") in found.detail
    assert package_check(Requirement("numpy>=1"), "").state is State.WORKS


def test_a_library_that_ends_its_process_does_not_end_the_doctor() -> None:
    works, said = in_child("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert not works
    assert "signal 11" in said


def test_every_tool_that_is_missing_has_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent / "nowhere"))
    found = list(compiler_checks())
    assert found
    assert not [one.name for one in found if one.state is State.WORKS or not one.remedy]


def test_the_sizes_of_caches_are_those_of_their_files(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "a.so").write_bytes(b"0" * 2048)
    (tmp_path / "m.jsonl").write_bytes(b"0" * 1024)
    details = {one.name: one.detail for one in folder_checks(tmp_path / "m.jsonl")}
    assert details["kernels"] == "2 KiB in 1 files"
    assert details["measurements"] == "1 KiB in 1 files"


def test_a_folder_that_is_a_file_is_broken(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    first = next(folder_checks(tmp_path / "cache" / "m.jsonl"))
    assert first.state is State.BROKEN


def test_a_cache_where_no_file_can_be_made_is_no_full_disk() -> None:
    first = next(folder_checks(Path("/proc/none/m.jsonl")))
    assert first.state is State.BROKEN
    assert first.detail.startswith("/proc/none cannot be written")


def test_only_what_is_required_makes_the_installation_unhealthy() -> None:
    optional = Check("a", "b", State.MISSING, "not installed")
    required = Check("a", "b", State.BROKEN, "cannot be loaded", is_required=True)
    assert Diagnosis((optional,)).is_healthy
    assert not Diagnosis((optional, required)).is_healthy
