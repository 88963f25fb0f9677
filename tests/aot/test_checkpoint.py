"""Checkpoints: what is corrupt, short, foreign or old is refused and changes nothing."""

import ctypes
import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.aot.examples import export, need_tools, tiny_mlp
from tests.aot.test_package import Session
from tvm_xengine.aot.check.emulation import Build, build_program, run_program
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.aot.package.checkpoint import read_checkpoint, write_checkpoint
from tvm_xengine.errors import UnsupportedModelError

SANITIZED = ("-Wall", "-Wextra", "-Werror", "-g", "-O1", "-fsanitize=address,undefined")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    need_tools("host")
    return export(tiny_mlp(), tmp_path_factory.mktemp("aot") / "tiny", optimizer="momentum")


def plan_of(report: ExportReport) -> dict[str, object]:
    path = report.directory / f"{report.package.name}_plan.json"
    document: dict[str, object] = json.loads(path.read_text())
    return document


def load_mutated(report: ExportReport, folder: Path, count: int, compiler: str) -> list[int]:
    """How often each code came back for `count` mutated checkpoints."""
    package = report.package
    flags = [
        f"-DNAME={package.name}",
        f'-DHEADER="{package.name}.h"',
        f"-DREGION_BYTES={package.macro}_SRAM_BYTES",
        f"-DKEPT_BYTES={package.macro}_SRAM_KEPT_BYTES",
        f"-DPLAN_HASH={package.macro}_PLAN_HASH",
        f"-DCOUNT={count}",
        *SANITIZED,
    ]
    build = Build(Path(__file__).parent / "mutate.c", flags, compiler)
    build_program(report.directory, package, build, folder / "mutate")
    done = run_program(folder / "mutate", package.target)
    assert (done.returncode, done.stderr) == (0, "")
    return [int(line) for line in done.stdout.split()]


def test_mutated_checkpoints_are_refused(report: ExportReport, tmp_path: Path) -> None:
    codes = load_mutated(report, tmp_path, 500, "gcc")
    ok, einval, ealign, esize, eformat, eplan, ecrc, enan, eio = codes
    assert sum(codes) == 500
    assert einval == ealign == enan == 0
    assert min(esize, eformat, eplan, ecrc, eio) > 0
    assert ok < 25  # a mutation that changed nothing


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_ten_thousand_mutated_checkpoints(
    compiler: str, report: ExportReport, tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"needs the Debian packages {compiler}")
    assert sum(load_mutated(report, tmp_path, 10_000, compiler)) == 10_000


def test_python_reads_and_writes_what_c_does(report: ExportReport, tmp_path: Path) -> None:
    plan = plan_of(report)
    random = np.random.default_rng(0)
    state = {
        tensor.name: random.normal(size=tensor.place.shape).astype(np.float32)
        for tensor in report.package.state
    }
    path = tmp_path / "state.bin"
    write_checkpoint(path, plan, state, {"lr": 0.125})
    found, settings = read_checkpoint(path, plan)
    assert settings == {"lr": 0.125}
    assert all((found[name] == value).all() for name, value in state.items())
    session = CheckpointSession(report, tmp_path)
    session.init()
    assert session.load(path.read_bytes()) == 0
    for name, value in state.items():
        np.testing.assert_array_equal(session.state(name), value)
    assert session.save() == path.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b[:10], "no checkpoint"),
        (lambda b: b[:-4], "bytes after the header"),
        (lambda b: b"ABCD" + b[4:], "magic"),
        (lambda b: b[:4] + struct.pack("<I", 0) + b[8:], "version"),
        (lambda b: b[:8] + bytes(8) + b[16:], "plan hash"),
        (lambda b: b[:-1] + bytes([b[-1] ^ 1]), "checksum"),
    ],
)
def test_python_refuses_a_bad_checkpoint(change, message, report, tmp_path) -> None:
    path = tmp_path / "state.bin"
    state = {t.name: np.asarray(t.initial) for t in report.package.state}
    write_checkpoint(path, plan_of(report), state, {"lr": 0.1})
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UnsupportedModelError, match=message):
        read_checkpoint(path, plan_of(report))


def test_a_reading_that_changes_half_way_voids_the_state(
    report: ExportReport, tmp_path: Path
) -> None:
    session = CheckpointSession(report, tmp_path)
    session.init()
    session.call("state_reset")
    content = session.save()
    x, labels = np.zeros((2, 16), np.float32), np.zeros(2, np.int64)
    assert session.load(content, fail_after=len(content) + 30) == -8
    assert session.call("train_step", x, labels, None, None) == -1
    assert session.load(content) == 0
    assert session.call("train_step", x, labels, None, None) == 0


class CheckpointSession(Session):
    """A context whose checkpoints are Python bytes."""

    def load(self, content: bytes, fail_after: int | None = None) -> int:
        left = [fail_after if fail_after is not None else 10**9]

        def read(_user: object, offset: int, data: int, count: int) -> int:
            left[0] -= count
            if left[0] < 0 or offset + count > len(content):
                return 1
            ctypes.memmove(data, content[offset : offset + count], count)
            return 0

        kind = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t
        )
        return self.call("checkpoint_load", kind(read), None)

    def save(self) -> bytes:
        parts: list[bytes] = []

        def write(_user: object, data: int, count: int) -> int:
            parts.append(ctypes.string_at(data, count))
            return 0

        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        assert self.call("checkpoint_save", kind(write), None) == 0
        return b"".join(parts)
