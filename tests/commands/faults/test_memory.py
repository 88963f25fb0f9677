"""With too little memory a command ends in one sentence, at once."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tvm_xengine.commands import process
from tvm_xengine.commands.memory import NO_MEMORY, has_room

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space")

WITHIN_S = 60.0
"""A command that waits for ever would be killed then; one that is refused takes a second."""


def limited(megabytes: int, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command with so much address space."""
    limit = megabytes << 20
    return subprocess.run(
        [sys.executable, "-m", "tvm_xengine", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=WITHIN_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )


@pytest.mark.parametrize("megabytes", [60, 120, 300, 600, 900])
@pytest.mark.parametrize(
    "command",
    [
        ("train", "lenet", "--steps", "1"),
        ("costs", "train", "--dataset", "."),
        ("explain", "plan.json"),
    ],
    ids=lambda command: command[0],
)
def test_a_command_that_cannot_begin_says_so(
    command: tuple[str, ...], megabytes: int, tmp_path: Path
) -> None:
    done = limited(megabytes, tmp_path, *command)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "no more memory" in done.stderr or "MiB of address space" in done.stderr


def test_help_needs_little(tmp_path: Path) -> None:
    assert limited(300, tmp_path, "plan", "--help").returncode == 0


def test_room_is_what_can_be_had() -> None:
    assert has_room(1 << 20)
    assert not has_room(1 << 60)


def test_a_failure_without_memory_to_tell_it_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def told(_error: Exception, _reports: Path) -> tuple[str, int]:
        raise MemoryError

    monkeypatch.setattr(process, "_told", told)
    assert process.run(["explain", "no.json"], tmp_path) == 2
    assert capsys.readouterr().err == f"tvm-xengine: error: {NO_MEMORY}\n"
