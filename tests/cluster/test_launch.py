"""Processes of a run end together, say which one failed, and go on from the last checkpoint."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.trains import Settings
from tvm_xengine.cluster.launch import Failure, run_processes
from tvm_xengine.commands.process import run
from tvm_xengine.commands.run.processes.launched_options import (
    option_value,
    with_option,
    without_devices,
)

_WAITS = """
import os, sys, time
if os.environ["RANK"] == "1":
    {what}
time.sleep(60)
"""


def _platform(folder: Path, ranks: tuple[int, ...]) -> Path:
    path = folder / f"platform_{'_'.join(map(str, ranks))}.toml"
    Settings("mlp", "", ranks=ranks).platform.save(path)
    return path


def test_a_rank_that_is_killed_ends_the_others_and_is_named() -> None:
    failed = run_processes(["-c", _WAITS.format(what="os.kill(os.getpid(), 9)")], 3)
    assert failed == Failure(1, -signal.SIGKILL, "", lost=(1,))


def test_a_rank_that_the_others_have_lost_is_told_apart() -> None:
    program = "import os, sys, time; time.sleep(60) if os.environ['RANK'] == '1' else sys.exit(75)"
    assert run_processes(["-c", program], 3) == Failure(0, 75, "", lost=(1,))


def test_what_a_rank_has_said_is_returned() -> None:
    failed = run_processes(["-c", _WAITS.format(what="sys.exit('no room')")], 2)
    assert failed == Failure(1, 1, "no room", lost=())


@pytest.mark.parametrize(
    "command",
    [["train", "m", "--x", "1", "-q"], ["train", "m", "-q"], ["train", "m", "--x=1", "-q"]],
)
def test_an_option_is_given_another_value(command: list[str]) -> None:
    assert with_option(command, "--x", "2") == ["train", "m", "-q", "--x", "2"]
    assert option_value(with_option(command, "--x", "2"), "--x") == "2"


def test_values_that_name_a_lost_device_are_left_out() -> None:
    command = ["train", "m", "--pin", "a*=x", "b=y", "--budget=x=1MiB", "--budget", "x=2", "-q"]
    assert without_devices(command, {"x"}) == ["train", "m", "--pin", "b=y", "-q"]
    assert without_devices(command, {"y"}) == [each for each in command if each != "b=y"]
    assert without_devices(["--pin", "a=x", "-q"], {"x"}) == ["-q"]


def test_without_a_rank_the_others_are_numbered_anew() -> None:
    platform = Settings("mlp", "", ranks=(0, 1, 2, 1)).platform
    left = platform.without_ranks({1})
    assert [(device.name, device.rank) for device in left.devices] == [("d0", 0), ("d2", 1)]
    assert {(link.src, link.dst) for link in left.links} == {("d0", "d2"), ("d2", "d0")}
    assert platform.without_ranks({0}).home == "d1"
    with pytest.raises(ValueError, match="at least one device"):
        platform.without_ranks({0, 1, 2})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "mlp"], "launch takes the command train with its options, found 'plan'"),
        ([], "found none"),
        (["train", "mlp"], "give --platform FILE"),
        (["train", "mlp", "--platform", "{one}"], "all devices of the platform are on rank 0"),
        (["train", "mlp", "--platform", "{gap}"], "no device is on rank 1"),
    ],
)
def test_what_cannot_be_launched_is_refused(
    arguments: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gap = tmp_path / "gap.toml"
    text = _platform(tmp_path, (0, 1)).read_text()
    gap.write_text(text.replace("rank = 1", "rank = 2"))
    files = {"{one}": str(_platform(tmp_path, (0, 0))), "{gap}": str(gap)}
    assert run(["launch", *(files.get(each, each) for each in arguments)]) == 2
    assert said in capfd.readouterr().err


def test_one_process_does_not_train_on_devices_of_two(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    platform = str(_platform(tmp_path, (0, 1)))
    assert run(["train", "mlp", "--platform", platform, "--costs", "roofline", "--steps", "1"]) == 2
    assert "tvm-xengine launch" in capfd.readouterr().err


class _Run:
    """A training over two ranks, in a process group of its own."""

    def __init__(self, folder: Path, *further: str, restarts: int = 0) -> None:
        self.report = folder / "report.json"
        self.checkpoint = folder / "run.ckpt"
        text = (
            f"-m tvm_xengine launch --rank-timeout 10 --restarts {restarts}"
            f" train mlp --no-compare --platform {_platform(folder, (0, 1))} --costs roofline"
            f" --pin fc2*=d1 --time-limit 2 --steps 60 --checkpoint {self.checkpoint}"
            f" --checkpoint-every 3 --cache {folder / 'cache' / 'measurements.jsonl'}"
            f" --json {self.report}"
        )
        command = [*text.split(), *further]
        self.process = subprocess.Popen(
            [sys.executable, *command], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )

    def child(self, rank: int) -> int:
        """Process of a rank, once it has one."""
        while self.process.poll() is None:
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit() and _is_child(entry, self.process.pid, rank):
                    return int(entry.name)
            time.sleep(0.02)
        raise AssertionError(self.process.communicate()[1])

    def end(self) -> tuple[int, str]:
        said = self.process.communicate(timeout=900)[1]
        return self.process.returncode, said


def _is_child(entry: Path, parent: int, rank: int) -> bool:
    try:
        stat = (entry / "stat").read_text().rpartition(")")[2].split()
        return int(stat[1]) == parent and f"RANK={rank}\0" in (entry / "environ").read_text()
    except OSError:
        return False


@pytest.mark.slow
def test_killed_at_any_moment_a_run_ends_and_resumes_to_the_same_losses(tmp_path: Path) -> None:
    whole = _Run(tmp_path)
    assert whole.end()[0] == 0
    expected = json.loads(whole.report.read_text())["losses"]
    chance = random.Random(7)
    for trial in range(12):
        folder = tmp_path / str(trial)
        folder.mkdir()
        (folder / "cache").symlink_to(tmp_path / "cache")
        killed = _Run(folder)
        rank = trial % 2
        victim = killed.child(rank)
        while trial % 3 and not killed.checkpoint.exists() and killed.process.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.5))
        hangs = trial % 4 == 3
        os.kill(victim, signal.SIGSTOP if hangs else signal.SIGKILL)
        code, said = killed.end()
        if code == 0:  # it had ended before
            continue
        assert re.search(rf"rank {rank}\b", said), said
        resumed = _Run(folder, *(["--resume", str(killed.checkpoint)] * killed.checkpoint.exists()))
        code, said = resumed.end()
        assert code == 0, said
        losses = json.loads(resumed.report.read_text())["losses"]
        assert losses == expected[len(expected) - len(losses) :]


@pytest.mark.slow
def test_a_run_goes_on_without_the_devices_of_a_lost_rank(tmp_path: Path) -> None:
    lossless = _Run(tmp_path)
    assert lossless.end()[0] == 0
    expected = json.loads(lossless.report.read_text())["losses"]
    lossless.checkpoint.unlink()
    # The pattern that pins an op to the lost device goes with it.
    started = _Run(tmp_path, restarts=1)
    victim = started.child(1)
    while not started.checkpoint.exists():
        time.sleep(0.01)
    os.kill(victim, signal.SIGKILL)
    code, said = started.end()
    if "going on" in said:
        losses = json.loads(started.report.read_text())["losses"]
        assert losses == expected[len(expected) - len(losses) :]
    assert code == 0, said


@pytest.mark.slow
def test_an_interrupt_ends_all_ranks(tmp_path: Path) -> None:
    started = _Run(tmp_path)
    children = [started.child(rank) for rank in (0, 1)]
    time.sleep(1.0)
    started.process.send_signal(signal.SIGTERM)
    assert started.end()[0] == 128 + signal.SIGTERM
    assert not any(Path(f"/proc/{child}").exists() for child in children)
