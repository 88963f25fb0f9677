"""Processes of a run end together, say which one failed, and go on from the last checkpoint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cluster.launched import (
    AUTOMATIC,
    DIVIDED,
    PLACED,
    UNEQUAL,
    Launched,
    platform_file,
    spawned,
)
from tests.cluster.trains import Settings
from tests.robustness.lost_ranks import ROUNDING, LostRanks
from tvm_xengine.cluster.launch import LOST, Failure, Replaced, _is_stopped, run_processes
from tvm_xengine.commands.process import run
from tvm_xengine.commands.run.processes import launch
from tvm_xengine.commands.run.processes.launch import Change
from tvm_xengine.commands.run.processes.launched_options import (
    option_value,
    with_option,
    without_devices,
)

_SECOND_NS = 10**9

_WAITS = """
import os, sys, time
if os.environ["RANK"] == "1":
    {what}
time.sleep(60)
"""


def test_a_rank_that_is_killed_ends_the_others_and_is_named() -> None:
    failed = run_processes(["-c", _WAITS.format(what="os.kill(os.getpid(), 9)")], 3)
    assert failed == Failure(1, -signal.SIGKILL, "", lost=(1,))


def test_a_rank_that_the_others_have_lost_is_told_apart() -> None:
    program = "import os, sys, time; time.sleep(60) if os.environ['RANK'] == '1' else sys.exit(75)"
    assert run_processes(["-c", program], 3) == Failure(0, 75, "", lost=(1,))


def test_a_rank_that_is_stopped_once_the_others_have_succeeded_is_given_up() -> None:
    program = (
        "import os, signal; os.environ['RANK'] == '1' and os.kill(os.getpid(), signal.SIGSTOP)"
    )
    assert run_processes(["-c", program], 3, timeout_s=0.5) == Failure(1, LOST, "", lost=(1,))


def test_a_rank_that_was_stopped_for_a_while_goes_on() -> None:
    program = """
import os, signal, subprocess, sys
if os.environ["RANK"] == "1":
    again = f"import os, signal, time; time.sleep(0.5); os.kill({os.getpid()}, signal.SIGCONT)"
    subprocess.Popen([sys.executable, "-c", again])
    os.kill(os.getpid(), signal.SIGSTOP)
"""
    assert run_processes(["-c", program], 2, timeout_s=10.0) is None


def test_a_run_that_others_replace_is_ended(tmp_path: Path) -> None:
    program = "import os, time; open(os.environ['RANK'], 'w').close(); time.sleep(60)"
    begun = [tmp_path / str(rank) for rank in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        outcome = run_processes(
            ["-c", program], 2, is_replaced=lambda: all(file.exists() for file in begun)
        )
    assert outcome == Replaced()


def test_a_changed_platform_is_used_once_a_checkpoint_is_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    platform, checkpoint = platform_file(tmp_path, (0, 1)), tmp_path / "run.ckpt"
    change = Change(platform, str(checkpoint))
    checkpoint.touch()
    os.utime(checkpoint, ns=(0, platform.stat().st_mtime_ns + 1))
    assert not change.is_due()
    os.utime(platform, ns=(0, platform.stat().st_mtime_ns + 2))
    assert not change.is_due()
    os.utime(checkpoint, ns=(0, platform.stat().st_mtime_ns + 3))
    assert change.is_due()
    platform.write_text("[[device]]\n")
    os.utime(checkpoint, ns=(0, platform.stat().st_mtime_ns + 4))
    assert not change.is_due()
    assert "the run goes on as it is" in capfd.readouterr().err


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
    text = platform_file(tmp_path, (0, 1)).read_text()
    gap.write_text(text.replace("rank = 1", "rank = 2"))
    files = {"{one}": str(platform_file(tmp_path, (0, 0))), "{gap}": str(gap)}
    assert run(["launch", *(files.get(each, each) for each in arguments)]) == 2
    assert said in capfd.readouterr().err


def test_one_process_does_not_train_on_devices_of_two(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    platform = str(platform_file(tmp_path, (0, 1)))
    assert run(["train", "mlp", "--platform", platform, "--costs", "roofline", "--steps", "1"]) == 2
    assert "tvm-xengine launch" in capfd.readouterr().err


@pytest.mark.slow
def test_killed_at_any_moment_a_run_ends_and_resumes_to_the_same_losses(tmp_path: Path) -> None:
    trials = LostRanks(tmp_path, spawned)
    for number in range(6):
        assert not trials.judged(number).faults


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [PLACED, DIVIDED, AUTOMATIC, UNEQUAL], ids=["layers", "halves", "auto", "unequal"]
)
def test_a_run_goes_on_without_the_devices_of_a_lost_rank(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    whole = Launched(tmp_path, tmp_path, options)
    assert whole.end() == 0, whole.said
    whole.checkpoint.unlink()
    # A pattern that pins an op to the lost device goes with it, and so does its share.
    started = Launched(tmp_path, tmp_path, options, restarts=1)
    _, victim = started.ranks()
    started.wait_for_checkpoint()
    os.kill(victim, signal.SIGKILL)
    assert started.end() == 0, started.said
    np.testing.assert_allclose(started.losses, whole.losses[-len(started.losses) :], **ROUNDING)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [PLACED, DIVIDED, AUTOMATIC, UNEQUAL], ids=["layers", "halves", "auto", "unequal"]
)
def test_a_rank_that_joins_is_used_after_the_next_checkpoint(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    """The lost rank's device comes back: its platform file is written anew, as it was."""
    whole = Launched(tmp_path, tmp_path, options, steps=1000)
    assert whole.end() == 0, whole.said
    whole.checkpoint.unlink()
    started = Launched(tmp_path, tmp_path, options, steps=1000, restarts=1)
    _, victim = started.ranks()
    started.wait_for_checkpoint()
    os.kill(victim, signal.SIGKILL)
    started.wait_while(lambda: "going on" not in started.said)
    (tmp_path / "platform_0_1.toml").touch()
    assert started.end() == 0, started.said
    assert started.said.count("going on from") == 2
    assert "going on from" in (last := started.said.splitlines()[-1])
    assert last.endswith("d0, d1")
    np.testing.assert_allclose(started.losses, whole.losses[-len(started.losses) :], **ROUNDING)


@pytest.mark.slow
@pytest.mark.parametrize("through_memory", [True, False])
def test_calls_of_all_ranks_are_traced_and_planned_again(
    through_memory: bool, tmp_path: Path
) -> None:
    trace, page = tmp_path / "trace.json", tmp_path / "report.html"
    plain = Launched(
        *(tmp_path, tmp_path, (*PLACED, "--trace", str(trace), "--report", str(page))),
        steps=30,
        through_memory=through_memory,
    )
    assert plain.end() == 0, plain.said
    runs = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    at = [sorted((e["args"]["step"], e["tid"]) for e in runs if e["pid"] == pid) for pid in (0, 1)]
    assert at[0] == at[1]  # planned and measured
    assert len({lane for _, lane in at[0]}) >= 3  # both devices, and a link
    assert page.stat().st_size
    plain.checkpoint.unlink()
    again = Launched(
        tmp_path, tmp_path, (*PLACED, "--replan"), steps=30, through_memory=through_memory
    )
    losses = plain.losses
    assert again.end() == 0, again.said
    assert again.losses == losses
    assert again.document["replanned"]["rounds"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        (signal.SIGSTOP, LOST, "error: rank 1 has ended or "),
        (signal.SIGKILL, 128 + signal.SIGKILL, "rank 1 was ended by SIGKILL"),
    ],
)
def test_a_lost_rank_ends_those_that_wait_for_it_in_memory(
    sent: signal.Signals, code: int, said: str, tmp_path: Path
) -> None:
    started = Launched(tmp_path, tmp_path, steps=100_000, timeout_s=8.0, through_memory=True)
    _, victim = started.ranks()
    started.wait_for_checkpoint()
    os.kill(victim, sent)
    assert started.end() == code
    assert said in started.said


@pytest.mark.slow
def test_an_interrupt_ends_all_ranks(tmp_path: Path) -> None:
    started = Launched(tmp_path, tmp_path)
    children = started.ranks()
    time.sleep(1.0)
    started.process.send_signal(signal.SIGTERM)
    assert started.end() == 128 + signal.SIGTERM
    assert not any(Path(f"/proc/{child}").exists() for child in children)


@pytest.mark.parametrize(("cores", "is_said"), [(1, True), (2, False)])
def test_that_ranks_share_cores_is_said(
    cores: int,
    is_said: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(launch, "usable_cores", lambda: cores)
    monkeypatch.setattr(launch, "run_processes", lambda *_, **__: None)
    platform = platform_file(tmp_path, (0, 1))
    launch.run_launch(["train", "mlp", "--platform", str(platform)], 8.0)
    assert ("2 ranks share the cores of this machine (1)" in capsys.readouterr().err) is is_said


def test_a_platform_that_changes_while_ranks_are_lost_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change comes after the platform was read, and before the run goes on."""
    platform, checkpoint = platform_file(tmp_path, (0, 1)), tmp_path / "run.ckpt"
    was_due = []

    def run(*_: object, is_replaced: Callable[[], bool], **__: object) -> Failure | None:
        if not was_due:
            was_due.append(is_replaced())
            os.utime(platform, ns=(platform.stat().st_mtime_ns + _SECOND_NS,) * 2)
            return Failure(1, -signal.SIGKILL, "", (1,))
        checkpoint.touch()
        os.utime(checkpoint, ns=(platform.stat().st_mtime_ns + _SECOND_NS,) * 2)
        was_due.append(is_replaced())
        return None

    monkeypatch.setattr(launch, "run_processes", run)
    command = ["train", "mlp", "--platform", str(platform), "--checkpoint", str(checkpoint)]
    launch.run_launch(command, 8.0, restarts=1)
    assert was_due == [False, True]


def test_a_process_that_has_just_ended_is_not_stopped() -> None:
    """It ends between a look at its code and one at whether it is stopped."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not _is_stopped(process)
    assert process.wait() == 0
