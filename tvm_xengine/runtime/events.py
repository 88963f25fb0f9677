"""Events between threads that run kernels, as semaphores of the operating system.

Code that the virtual machine calls waits for them and signals them, so that no Python runs and its
interpreter is not locked in between.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import tvm
from tvm import ir, tirx

WAIT, SLEEP, SIGNAL = "xengine_wait", "xengine_sleep", "xengine_signal"
SPIN, KEEP = "xengine_spin", "xengine_keep"
"""Functions of `event_functions`; all take the tensor of the events and the number of one."""
_WORDS = 8
"""Words of an event: 64 bytes, a line of the cache. A semaphore of POSIX takes 32 of them here."""
_COUNTER = 7
"""Word of an event that counts tries."""
_TRIES = 5000
"""How often a waiter looks before it sleeps, each time leaving its core to whom else wants it: for some
4 ms, longer than most waits of a step. To be woken up takes 26 us (measured on two cores of an EPYC), to
look 0.75 us; with 100 tries two devices lost 3 % on ResNet-8 where they gain 16 %."""
_SPINS = 10_000
"""How often a process looks that waits for another one, without leaving its core: for some 0.1 ms. Leaving it
gives a whole turn of some milliseconds to any other process that wants it; to sleep gives the core back as
soon as the event has happened."""
_KEPT_SPINS = 1_200_000
"""How often a stream looks that has cores of its own in this process, without leaving them: for some 4 ms.
Beside a process of lower priority a step of ResNet-8 on two cores took 39 ms in place of 14 with `_TRIES`."""


def can_overlap() -> bool:
    """Whether this system has semaphores in plain memory; macOS and Windows do not."""
    return sys.platform.startswith("linux")


class Events:
    """A number of events, none of which has happened.

    Parameters
    ----------
    shared
        Zeros in memory that several processes see, as `words` says; None makes events of this process.
        One of the processes calls `reset` before any of them uses an event.

    Attributes
    ----------
    count
        Number of events.
    tensor
        The argument of the functions.
    """

    def __init__(self, count: int, shared: tvm.runtime.Tensor | None = None) -> None:
        self.count, self._is_shared = count, shared is not None
        self._system = ctypes.CDLL(None, use_errno=True)
        if shared is not None:
            self.tensor = shared
            return
        self.tensor = tvm.runtime.tensor(np.zeros(self.words(count), "int64"))
        self.reset()

    @staticmethod
    def words(count: int) -> int:
        """Numbers of type int64 that so many events take."""
        return max(1, count) * _WORDS

    def reset(self) -> None:
        """Undo what has happened; nothing may wait for an event."""
        for event in range(self.count):
            place = ctypes.c_void_p(self.address(event))
            if self._system.sem_init(place, int(self._is_shared), 0):
                raise OSError(ctypes.get_errno(), "the system makes no semaphore")

    def release(self) -> None:
        """Let all that wait go on, after a failure."""
        for event in range(self.count):
            self._system.sem_post(ctypes.c_void_p(self.address(event)))

    def address(self, event: int) -> int:
        """Where the semaphore of an event is."""
        return int(self.tensor.data_ptr()) + 8 * _WORDS * event


def event_functions(count: int) -> dict[ir.GlobalVar, tirx.PrimFunc]:
    """The functions that wait for an event, which is then as it was before, and that signal one.

    WAIT is for a core of its own, and looks before it sleeps. SLEEP sleeps at once. SPIN is for processes
    that each have a core, and looks for a shorter time. KEEP is for streams that each have cores.
    """
    return {
        ir.GlobalVar(WAIT): _function(WAIT, count, partial(_wait, most=_TRIES, leaves=True)),
        ir.GlobalVar(SPIN): _function(SPIN, count, partial(_wait, most=_SPINS, leaves=False)),
        ir.GlobalVar(KEEP): _function(KEEP, count, partial(_wait, most=_KEPT_SPINS, leaves=False)),
        ir.GlobalVar(SLEEP): _function(SLEEP, count, _sleep),
        ir.GlobalVar(SIGNAL): _function(SIGNAL, count, _signal),
    }


def _signal(words: ir.Var, event: ir.Var) -> tirx.Stmt:
    return tirx.Evaluate(_called("sem_post", words, event))


def _wait(words: ir.Var, event: ir.Var, *, most: int, leaves: bool) -> tirx.Stmt:
    """Try a number of times, each time leaving the core to others or not, then sleep until the event.

    How often it has tried is counted behind the semaphore, which has one waiter only.
    """
    counter = event * _WORDS + _COUNTER

    def tried() -> ir.Expr:
        return tirx.BufferLoad(words, [counter])

    def count(value: ir.Expr) -> tirx.Stmt:
        return tirx.BufferStore(words, value, [counter])

    tries, has_happened = (tirx.const(n, "int64") for n in (most, most + 1))
    status = tirx.Var("status", "int32")
    leave = [tirx.Evaluate(tirx.call_extern("int32", "sched_yield"))] if leaves else []
    attempt = [
        tirx.Bind(status, _called("sem_trywait", words, event)),
        tirx.IfThenElse(
            status == tirx.const(0, "int32"),
            count(has_happened),
            tirx.SeqStmt([*leave, count(tried() + 1)]) if leave else count(tried() + 1),
        ),
    ]
    return tirx.SeqStmt(
        [
            count(tirx.const(0, "int64")),
            tirx.While(tried() < tries, tirx.SeqStmt(attempt)),
            tirx.IfThenElse(tried() == tries, _sleep(words, event), None),
        ]
    )


def _sleep(words: ir.Var, event: ir.Var) -> tirx.Stmt:
    """Sleep until the event; a signal of the system ends a sleep early, with another status than 0."""
    return tirx.While(
        _called("sem_wait", words, event) != tirx.const(0, "int32"),
        tirx.Evaluate(tirx.const(0, "int32")),
    )


def _called(function: str, words: ir.Var, event: ir.Var) -> ir.Expr:
    address = tirx.address_of(tirx.BufferLoad(words, [event * _WORDS]))
    return tirx.call_extern("int32", function, address)


def _function(name: str, count: int, body: Callable[[ir.Var, ir.Var], tirx.Stmt]) -> tirx.PrimFunc:
    event = tirx.Var("event", "int64")
    words = tirx.decl_buffer((max(1, count) * _WORDS,), "int64", name="events")
    return tirx.PrimFunc([words, event], body(words, event)).with_attr("global_symbol", name)
