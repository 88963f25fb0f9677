"""Checkpoints: what is corrupt, short, foreign or old is refused and changes nothing."""

import ctypes
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.aot.examples import export, need_compiler, need_tools, tiny_mlp
from tests.aot.test_package import SANITIZED, Session
from tvm_xengine.aot.check.emulation import Build, build_program, run_program
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.aot.package.checkpoint_file import (
    HEADER_BYTES,
    Checkpoint,
    decoded,
    encoded,
    read_checkpoint,
    write_checkpoint,
)
from tvm_xengine.errors import InvalidStateError

EFORMAT, ECRC, EIO, ERANGE, EABSENT, ESHAPE, EFROZEN = -4, -6, -8, -9, -12, -13, -14
REFUSE, INITIALISE = 0, 1


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    need_tools("host")
    return export(tiny_mlp(), tmp_path_factory.mktemp("aot") / "tiny", optimizer="momentum")


def run_c(report: ExportReport, folder: Path, source: str, compiler: str, **defined: object) -> str:
    """What a program that includes the header of the package prints; it must not complain."""
    package = report.package
    given = {
        "NAME": package.name,
        "PREFIX": package.macro,
        "HEADER": f'"{package.name}.h"',
        **defined,
    }
    flags = [
        *SANITIZED[:3],
        *SANITIZED[4:],
        *(f"-D{name}={value}" for name, value in given.items()),
    ]
    build = Build(Path(__file__).with_name(source), flags, compiler)
    build_program(report.directory, package, build, folder / "program")
    done = run_program(folder / "program", package.target)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def load_mutated(report: ExportReport, folder: Path, count: int, compiler: str) -> list[int]:
    """How often each code came back for `count` mutated checkpoints."""
    macro = report.package.macro
    memory = {"REGION_BYTES": f"{macro}_SRAM_BYTES", "KEPT_BYTES": f"{macro}_SRAM_KEPT_BYTES"}
    plan_hash = f"{macro}_PLAN_HASH"
    printed = run_c(
        report, folder, "mutate.c", compiler, COUNT=count, PLAN_HASH=plan_hash, **memory
    )
    return [int(line) for line in printed.split()]


def test_mutated_checkpoints_are_refused(report: ExportReport, tmp_path: Path) -> None:
    codes = load_mutated(report, tmp_path, 500, "gcc")
    found = {-code for code, count in enumerate(codes) if count}
    assert sum(codes) == 500
    assert found <= {0, EFORMAT, ECRC, EIO}
    assert found >= {EFORMAT, ECRC, EIO}
    assert codes[0] < 25  # a mutation that changed nothing


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_ten_thousand_mutated_checkpoints(
    compiler: str, report: ExportReport, tmp_path: Path
) -> None:
    need_compiler(compiler)
    assert sum(load_mutated(report, tmp_path, 10_000, compiler)) == 10_000


@pytest.mark.parametrize(
    ("compiler", "rounds"),
    [
        ("gcc", 1000),
        pytest.param("gcc", 100_000, marks=pytest.mark.slow),
        pytest.param("clang", 100_000, marks=pytest.mark.slow),
    ],
)
def test_of_slots_the_newest_sound_one_is_loaded_whenever_power_fails(
    compiler: str, rounds: int, report: ExportReport, tmp_path: Path
) -> None:
    need_compiler(compiler)
    places = [tensor.place for tensor in report.package.state]
    parts = ",".join(f"{{{place.offset_bytes},{place.size_bytes}}}" for place in places)
    run_c(report, tmp_path, "slots.c", compiler, ROUNDS=rounds, PLACES=parts)


def any_state(report: ExportReport, seed: int = 0) -> dict[str, np.ndarray]:
    """A value for all that the package keeps, by its names in checkpoints."""
    random = np.random.default_rng(seed)
    state = {
        tensor.saved_name: random.normal(size=tensor.place.shape).astype(np.float32)
        for tensor in report.package.state
    }
    return {**state, "setting/lr": np.array(0.125, np.float32)}


def own_checkpoint(report: ExportReport, **tensors: np.ndarray) -> Checkpoint:
    return Checkpoint({**any_state(report), **tensors}, origin=report.package.origin)


def test_python_reads_and_writes_what_c_does(report: ExportReport, tmp_path: Path) -> None:
    path = tmp_path / "state.xecp"
    given = own_checkpoint(report)
    write_checkpoint(path, given)
    found = read_checkpoint(path)
    assert found.optimizer == given.optimizer != 0
    assert all((found.tensors[name] == value).all() for name, value in given.tensors.items())
    session = CheckpointSession(report, tmp_path)
    session.init()
    assert session.load(path.read_bytes()) == 0
    for tensor in report.package.state:
        np.testing.assert_array_equal(session.state(tensor.name), found.tensors[tensor.saved_name])
    assert session.save() == path.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b[:10], "no checkpoint"),
        (lambda b: b[:-4], "cut off"),
        (lambda b: b"ABCD" + b[4:], "magic"),
        (lambda b: b[:4] + struct.pack("<I", 2) + b[8:], "version"),
        (lambda b: b[:8] + bytes([b[8] ^ 1]) + b[9:], "header"),
        (lambda b: b[:-5] + bytes([b[-5] ^ 1]) + b[-4:], "damaged"),
    ],
)
def test_python_refuses_a_bad_checkpoint(change, message, report, tmp_path) -> None:
    path = tmp_path / "state.xecp"
    path.write_bytes(change(encoded(own_checkpoint(report))))
    with pytest.raises(InvalidStateError, match=message):
        read_checkpoint(path)


def sealed(header: bytes, payload: bytes) -> bytes:
    """A header without checksum, and records, as a whole checkpoint."""
    content = header + struct.pack("<I", zlib.crc32(header)) + payload
    return content + struct.pack("<I", zlib.crc32(content))


def test_wrong_records_under_right_checksums_are_refused(
    report: ExportReport, tmp_path: Path
) -> None:
    """What no accident makes: records that are longer than the file, and tensors that come twice."""
    good = encoded(own_checkpoint(report))
    header, payload = good[: HEADER_BYTES - 4], good[HEADER_BYTES:-4]
    count, size = struct.unpack_from("<II", header, 36)
    start = header[:36]
    bad = [
        sealed(start + struct.pack("<II", count + 1, size), payload),
        sealed(start + struct.pack("<II", count - 1, size), payload),
        sealed(start + struct.pack("<II", 2 * count, 2 * size), 2 * payload),
        *(
            sealed(header, payload[:at] + b"\xff" + payload[at + 1 :])
            for at in (0, 1, 3, 4, 7, 8, 11)
        ),
    ]
    session = CheckpointSession(report, tmp_path)
    session.init()
    session.call("state_reset")
    before = session.memory.copy()
    for content in bad:
        assert session.load(content) in (EFORMAT, ESHAPE, EABSENT)
        np.testing.assert_array_equal(session.memory, before)
        with pytest.raises(ValueError, match=r"."):
            checked = decoded(content)
            assert set(checked.tensors) == set(any_state(report))
            raise ValueError("another name or shape")


def test_what_is_absent_or_of_another_shape_is_refused_by_name(
    report: ExportReport, tmp_path: Path
) -> None:
    session = CheckpointSession(report, tmp_path)
    session.init()
    session.call("state_reset")
    given = own_checkpoint(report)
    name = report.package.state[0].saved_name
    lacking = replace(given, tensors={k: v for k, v in given.tensors.items() if k != name})
    wide = replace(given, tensors={**given.tensors, name: given.tensors[name].astype("float64")})
    turned = replace(given, tensors={**given.tensors, name: given.tensors[name].T.copy()})
    for content, code in ((lacking, EABSENT), (wide, ESHAPE), (turned, ESHAPE)):
        assert session.load(encoded(content)) == code
        assert session.loaded()["tensor"] == name
    foreign = replace(lacking, origin=1)
    assert session.load(encoded(foreign), absent=INITIALISE) == EABSENT
    assert session.load(encoded(lacking), absent=INITIALISE) == 0
    assert session.loaded()["initialised"] == 1
    first = report.package.state[0]
    np.testing.assert_array_equal(session.state(first.name), first.initial)


@pytest.mark.parametrize("rate", [-0.5, np.nan, np.inf])
def test_a_setting_that_its_function_refuses_is_refused_in_a_checkpoint(
    rate: float, report: ExportReport, tmp_path: Path
) -> None:
    session = CheckpointSession(report, tmp_path)
    session.init()
    session.call("state_reset")
    before, ctx = session.memory.copy(), session.ctx.copy()
    content = encoded(own_checkpoint(report, **{"setting/lr": np.array(rate, np.float32)}))
    assert session.load(content) == ERANGE
    assert session.loaded()["tensor"] == "setting/lr"
    np.testing.assert_array_equal(session.memory, before)
    np.testing.assert_array_equal(session.ctx, ctx)


def test_a_reading_that_changes_half_way_voids_the_state(
    report: ExportReport, tmp_path: Path
) -> None:
    session = CheckpointSession(report, tmp_path)
    session.init()
    session.call("state_reset")
    content = session.save()
    x, labels = np.zeros((2, 16), np.float32), np.zeros(2, np.int64)
    assert session.load(content, fail_after=len(content) + 60) == EIO
    assert session.call("train_step", x, labels, None, None) == -1
    assert session.load(content) == 0
    assert session.call("train_step", x, labels, None, None) == 0


class CheckpointSession(Session):
    """A context whose checkpoints are Python bytes."""

    def load(self, content: bytes, fail_after: int | None = None, absent: int = REFUSE) -> int:
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
        self.found = np.zeros(4, np.uint64)
        return self.call("checkpoint_load", kind(read), None, ctypes.c_uint32(absent), self.found)

    def loaded(self) -> dict[str, object]:
        """The report of the last load."""
        sequence, taken, initialised, ignored, tensor = struct.unpack("<QIII4xQ", self.found)
        name = ctypes.string_at(tensor).decode() if tensor else None
        return {
            "sequence": sequence,
            "taken": taken,
            "initialised": initialised,
            "ignored": ignored,
            "tensor": name,
        }

    def save(self) -> bytes:
        parts: list[bytes] = []

        def write(_user: object, data: int, count: int) -> int:
            parts.append(ctypes.string_at(data, count))
            return 0

        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        assert self.call("checkpoint_save", kind(write), None) == 0
        return b"".join(parts)
