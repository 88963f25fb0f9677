"""A kernel is what is compiled: the key follows the code, not the source text behind it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tvm import s_tir, tirx
from tvm.target import Target

import tvm_xengine
from tests.kernels.kernels import BASELINE, NATIVE, matmul, scale_and_shift
from tvm_xengine.kernels import identity
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.identity import toolchain_key
from tvm_xengine.kernels.lower.pipeline import packed_call_passes
from tvm_xengine.kernels.targets import resolve_target

TARGET = resolve_target(BASELINE)

KEYS = """
import tvm_xengine
from tests.kernels.kernels import BASELINE, matmul
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.identity import toolchain_key
from tvm_xengine.kernels.targets import resolve_target
print(tvm_xengine.__file__)
print(prepare_kernel(matmul(8, 8, 8), resolve_target(BASELINE)).key, toolchain_key())
"""


def keys_of(root: Path) -> tuple[str, str]:
    """Where the package lies that a new process finds below `root`, and its keys."""
    here = Path(__file__).parents[2]
    found = subprocess.run(
        [sys.executable, "-c", KEYS],
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{here}"},
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    place, keys = found.stdout.splitlines()[-2:]
    return place, keys


def split_rows(func: tirx.PrimFunc, _target: Target) -> tirx.PrimFunc:
    sch = s_tir.Schedule(func)
    block = sch.get_child_blocks(sch.get_sblock("root"))[0]
    sch.split(sch.get_loops(block)[0], [None, 2])
    return sch.mod["main"]


@pytest.mark.slow
def test_a_docstring_changes_no_key(tmp_path: Path) -> None:
    """Of a copy of the package, in whose every file a sentence was added."""
    source = Path(str(tvm_xengine.__file__)).parent
    copy = tmp_path / "tvm_xengine"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", "*.costmodel"))
    for room in ("kernels", "passes"):
        for path in (copy / room).rglob("*.py"):
            text = path.read_text()
            assert text.startswith('"""'), path
            path.write_text('"""Another sentence. ' + text[3:])
    place, keys = keys_of(tmp_path)
    assert Path(place) == copy / "__init__.py"
    kernel = prepare_kernel(matmul(8, 8, 8), TARGET)
    assert keys.split() == [kernel.key, toolchain_key()]


def test_another_schedule_is_another_kernel() -> None:
    func = matmul(8, 8, 8)
    rule = prepare_kernel(func, TARGET)
    kernel = prepare_kernel(func, TARGET, schedule=split_rows)
    assert kernel.key != rule.key and kernel.symbol != rule.symbol
    assert kernel.function == rule.function


def test_names_and_the_way_to_the_same_loops_change_no_key() -> None:
    func = scale_and_shift(8)
    kernel = prepare_kernel(func, TARGET, "one")
    same = prepare_kernel(scale_and_shift(8, "data"), TARGET, "two", schedule=lambda f, _: f)
    as_written = prepare_kernel(func, TARGET, schedule=lambda f, _: f)
    assert same.key == as_written.key
    assert kernel.key == prepare_kernel(func, TARGET, "three").key


def test_a_target_is_part_of_the_key_and_not_of_the_function() -> None:
    func = matmul(8, 8, 8)
    one, other = (prepare_kernel(func, resolve_target(t)) for t in (BASELINE, NATIVE))
    assert one.key != other.key and one.function == other.function


@pytest.fixture
def _fresh() -> None:
    toolchain_key.cache_clear()
    yield
    toolchain_key.cache_clear()


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize("what", ["tvm", "llvm", "passes", "revision"])
def test_another_toolchain_compiles_other_kernels(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = prepare_kernel(matmul(8, 8, 8), TARGET).key
    match what:
        case "tvm":
            monkeypatch.setattr(identity.tvm, "__version__", "0.0.1")
        case "llvm":
            monkeypatch.setattr(identity, "llvm_version_major", lambda: 3)
        case "passes":
            monkeypatch.setattr(identity, "packed_call_passes", lambda: packed_call_passes()[:-1])
        case "revision":
            monkeypatch.setattr(identity, "PACKED_CALLS_REVISION", 0)
    toolchain_key.cache_clear()
    assert prepare_kernel(matmul(8, 8, 8), TARGET).key != before
