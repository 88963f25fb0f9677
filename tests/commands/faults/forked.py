"""Commands that begin with everything imported: forks of one process that has done so.

Imports take most of a command's first seconds on a busy machine. A fork begins where they end, so that a
random moment of the same time meets the command's own work. ``python -m tests.commands.faults.forked``
is the process that forks; it reads one request a line and answers with the numbers of processes and
how they ended.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue

import tvm_xengine

_LIBRARIES = ("tvm", "tvm.relax.frontend.torch", "torch", "onnx", "numba")

NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""numpy's library starts its threads when it is imported, and threads do not survive a fork."""


class ForkServer:
    """The process that forks; a context manager that ends it."""

    def __enter__(self) -> ForkServer:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.commands.faults.forked"],
            env={**os.environ, **NO_THREADS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert json.loads(self._process.stdout.readline()) == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def start(self, arguments: Sequence[str], folder: Path, env: dict[str, str]) -> ForkedProcess:
        """Start a command in `folder`, as the leader of a session."""
        assert self._process.stdin is not None
        errors = folder.with_name(f"{folder.name}.errors")
        request = {"arguments": [*arguments], "cwd": str(folder), "env": env, "errors": str(errors)}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answers: Queue[int] = Queue()
        threading.Thread(target=self._read, args=(answers,), daemon=True).start()
        return ForkedProcess(answers.get(), answers, errors)

    def _read(self, answers: Queue[int]) -> None:
        """The number of the process, and its exit code once it has ended."""
        assert self._process.stdout is not None
        for _ in range(2):
            answers.put(json.loads(self._process.stdout.readline()))


class ForkedProcess:
    """What `interrupted` needs of a `subprocess.Popen`."""

    def __init__(self, pid: int, answers: Queue[int], errors: Path) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._answers = answers
        self._errors = errors

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._wait(0.0)

    def send_signal(self, sent: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(self.pid, sent)

    def communicate(self, timeout: float) -> tuple[None, str]:
        """Wait for its end, and return what it wrote to standard error."""
        if self._wait(timeout) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        text = self._errors.read_text(encoding="utf-8", errors="replace")
        self._errors.unlink()
        return None, text

    def _wait(self, timeout: float) -> int | None:
        if self.returncode is None:
            try:
                self.returncode = self._answers.get(timeout > 0, timeout or None)
            except Empty:
                return None
        return self.returncode


def import_everything() -> None:
    """Import what a command may need; a fork does not have the threads that began meanwhile."""
    for name in _LIBRARIES:
        importlib.import_module(name)
    for module in pkgutil.walk_packages(tvm_xengine.__path__, "tvm_xengine."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert len([*Path("/proc/self/task").iterdir()]) == 1, "threads do not survive a fork"


def _serve() -> dict[str, object] | None:
    """Fork for each request; returns in the forks only, with the request, and None in the end."""
    _say("ready")
    # Forks must not share a buffer of requests.
    while line := os.read(0, 1 << 20):
        request: dict[str, object] = json.loads(line)
        pid = os.fork()
        if not pid:
            return request
        _say(pid)
        _say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return None


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _become(arguments: list[str], cwd: str, env: dict[str, str], errors: str) -> None:
    """Make this fork what a new process of the command would be."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    null = os.open(os.devnull, os.O_RDWR)
    file = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor, target in ((null, 0), (null, 1), (file, 2)):
        os.dup2(descriptor, target)
    sys.argv[1:] = arguments


if __name__ == "__main__":
    # A shell starts what runs in the background with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import_everything()
    gc.freeze()
    if request := _serve():
        _become(**request)  # type: ignore[arg-type]
        runpy.run_module("tvm_xengine", run_name="__main__", alter_sys=True)
