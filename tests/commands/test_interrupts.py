"""SIGINT and SIGTERM end every command in seconds and leave no process and no unfinished file."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.interruption import Outcome, interrupted

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

COMMANDS = {
    "plan": ("plan", "resnet8", "--budget-ratio", "0.5", "--json", "report.json"),
    "measured": ("plan", "resnet8", "--costs", "measured", "--cache", "measurements.jsonl"),
    "pareto": ("pareto", "resnet8", "--json", "front.json"),
    "train": ("train", "lenet", "--steps", "100000", "--budget-ratio", "0.9"),
    "export": ("export", "resnet8", "-o", "package", "--arena-bytes", "8MiB", "--target", "host"),
    "tune": ("tune", "resnet8", "--database", "tuned", "--cache", "measurements.jsonl"),
    "collect": ("costs", "collect", "--dataset", "data.jsonl", "--kernels", "500"),
}

MOST_S = 3.0
"""From the signal to the end of the command."""


def after(seconds: float) -> Callable[[subprocess.Popen[str]], None]:
    def wait(process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.01)

    return wait


def has_taken_signals(process: subprocess.Popen[str]) -> bool:
    """Whether the command's own code runs: it has blocked the signals (bits of SIGINT and SIGTERM)."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    blocked = int(status.split("SigBlk:")[1].split()[0], 16)
    return bool(blocked & (1 << (signal.SIGTERM - 1)))


def once_started(seconds: float) -> Callable[[subprocess.Popen[str]], None]:
    """`seconds` after the interpreter has begun with the command's code."""

    def wait(process: subprocess.Popen[str]) -> None:
        while process.poll() is None and not has_taken_signals(process):
            time.sleep(0.005)
        after(seconds)(process)

    return wait


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seconds", [0.0, 0.1, 4.0])
def test_a_plan_ends_at_any_moment(seconds: float, sent: signal.Signals, tmp_path: Path) -> None:
    outcome = interrupted(COMMANDS["plan"], tmp_path, sent, once_started(seconds))
    assert outcome.faults(sent) == []


def test_an_export_leaves_nothing_beside_its_directory(tmp_path: Path) -> None:
    outcome = interrupted(COMMANDS["export"], tmp_path, signal.SIGTERM, once_started(6.0))
    assert outcome.faults(signal.SIGTERM) == []


def once_measured(cache: Path) -> Callable[[subprocess.Popen[str]], None]:
    """When a measurement is in the file."""

    def wait(process: subprocess.Popen[str]) -> None:
        while process.poll() is None:
            if cache.exists() and "compute_us" in cache.read_text():
                return
            time.sleep(0.02)

    return wait


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_measuring_keeps_what_was_measured(
    sent: signal.Signals, tmp_path: Path
) -> None:
    """The library that measures in other processes has unblocked the signals by then."""
    cache = tmp_path / "measurements.jsonl"
    outcome = interrupted(COMMANDS["measured"], tmp_path, sent, once_measured(cache))
    assert outcome.code == 128 + sent, outcome.errors
    assert outcome.faults(sent) == []
    rows = [json.loads(line) for line in cache.read_text().splitlines()]
    measured = [row for row in rows if "compute_us" in row]
    assert 0 < len(measured) < 3 * 2 * 50  # some, but not three rounds of all kernels


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("plan", "--budget-ratio", "0.5"), "devices"),
        (("pareto", "--ratios", "1", "0.5"), "points"),
    ],
)
def test_an_interrupt_of_active_costs_writes_the_best_so_far(
    command: tuple[str, ...], key: str, tmp_path: Path
) -> None:
    """Kernels are measured once there is a first plan."""
    name, *options = command
    arguments = (name, "lenet", "--costs", "active", "--cache", "m.jsonl", "--json", "r.json")
    wait = once_measured(tmp_path / "m.jsonl")
    outcome = interrupted((*arguments, *options), tmp_path, signal.SIGINT, wait)
    assert outcome.faults(signal.SIGINT) == []
    assert outcome.code == 130
    assert json.loads((tmp_path / "r.json").read_text())[key]


def test_a_process_that_ignores_ctrl_c_goes_on_doing_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tvm_xengine", "--help"],
        capture_output=True,
        timeout=120,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN) and None,
    )
    assert done.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_at_a_hundred_random_moments(name: str, tmp_path: Path) -> None:
    """100 moments of each command, spread over its first 10 s; the table is printed."""
    random_of = random.Random(name)
    rows: list[tuple[float, signal.Signals, Outcome]] = []
    for number in range(100):
        moment = random_of.uniform(0, 10)
        sent = random_of.choice([signal.SIGINT, signal.SIGTERM])
        folder = tmp_path / str(number)
        folder.mkdir()
        outcome = interrupted(COMMANDS[name], folder, sent, once_started(moment))
        rows.append((moment, sent, outcome))
        sys.stdout.write(
            f"{name:9} {moment:6.2f} s {sent.name:8} {outcome.code} {outcome.seconds:5.2f} s\n"
        )
    faults = [
        (moment, sent.name, outcome.seconds, outcome.faults(sent))
        for moment, sent, outcome in rows
        if outcome.faults(sent) or outcome.seconds > MOST_S
    ]
    assert faults == []
