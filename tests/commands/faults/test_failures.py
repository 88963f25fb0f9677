"""Whatever goes wrong is one sentence and an exit code, never a traceback."""

import errno
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from tvm_xengine.commands import dispatch
from tvm_xengine.commands.app import app
from tvm_xengine.commands.entry import main
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.processes.launched import RENDEZVOUS

FULL = Path("/dev/full")


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_arguments: object) -> None:
        raise error

    monkeypatch.setattr(dispatch, "run_command", run)


def hidden_cause() -> OSError:
    """As llvmlite raises it where the system maps no more of a library."""
    error = OSError("Could not find/load shared object file 'libllvmlite.so'")
    error.__context__ = OSError("libllvmlite.so: failed to map segment from shared object")
    return error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InvalidPlatformError("no such board"), 2, "error: no such board"),
        (OSError(errno.ENOSPC, "No space left on device", "r.json"), 2, "r.json: No space left"),
        (MemoryError("std::bad_alloc"), 2, "no more memory"),
        (RuntimeError("can't start new thread"), 2, "no more memory"),
        (RuntimeError("InternalError: std::bad_alloc"), 2, "no more memory"),
        (hidden_cause(), 2, "no more memory"),
        (ImportError("libc10.so: bad ELF", name="torch"), 2, "the package torch cannot be loaded"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, ""),
        (ZeroDivisionError("division by zero"), 70, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_failure_is_one_sentence(
    error: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    fail_with(error, monkeypatch)
    assert main(["plan", "mlp"]) == code
    errors = capsys.readouterr().err
    assert said in errors
    assert "Traceback" not in errors
    assert errors.count("\n") <= 1


def test_of_several_processes_only_their_command_says_that_it_was_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(RENDEZVOUS, "file")
    fail_with(KeyboardInterrupt(), monkeypatch)
    assert main(["train", "mlp"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is full")
@pytest.mark.parametrize("command", ["--version", "--help"])
def test_standard_output_on_a_full_disk_is_named(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with FULL.open("w") as full:  # closing it would raise if anything were left
        monkeypatch.setattr(sys, "stdout", full)
        monkeypatch.setattr(app, "console", Console())  # it keeps what it could not write
        assert main([command]) == 2
    said = "tvm-xengine: error: standard output: No space left on device\n"
    assert capsys.readouterr().err == said


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is full")
def test_standard_output_without_a_buffer_is_named() -> None:
    command = [sys.executable, "-u", "-m", "tvm_xengine", "--version"]
    with FULL.open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert "standard output: No space left" in done.stderr


def test_closed_standard_output_cannot_take_the_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["plan", "mlp", "--json", "-"]) == 2
    said = "tvm-xengine: error: --json - writes to standard output, which is closed; name a file\n"
    assert capsys.readouterr().err == said


def test_a_removed_working_folder_is_told_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["plan", "mlp", "--json", "report.json"]) == 2
    said = "tvm-xengine: error: report.json: No such file or directory\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("write_through", [False, True])
def test_an_error_of_something_else_writes_nothing(
    write_through: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fail_with(OSError(errno.ECONNREFUSED, "Connection refused"), monkeypatch)
    buffering = 0 if write_through else -1
    with io.TextIOWrapper(
        (tmp_path / "out").open("wb", buffering=buffering), write_through=write_through
    ) as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert main(["plan", "mlp"]) == 2
    assert not (tmp_path / "out").read_bytes()
    assert capsys.readouterr().err == "tvm-xengine: error: Connection refused\n"


def test_who_reads_the_output_may_leave(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        monkeypatch.setattr(app, "console", Console())  # it is silent from then on
        assert main(["--version"]) == 141
    assert capsys.readouterr().err == ""


def test_a_fault_of_the_program_is_kept_in_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    fail_with(ZeroDivisionError("division by zero"), monkeypatch)
    main(["plan", "mlp"])
    found = re.search(r"report the file (\S+)", capsys.readouterr().err)
    assert found is not None
    assert "ZeroDivisionError" in Path(found.group(1)).read_text()


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(ZeroDivisionError("division by zero"), monkeypatch)
    with pytest.raises(ZeroDivisionError):
        main(["plan", "mlp", "--debug"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--budget", "cpu=" + "9" * 400),
        ("--budget-ratio", "inf"),
        ("--gap", "2"),
        ("--gap", "1"),
        ("--seed", "9" * 20),
        ("--seed", "-5"),
        ("--batch", "100000000000"),
        ("--batch", "9" * 5000),
        ("--size", "2147483648"),
        ("--time-limit", "nan"),
        ("--time-limit", "1_0"),
        ("--budget-ratio", "\N{FULLWIDTH DIGIT ONE}"),
        ("--budget-ratio", " 0.5"),
    ],
)
def test_numbers_that_cannot_be_meant_are_refused(
    arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "mlp", *arguments]) == 2
    errors = capsys.readouterr().err
    assert f"invalid value for {arguments[0]}: " in errors
    assert "Traceback" not in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("plan", "mlp", "--json", ""), "invalid value for --json: expected a path, got ''"),
        (("train", "mlp", "--data", ""), "invalid value for --data: expected a path, got ''"),
        (
            ("plan", "mlp", "--budget", "cpu=1MiB", "cpu=2MiB"),
            "option --budget: cpu is given twice",
        ),
        (
            ("train", "mlp", "--validation", "20%"),
            "a share such as 0.2, or a source of data, for valid",
        ),
        (
            ("train", "mlp", "--loss", "cross_entropy(ignore_index=99999999999999999999)"),
            "ignore_index must be a number of 64 bits",
        ),
        (("train", "mlp", "--loss", "cross_entropy()()"), "expected a loss such as"),
        (("pareto", "mlp", "--ratios", "2", "x"), "invalid value for --ratios: expected a number"),
        (("export", "mlp"), "expected the options --output and --target"),
        (("--verison",), "unknown option --verison; did you mean --version?"),
        (("plan", "LeNet"), "did you mean lenet?"),
        (("plan", "model.pth"), "such files hold weights"),
        (("plan", "{folder}/model.onnx"), "found a directory"),
        (("plan", "{folder}/model.pt2"), "found a directory"),
    ],
)
def test_a_slip_is_told_with_what_was_expected(
    arguments: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("model.onnx", "model.pt2"):
        (tmp_path / name).mkdir()
    assert main([each.format(folder=tmp_path) for each in arguments]) == 2
    assert said in capsys.readouterr().err
