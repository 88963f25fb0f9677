"""Runs a function of Python in front of each call of a step and behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import tvm
import tvm_ffi

from tvm_xengine.program.step_program import Call
from tvm_xengine.runtime import executable as executable_module
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.runtime.marks import MARK

AtCall = Callable[[Call, bool], object]
"""Takes a call, and whether it has ended; called by the thread that makes the call."""


@contextmanager
def at_calls(executable: StepExecutable, do: AtCall) -> Iterator[None]:
    """Inside, `do` takes the place of what reads the clock for a trace."""
    calls = executable.program.calls

    def at_mark(_times: tvm.runtime.Tensor, number: int) -> None:
        do(calls[number // 2], bool(number % 2))

    with mock.patch.object(executable_module, "mark_function", lambda _marks: {}):
        tvm_ffi.register_global_func(MARK, at_mark, override=True)
        try:
            with executable.marked():
                yield
        finally:
            tvm_ffi.remove_global_func(MARK)
