"""A package on this machine: what it computes, what it refuses, what it promises."""

import ctypes
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.aot.examples import attention, export, need_compiler, need_tools, tiny_mlp
from tvm_xengine.aot.check.emulation import Build, build_program, run_program, selftest_build
from tvm_xengine.aot.check.reference import host_step
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.aot.package.contents import is_zero_bytes, library_sources
from tvm_xengine.aot.plan.alternatives import alternatives
from tvm_xengine.compiler.lean.short_storage import ShortStorage
from tvm_xengine.errors import ExportError, InvalidPlatformError, NoScheduleError
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.optimizers import SGD

STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
SANITIZED = (*STRICT, "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    need_tools("host")
    return export(tiny_mlp(), tmp_path_factory.mktemp("aot") / "tiny", optimizer="momentum")


def library(report: ExportReport, folder: Path, *flags: str) -> ctypes.CDLL:
    """The package as a shared library."""
    (folder / "empty.c").write_text("extern int unused;\n")
    build = Build(folder / "empty.c", ("-shared", "-fPIC", *flags))
    build_program(report.directory, report.package, build, folder / "package.so")
    return ctypes.CDLL(str(folder / "package.so"))


class Session:
    """A context of the package, in memory that Python owns."""

    def __init__(self, report: ExportReport, folder: Path, *flags: str) -> None:
        self.package = report.package
        self.library = library(report, folder, *flags)
        self.ctx = np.zeros(64, np.uint64)
        size = next(iter(self.package.regions.values()))
        memory = np.zeros(size + 128, np.uint8)
        start = -memory.ctypes.data % 64
        self.memory = memory[start : start + size]

    def call(self, function: str, *arguments: object) -> int:
        found = getattr(self.library, f"{self.package.name}_{function}")
        given = [self.pointer(a) if isinstance(a, np.ndarray) else a for a in arguments]
        return int(found(self.pointer(self.ctx), *given))

    def init(self, *, size: int | None = None, plan_hash: int | None = None) -> int:
        size = len(self.memory) if size is None else size
        plan_hash = self.package.plan_hash if plan_hash is None else plan_hash
        return self.call("init", self.memory, ctypes.c_size_t(size), ctypes.c_uint64(plan_hash))

    def state(self, name: str) -> np.ndarray:
        (tensor,) = [t for t in self.package.state if t.name == name]
        start = tensor.place.offset_bytes
        content = self.memory[start : start + tensor.place.size_bytes]
        return content.view(tensor.place.dtype).reshape(tensor.place.shape)

    @staticmethod
    def pointer(array: np.ndarray) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_self_test_passes_under_sanitizers(
    compiler: str, report: ExportReport, tmp_path: Path
) -> None:
    need_compiler(compiler)
    build = selftest_build(report.directory, report.package, *SANITIZED, compiler=compiler)
    build_program(report.directory, report.package, build, tmp_path / "selftest")
    done = run_program(tmp_path / "selftest", report.package.target)
    assert (done.returncode, done.stderr) == (0, "")


def test_self_test_notices_another_loss(report: ExportReport, tmp_path: Path) -> None:
    source = report.directory / f"{report.package.name}_selftest.c"
    loss = np.float32(report.expected.losses[7]).item().hex().split("p")[0].rstrip("0")
    text = source.read_text()
    assert text.count(loss) == 1
    (tmp_path / "main.c").write_text(
        text.replace(loss, loss[:5] + ("1" if loss[5] != "1" else "2"))
    )
    build = Build(tmp_path / "main.c", STRICT)
    build_program(report.directory, report.package, build, tmp_path / "selftest")
    done = run_program(tmp_path / "selftest", report.package.target)
    assert done.returncode == 3
    assert done.stdout.endswith("self-test failed: a loss (check 3)\n")


def test_header_is_c_plus_plus_too(report: ExportReport, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs the Debian package g++")
    name = report.package.name
    text = f'#include "{name}.h"\nint main() {{ return {name}_checkpoint_bytes() == 0; }}\n'
    (tmp_path / "main.cpp").write_text(text)
    command = [
        "g++",
        *STRICT,
        "-pedantic",
        f"-I{report.directory}",
        "-c",
        str(tmp_path / "main.cpp"),
    ]
    subprocess.run([*command, "-o", str(tmp_path / "main.o")], check=True)


TWO = """
#include "first.h"
#include "second.h"
static _Alignas(16) uint8_t one[FIRST_SRAM_BYTES], other[SECOND_SRAM_BYTES];
static float x[FIRST_TRAIN_STEP_X_COUNT];
static int64_t labels[FIRST_TRAIN_STEP_LABELS_COUNT];
int main(void) {
  first_ctx a;
  second_ctx b;
  if (first_init(&a, one, sizeof one, FIRST_PLAN_HASH) || first_state_reset(&a)) return 1;
  if (second_init(&b, other, sizeof other, SECOND_PLAN_HASH) || second_state_reset(&b)) return 2;
  return first_train_step(&a, x, labels, NULL, NULL) || second_train_step(&b, x, labels, NULL, NULL);
}
"""


def test_packages_of_one_model_are_linked_into_one_program_by_their_names(tmp_path: Path) -> None:
    need_tools("host")
    first, second = (
        export(tiny_mlp(), tmp_path / name, optimizer=optimizer, name=name)
        for name, optimizer in (("first", "sgd"), ("second", "momentum"))
    )
    (tmp_path / "main.c").write_text(TWO)
    sources = [second.directory / source for source in library_sources(second.package)]
    build = Build(tmp_path / "main.c", [*STRICT, f"-I{second.directory}", *map(str, sources)])
    build_program(first.directory, first.package, build, tmp_path / "both")
    assert run_program(tmp_path / "both", first.package.target).returncode == 0


@pytest.mark.parametrize("name", ["", "Net", "a-b", "2nd", "n" * 33])
def test_a_package_is_not_called_what_c_cannot_say(name: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="at most 32 characters in lower case, got"):
        export(tiny_mlp(), tmp_path / "out", name=name)


def test_adam_takes_no_powers_and_one_root_for_each_number(tmp_path: Path) -> None:
    report = export(tiny_mlp(), tmp_path / "adam", optimizer="adam")
    source = (report.directory / f"{report.package.name}_kernels.c").read_text()
    assert "pow(" not in source
    assert "powf(" not in source
    for kernel in source.split("\n}\n"):
        assert kernel.count("sqrtf(") <= 1


def test_the_header_says_what_every_argument_holds(report: ExportReport) -> None:
    header = (report.directory / f"{report.package.name}.h").read_text()
    for line in (
        "x: float32 [2, 16]",
        "labels: int64 [2], each 0..3 or -100",
        "loss: one float32; result, may be NULL",
        "output: float32 [2, 4]",
        "const float *x, float *output)",
        "#define TINY_MLP_TRAIN_STEP_X_SHAPE {2, 16}",
        "#define TINY_MLP_TRAIN_STEP_X_COUNT 32u",
        "#define TINY_MLP_TRAIN_STEP_LABELS_MAX 3",
        "#define TINY_MLP_TRAIN_STEP_LABELS_IGNORED (-100)",
        "#define TINY_MLP_EVAL_SRAM_BYTES",
    ):
        assert line in header


def test_bad_memory_is_refused_with_its_code(report: ExportReport, tmp_path: Path) -> None:
    session = Session(report, tmp_path)
    assert session.init(size=len(session.memory) - 1) == -3
    assert session.init(plan_hash=session.package.plan_hash ^ 1) == -5
    session.memory = session.memory[1:]
    assert session.init(size=len(session.memory) + 1) == -2
    x, labels = np.zeros((2, 16), np.float32), np.zeros(2, np.int64)
    loss = np.zeros(1, np.float32)
    assert session.call("train_step", x, labels, loss, None) == -1  # nothing was initialised


def test_arguments_are_checked(report: ExportReport, tmp_path: Path) -> None:
    session = Session(report, tmp_path)
    assert session.init() == 0
    x, labels = np.zeros((2, 16), np.float32), np.zeros(2, np.int64)
    loss = np.zeros(1, np.float32)
    assert session.call("train_step", x, labels, loss, None) == -1  # no state yet
    assert session.call("state_reset") == 0
    assert session.call("train_step", x, labels, None, None) == 0
    assert session.call("train_step", None, labels, loss, None) == -1
    odd = np.zeros(2 * 16 * 4 + 4, np.uint8)[1:]
    assert session.call("train_step", odd, labels, loss, None) == -2
    assert session.call("train_step", session.memory, labels, loss, None) == -1
    for rate in (float("nan"), float("inf"), -0.5, -1e-45):
        assert session.call("set_lr", ctypes.c_float(rate)) == _ERANGE
    assert session.call("set_lr", ctypes.c_float(0.5)) == 0
    assert session.init() == 0
    assert session.call("set_lr", ctypes.c_float(0.5)) == _EINVAL  # a reset would undo it


def test_it_trains_as_the_virtual_machine_does(report: ExportReport, tmp_path: Path) -> None:
    session = Session(report, tmp_path)
    training = build_training_step(tiny_mlp(), optimizer=SGD(momentum=0.9))
    reference = host_step(training)
    reference.write(training.initial_state)
    session.init()
    session.call("state_reset")
    random = np.random.default_rng(0)
    for rate in (0.1, 0.02, 0.3, 0.1, 0.1):
        x = random.normal(size=(2, 16)).astype(np.float32)
        labels = random.integers(0, 4, 2)
        loss = np.zeros(1, np.float32)
        session.call("set_lr", ctypes.c_float(rate))
        assert session.call("train_step", x, labels, loss, None) == 0
        given = {"x": x, "labels": labels, "lr": np.asarray(rate, "float32")}
        assert loss[0] == pytest.approx(float(reference.step(given)["loss"]), rel=1e-6)
        for name, value in reference.read_state().items():
            np.testing.assert_allclose(session.state(name), value, rtol=1e-5, atol=1e-7)


@pytest.fixture(scope="module")
def guarded(report: ExportReport, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A package as it is compiled without any macro."""
    return Session(report, tmp_path_factory.mktemp("guarded"))


_X, _LABELS = np.zeros((2, 16), np.float32), np.zeros(2, np.int64)
_ENAN, _ERANGE, _EINVAL = -7, -9, -1


@pytest.mark.parametrize(
    ("x", "labels", "code"),
    [
        (np.full((2, 16), 3e38, np.float32), _LABELS, _ENAN),
        (np.full((2, 16), np.nan, np.float32), _LABELS, _ENAN),
        (np.where(np.arange(32).reshape(2, 16) == 31, np.inf, 0).astype("float32"), _LABELS, _ENAN),
        (_X, np.array([0, 4]), _ERANGE),
        (_X, np.array([-1, 0]), _ERANGE),
        (_X, np.array([0, 2**40]), _ERANGE),
    ],
)
def test_guards_leave_the_state_alone(
    x: np.ndarray, labels: np.ndarray, code: int, guarded: Session
) -> None:
    guarded.init()
    guarded.call("state_reset")
    before = guarded.memory[: guarded.package.kept_bytes["sram"]].copy()
    assert guarded.call("train_step", x, labels, None, None) == code
    np.testing.assert_array_equal(guarded.memory[: len(before)], before)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_evaluation_refuses_inputs_that_are_not_finite(value: float, guarded: Session) -> None:
    guarded.init()
    guarded.call("state_reset")
    x, output = np.zeros((2, 16), np.float32), np.full((2, 4), 7.0, np.float32)
    x[1, 15] = value
    assert guarded.call("eval", x, output) == _ENAN
    assert (output == 7.0).all()


def test_a_label_that_the_loss_ignores_is_taken(guarded: Session) -> None:
    guarded.init()
    guarded.call("state_reset")
    assert guarded.call("train_step", _X, np.array([-100, 1]), None, None) == 0


def test_guards_can_be_switched_off(report: ExportReport, tmp_path: Path) -> None:
    macro = report.package.macro
    session = Session(report, tmp_path, f"-D{macro}_NAN_GUARD=0", f"-D{macro}_RANGE_GUARD=0")
    session.init()
    session.call("state_reset")
    bad = np.full((2, 16), np.nan, np.float32)
    assert session.call("train_step", bad, np.array([0, 4]), None, None) == 0
    assert session.call("eval", bad, None) == 0


def test_results_in_the_arena_are_refused(guarded: Session) -> None:
    guarded.init()
    guarded.call("state_reset")
    before = guarded.memory.copy()
    last = len(guarded.memory) - 4
    for start in (0, 64, last):
        inside = guarded.memory[start : start + 4]
        assert guarded.call("train_step", _X, _LABELS, inside, None) == _EINVAL
        assert guarded.call("train_step", _X, _LABELS, None, inside) == _EINVAL
    assert guarded.call("train_step", _X, _LABELS, guarded.ctx, None) == _EINVAL
    np.testing.assert_array_equal(guarded.memory, before)


def test_a_state_is_refused_after_a_refused_init(guarded: Session) -> None:
    assert guarded.init() == 0
    assert guarded.init(plan_hash=1) != 0
    before = guarded.memory.copy()
    assert guarded.call("state_reset") == _EINVAL
    np.testing.assert_array_equal(guarded.memory, before)
    assert guarded.init() == 0
    assert guarded.call("state_reset") == 0


def test_code_holds_no_heap_no_output_and_no_writable_global(
    report: ExportReport, tmp_path: Path
) -> None:
    library(report, tmp_path)
    for source in (f"{report.package.name}.c", f"{report.package.name}_kernels.c"):
        command = [
            "gcc",
            "-O2",
            "-fno-pie",
            "-c",
            str(report.directory / source),
            "-o",
            str(tmp_path / "o.o"),
        ]
        subprocess.run(command, check=True)
        done = subprocess.run(
            ["nm", str(tmp_path / "o.o")], capture_output=True, text=True, check=True
        )
        rows = [line.split()[-2:] for line in done.stdout.splitlines()]
        kinds = {kind for kind, _ in rows}
        assert not kinds & {"D", "d", "B", "b", "C"}  # data that can change
        named = {name for kind, name in rows if kind == "U"}
        own = {name for name in named if name.startswith(report.package.name)}
        assert named - own <= {
            "memcpy",
            "memset",
            "memcmp",
            "expf",
            "logf",
            "_GLOBAL_OFFSET_TABLE_",
        }


def test_plan_never_lets_live_buffers_overlap(report: ExportReport) -> None:
    path = report.directory / f"{report.package.name}_plan.json"
    document = json.loads(path.read_text())
    for function in ("train_step", "eval"):
        plan = document["functions"][function]
        rows = [
            (b["region"], b["offset"], b["offset"] + b["bytes"], b["first_step"], b["last_step"])
            for b in plan["buffers"]
        ]
        rows += [
            (s["region"], s["offset"], s["offset"] + s["bytes"], s["step"], s["step"])
            for s in plan["scratch"]
        ]
        assert rows
        for at, (region, start, end, first, last) in enumerate(rows):
            assert end <= document["regions"][region]["bytes"]
            for other, o_start, o_end, o_first, o_last in rows[at + 1 :]:
                together = other == region and first <= o_last and o_first <= last
                assert not (together and start < o_end and o_start < end)


@pytest.mark.slow
def test_regions_share_the_work(tmp_path: Path) -> None:
    """An SRAM that cannot hold everything, and a larger memory beside it."""
    need_tools("host")
    report = export(attention(), tmp_path / "two", regions="sram=8KiB,psram=64KiB", time_limit_s=2)
    steps = json.loads((report.directory / "attention_plan.json").read_text())["functions"][
        "train_step"
    ]["steps"]
    # Whether ops run where the larger memory is, or only tensors go there, is the solver's choice.
    assert {cell for row in steps for cell in row[1:]} >= {"sram", "psram"}
    assert any(row[0] == "copy" for row in steps)
    assert report.package.regions["sram"] <= 8 * 1024
    build = selftest_build(report.directory, report.package, *SANITIZED)
    build_program(report.directory, report.package, build, tmp_path / "selftest")
    assert run_program(tmp_path / "selftest", report.package.target).returncode == 0


@pytest.mark.slow
def test_recomputation_shows_in_the_driver(tmp_path: Path) -> None:
    need_tools("host")
    model = attention(1, 4, 8)
    ample = export(model, tmp_path / "ample")
    state = ample.package.kept_bytes["sram"]
    rest = ample.keep_all_bytes - state
    tight = export(
        model, tmp_path / "tight", regions=f"sram={state + int(0.75 * rest)}", time_limit_s=2
    )
    plan = tight.leading.plan.schedule
    driver = (tight.directory / "attention.c").read_text()
    assert driver.count("computed again") == plan.recomputed_ops > 0
    own, keep, smallest = alternatives(tight.leading.plan, lambda _: 0.0)
    assert own.recomputed_ops == plan.recomputed_ops
    assert (keep.recomputed_ops, keep.arena_bytes["sram"]) == (0, tight.keep_all_bytes)
    assert keep.step_us < own.step_us
    assert state < smallest.arena_bytes["sram"] <= own.arena_bytes["sram"]
    assert smallest.step_us >= own.step_us
    build = selftest_build(tight.directory, tight.package, *SANITIZED)
    build_program(tight.directory, tight.package, build, tmp_path / "selftest")
    assert run_program(tmp_path / "selftest", tight.package.target).returncode == 0


def test_frozen_parameters_lie_in_flash_and_need_no_gradient(tmp_path: Path) -> None:
    need_tools("host")
    report = export(tiny_mlp(), tmp_path / "last", trainable=["fc2_weight", "fc2_bias"])
    assert [t.name for t in report.package.state] == ["fc2_weight", "fc2_bias"]
    assert {"fc1_weight", "fc1_bias"} <= set(report.package.constants)
    ops = report.leading.plan.schedule.computed
    assert not any("fc1_weight" in op for op in ops)
    build = selftest_build(report.directory, report.package, *SANITIZED)
    build_program(report.directory, report.package, build, tmp_path / "selftest")
    assert run_program(tmp_path / "selftest", report.package.target).returncode == 0


def test_an_existing_directory_is_kept(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("precious")
    with pytest.raises(ExportError, match="--force"):
        export(tiny_mlp(), tmp_path / "there")
    assert (tmp_path / "there" / "mine.txt").read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_region_that_is_too_small_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(NoScheduleError) as refused:
        export(tiny_mlp(), tmp_path / "small", regions="sram=1200")
    message = str(refused.value)
    working = re.search(r"no schedule fits the regions sram=1200B; .* work: (sram=\d+B)$", message)
    assert working is not None, message
    assert message.count("fits") == 1
    assert "--budget" not in message
    export(tiny_mlp(), tmp_path / "works", regions=working[1])
    shutil.rmtree(tmp_path / "works")
    with pytest.raises(NoScheduleError, match="1024 bytes"):
        export(tiny_mlp(), tmp_path / "small", regions="sram=1000")
    with pytest.raises(NoScheduleError, match="flash"):
        export(tiny_mlp(), tmp_path / "small", regions="sram=64KiB,flash=100")
    assert not list(tmp_path.iterdir())


def test_code_counts_where_flash_is_limited(tmp_path: Path) -> None:
    need_tools("host")
    report = export(tiny_mlp(), tmp_path / "ample")
    assert report.code is not None
    constants = report.package.flash_bytes
    initial = sum(t.initial.nbytes for t in report.package.state if not is_zero_bytes(t.initial))
    data, code = constants + initial, report.code.text_bytes
    with pytest.raises(NoScheduleError, match=f"take {data} bytes of flash, and code {code}, tog"):
        export(tiny_mlp(), tmp_path / "tight", regions=f"sram=4MiB,flash={data + code - 1}")
    assert [path.name for path in tmp_path.iterdir()] == ["ample"]
    export(tiny_mlp(), tmp_path / "fits", regions=f"sram=4MiB,flash={data + code}")


def test_an_unknown_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidPlatformError, match=r"cortex-m99.*cortex-m4"):
        export(tiny_mlp(), tmp_path / "x", target="cortex-m99")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "dtype"),
    [
        ("c", "float16"),
        ("c", "bfloat16"),
        ("llvm", "float16"),
        ("llvm", "bfloat16"),
    ],
)
def test_short_storage_halves_what_is_kept(
    backend: str, dtype: str, report: ExportReport, tmp_path: Path
) -> None:
    """`report` is the same package with everything in float32."""
    storage = ShortStorage(parameters=True, least_bytes=64, dtype=dtype)
    short = export(
        tiny_mlp(), tmp_path / "short", optimizer="momentum", backend=backend, storage=storage
    )
    sizes = {tensor.name: tensor.place.size_bytes for tensor in short.package.state}
    assert sizes["fc1_weight"] == 2 * 12 * 16
    assert sizes["fc1_weight_velocity"] == 4 * 12 * 16
    assert short.package.state_bytes < report.package.state_bytes
    assert short.expected.storage_error is not None
    assert 0 < short.expected.storage_error < 1e-2
    plan = json.loads((short.directory / "tiny_mlp_plan.json").read_text())
    assert plan["storage_error"] == short.expected.storage_error
    flags = SANITIZED if backend == "c" else STRICT
    build = selftest_build(short.directory, short.package, *flags)
    build_program(short.directory, short.package, build, tmp_path / "selftest")
    assert run_program(tmp_path / "selftest", short.package.target).returncode == 0
