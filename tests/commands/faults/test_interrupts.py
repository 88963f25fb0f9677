"""SIGINT and SIGTERM end every command in seconds and leave no process and no unfinished file."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm
import pytest
import tvm_ffi
from tvm import te, tirx

from tests.commands.faults.forked import ForkServer
from tests.commands.faults.interruption import (
    Outcome,
    interrupted,
    left_after,
    once_started,
    once_worked,
)
from tests.commands.faults.long_commands import LONG_COMMANDS, QUICK_COMMANDS
from tvm_xengine.commands.interrupts import Interrupts

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

MEASURED = ("plan", "lenet", "--costs", "measured", "--cache", "measurements.jsonl")

MOST_S = 3.0
"""From the signal to the end of the command."""


@pytest.mark.parametrize(
    ("seconds", "sent"), [(0.0, signal.SIGINT), (0.1, signal.SIGTERM), (4.0, signal.SIGINT)]
)
def test_a_plan_ends_at_any_moment(seconds: float, sent: signal.Signals, tmp_path: Path) -> None:
    outcome = interrupted(LONG_COMMANDS["plan"].arguments, tmp_path, sent, once_started(seconds))
    assert outcome.faults(sent) == []


@pytest.mark.slow
def test_a_fork_with_everything_imported_is_interrupted_like_a_process(tmp_path: Path) -> None:
    folder = tmp_path / "command"
    with ForkServer() as server:
        for sent in (signal.SIGINT, signal.SIGTERM):
            outcome = interrupted(
                QUICK_COMMANDS["train"].arguments, folder, sent, once_worked(1.0), server.start
            )
            assert outcome.code in (128 + sent, -sent)
            assert outcome.faults(sent) == []


@pytest.mark.slow
def test_an_export_leaves_nothing_beside_its_directory(tmp_path: Path) -> None:
    outcome = interrupted(
        LONG_COMMANDS["export"].arguments, tmp_path, signal.SIGTERM, once_started(6.0)
    )
    assert outcome.faults(signal.SIGTERM) == []


def once_measured(cache: Path) -> Callable[[subprocess.Popen[str]], None]:
    """When a measurement is in the file."""

    def wait(process: subprocess.Popen[str]) -> None:
        while process.poll() is None:
            if cache.exists() and "compute_us" in cache.read_text():
                return
            time.sleep(0.02)

    return wait


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_measuring_keeps_what_was_measured(
    sent: signal.Signals, tmp_path: Path
) -> None:
    """The library that measures in other processes has unblocked the signals by then."""
    cache = tmp_path / "measurements.jsonl"
    outcome = interrupted(MEASURED, tmp_path, sent, once_measured(cache))
    assert outcome.code == 128 + sent, outcome.errors
    assert outcome.faults(sent) == []
    rows = [json.loads(line) for line in cache.read_text().splitlines()]
    measured = [row for row in rows if "compute_us" in row]
    assert measured


@pytest.mark.slow
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
    """The first kernels are measured before the first search."""
    name, *options = command
    arguments = (name, "mlp", "--costs", "active", "--cache", "m.jsonl", "--json", "r.json")
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
@pytest.mark.parametrize("name", LONG_COMMANDS)
def test_at_a_hundred_random_moments(name: str, tmp_path: Path) -> None:
    """100 moments of each command, spread over its first 10 s; the table is printed."""
    random_of = random.Random(name)
    rows: list[tuple[float, signal.Signals, Outcome]] = []
    for number in range(100):
        moment = random_of.uniform(0, 10)
        sent = random_of.choice([signal.SIGINT, signal.SIGTERM])
        folder = tmp_path / str(number)
        LONG_COMMANDS[name].prepare(folder)
        outcome = interrupted(LONG_COMMANDS[name].arguments, folder, sent, once_started(moment))
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


STUBBORN = """
import subprocess, sys, tempfile
from tvm_xengine.commands.interrupts import Interrupts, interruptible

with interruptible(Interrupts()):
    try:
        print("begun", flush=True)
        while True:
            pass
    except KeyboardInterrupt:
        pass
    while True:
        subprocess.Popen(["sleep", "300"])
        tempfile.mkstemp()
"""
"""A main thread that loses the interrupt, as native code does, and goes on."""


def test_who_loses_the_interrupt_leaves_nothing_either(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
        start_new_session=True,
    )
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    for _ in range(2):  # the second one asks to leave at once
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert left_after(process.pid, time.monotonic() + 5) == []
    assert list(temporary.iterdir()) == []


LATE = """
import signal, sys
from tvm_xengine.commands import process

class Late(process.Interrupts):
    def finish(self):
        super().finish()
        self.take(signal.SIGTERM)

process.Interrupts = Late
sys.argv[1:] = ["--version"]
sys.exit(process.run_process())
"""
"""A signal that comes when the command has done its work, and its temporary folder is removed."""


def test_a_signal_after_the_work_is_in_the_exit_code() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "")


_LATE = """
import os, signal, sys, time
from tvm_xengine.commands import interrupts, process

def take_late(self, number, taken=interrupts.Interrupts.take):
    time.sleep(0.3)
    taken(self, number)

def interrupted(*_):
    if {unblocked}:  # as the resource tracker of loky leaves it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    os.kill(os.getpid(), signal.SIGINT)
    return 0

interrupts.Interrupts.take, process.run = take_late, interrupted
sys.exit(process.run_process())
"""


@pytest.mark.parametrize("unblocked", [False, True])
def test_a_signal_that_a_thread_has_taken_and_not_told_is_in_the_exit_code(unblocked: bool) -> None:
    """The thread may have no turn before the command ends."""
    command = [sys.executable, "-c", _LATE.format(unblocked=unblocked)]
    assert subprocess.run(command, check=False).returncode == 130


def rewrite(nudge: Callable[[], None]) -> None:
    """Let TVM call back from a rewrite."""
    x = te.placeholder((4,), name="x")
    kernel = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + x[i])])

    def nudged(store: tirx.BufferStore) -> tirx.BufferStore:
        nudge()
        return store

    tvm_ffi.structural_map(kernel.body, [(tirx.BufferStore, nudged)])


def compile_with_llvm(nudge: Callable[[], None]) -> None:
    """Let LLVM call back with what it has compiled, as numba does."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    module = llvm.parse_assembly("define i32 @one() { ret i32 1 }")
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.set_object_cache(notify_func=lambda *_: nudge())
    engine.finalize_object()


@pytest.mark.parametrize("run", [rewrite, compile_with_llvm])
def test_no_exception_passes_native_code(run: Callable[[Callable[[], None]], None]) -> None:
    """One that does may corrupt the heap, or is lost: it comes once the code is left."""
    interrupts, returned = Interrupts(), []

    def nudge() -> None:
        signal.raise_signal(signal.SIGUSR1)
        returned.append(True)

    before = signal.signal(signal.SIGUSR1, interrupts.raise_in_main)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(nudge)
            signal.sigtimedwait([], 5.0)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(returned) == 1
