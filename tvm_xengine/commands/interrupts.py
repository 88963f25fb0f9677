"""SIGINT and SIGTERM end a command within seconds, and leave no process and no unfinished file.

Both signals are blocked in every thread and taken by one that waits for them. So they arrive while
the main thread runs native code, and child processes, which inherit the mask, do not see a Ctrl-C of
their terminal. Libraries may unblock them in the main thread (the resource tracker of loky and
multiprocessing does), so they also have a handler, whose pipe another thread reads. The main thread
then gets a KeyboardInterrupt, which may write what there is. Native code can delay that, and code
that passes exceptions on can lose it (TVM makes a RuntimeError of it). So the process ends after
`GRACE_S` in any case.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tvm_xengine.commands.entry import taken_signals
from tvm_xengine.files.temporary import remove_unfinished, unfinished

GRACE_S = 2.0
"""How long the main thread may take to end in order. A command ends within 3 s of the signal, of which
removing files and ending processes may need the rest."""

_PARK_S = 0.2
"""How long to wait for the main thread to stop where it is; native code may keep it."""

_FLUSH_S = 0.5
"""How long a main thread that has come to its end may take to write what is in its buffers."""

_MOST_LOOKS = 20
"""For processes to kill; who starts more of them meanwhile is no command of ours."""

_STDERR = 2  # file descriptor of standard error
_SHOW_CURSOR = b"\x1b[?25h"
"""A progress display hides the cursor; the main thread may hold the lock of Python's stream."""

_UNSAFE = ("tvm_ffi/structural.py", "llvmlite/binding/")
"""An exception that leaves a callback of the first's functions may corrupt the heap (tvm-ffi 0.1.14, seen as
an abort in `malloc` while blocks of slices were rewritten). The second, with which numba loads and compiles
functions, releases memory twice where an exception comes between a call of LLVM and the note of whose the
memory is (llvmlite 0.50, seen as a segmentation fault of one command in a thousand)."""

_AGAIN_S = 0.005
"""When to look again whether the main thread has left such code, which takes milliseconds."""

_NUDGE = signal.SIGUSR1
"""Sent to the main thread, because the others are blocked there; it ends sleeping and waiting, too."""


_LAST = signal.SIGUSR2
"""Ends the thread that waits for signals, behind all that came before it."""

_SETTLE_S = 1.0
"""How long threads may take to say which signals they have; on a busy machine a thread waits for its turn."""


class Interrupts:
    """What has been asked of this process by signals.

    Attributes
    ----------
    received
        The first signal, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._lock = threading.Lock()
        self._is_done = threading.Event()
        self._main = threading.main_thread().ident or 0
        self._raises = True
        self._is_leaving = False
        self._is_parked = threading.Event()
        self._waiting: list[threading.Thread] = []
        self._pipe: int | None = None

    def listen(self, taken: set[signal.Signals]) -> None:
        """Take these signals from now on, in threads of their own."""
        out, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
        for each in taken:
            signal.signal(each, _leave_to_the_pipe)
        self._waiting = [
            _in_thread(self.wait_for, taken),
            _in_thread(self.read_from, out, taken),
        ]

    def settle(self) -> None:
        """Wait until the signals that have left the system are known; the threads end."""
        if self._pipe is None:
            return
        waits, _ = self._waiting
        if waits.is_alive():
            signal.pthread_kill(waits.ident or 0, _LAST)
        os.write(self._pipe, b"\0")
        for one in self._waiting:
            one.join(_SETTLE_S)

    @property
    def exit_code(self) -> int | None:
        """128 and the signal, as a shell reports it; None where there was none."""
        return None if self.received is None else 128 + self.received

    def wait_for(self, taken: set[signal.Signals]) -> None:
        """Take blocked signals, from a thread that does nothing else."""
        while (number := signal.sigwait({*taken, _LAST})) != _LAST:
            self.take(number)

    def read_from(self, pipe: int, taken: set[signal.Signals]) -> None:
        """Take the signals whose numbers come out of a pipe, from a thread that does nothing else."""
        while number := os.read(pipe, 1)[0]:
            if number in taken:
                self.take(number)

    def take(self, number: int) -> None:
        """End the command in order at the first signal, at once at the second."""
        with self._lock:
            is_first = self.received is None
            self.received = number if is_first else self.received
        if not is_first:
            self.leave()
        _be_silent()
        if not self._is_done.is_set():
            signal.pthread_kill(self._main, _NUDGE)
        threading.Thread(target=self._leave_in_time, daemon=True).start()

    def finish(self) -> None:
        """The main thread has come to its end in order."""
        self._raises = False
        self._is_done.set()

    def leave(self) -> None:
        """End this process at once, with its children, and remove its unfinished files."""
        self._park_main()
        end_children()
        remove_unfinished()
        if os.isatty(_STDERR):
            os.write(_STDERR, _SHOW_CURSOR)
        os._exit(self.exit_code or 0)

    def raise_in_main(self, _signal: int, frame: FrameType | None) -> None:
        """The handler of the nudge."""
        if self._is_leaving:
            self._is_parked.set()
            threading.Event().wait()  # until the process ends
        if self._raises and _is_unsafe(frame):
            again = threading.Timer(_AGAIN_S, signal.pthread_kill, (self._main, _NUDGE))
            again.daemon = True
            again.start()
        elif self._raises:
            self._raises = False  # what cleans up is not interrupted once more
            raise KeyboardInterrupt

    def _park_main(self) -> None:
        """Stop the main thread where it is, so that it starts no process and writes no file meanwhile."""
        if threading.current_thread() is not threading.main_thread():
            self._is_leaving = True
            signal.pthread_kill(self._main, _NUDGE)
            self._is_parked.wait(_PARK_S)

    def _leave_in_time(self) -> None:
        if self._is_done.wait(GRACE_S):
            time.sleep(_FLUSH_S)
        self.leave()


def _is_unsafe(frame: FrameType | None) -> bool:
    """Whether what runs, or what has called it, is code that no exception may pass."""
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in _UNSAFE):
            return True
        frame = frame.f_back
    return False


@contextmanager
def interruptible(interrupts: Interrupts) -> Iterator[None]:
    """Take SIGINT and SIGTERM while a command runs; in the main thread of a process of its own.

    A signal that the process was started to ignore (``nohup``) stays ignored. Temporary files of this
    process and its children lie in one folder, which is removed in the end.
    """
    taken = taken_signals()
    signal.signal(_NUDGE, interrupts.raise_in_main)
    signal.pthread_sigmask(signal.SIG_BLOCK, {*taken, _LAST})
    if taken:
        interrupts.listen(taken)
    with _own_temporary_folder():
        try:
            yield
        finally:
            interrupts.finish()


@contextmanager
def _own_temporary_folder() -> Iterator[None]:
    with unfinished(Path(tempfile.gettempdir()) / "tvm-xengine") as folder:
        folder.mkdir(mode=0o700)
        tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
        yield


def _in_thread(function: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def end_by_signals(interrupts: Interrupts) -> None:
    """From here on a signal ends this process at once, as if nobody took it: there is nothing to clean up.

    The interpreter's own end takes long with many modules, and threads that take signals stop first.
    One that a thread has taken, and had no turn yet to tell, is known afterwards.
    """
    for each in taken_signals():
        signal.signal(each, signal.SIG_DFL)
    interrupts.settle()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, taken_signals())


def _leave_to_the_pipe(_signal: int, _frame: object) -> None:
    """The handler of the signals: their numbers are in the pipe when it runs."""


def _be_silent() -> None:
    """Report no exceptions from here on: they are what the interrupt has become on its way.

    Native code prints them, too, such as numpy's when an import of it was interrupted.
    """
    sys.excepthook = sys.unraisablehook = threading.excepthook = _ignore


def _ignore(*_what: object) -> None:
    pass


def end_children() -> None:
    """Kill all processes below this one, those excepted that only clean up after it.

    It looks again until there are none, because another thread may start one meanwhile. Does nothing
    where there is no ``/proc``; there children end when their pipes close.
    """
    for _ in range(_MOST_LOOKS):
        if not [child for child in _descendants(os.getpid()) if _killed(child)]:
            return


def _killed(process: int) -> bool:
    """Whether a process was there to be killed."""
    try:
        if b"resource_tracker" in (command := Path(f"/proc/{process}/cmdline").read_bytes()):
            return False
        os.kill(process, signal.SIGKILL)
    except OSError:
        return False
    return bool(command)  # that of one which has ended and is not waited for is empty


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # The name, in parentheses, may hold anything; state and parent follow it.
            parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
        except (OSError, IndexError):
            continue
        children.setdefault(int(parent), []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found
