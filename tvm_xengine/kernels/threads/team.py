"""Generated kernels on the threads of OpenMP, which a library's kernels use as well.

TVM's runtime has a pool of threads of its own. Its threads and those of OpenMP cannot both spin while
they wait, since each would keep the other's next kernel from the cores; and a thread that sleeps begins
20 us after its call, on a virtual core that has been idle up to 200 us. So there is one team for both.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import tvm

from tvm_xengine.kernels.threads.settings import most_threads

_HOOK = "__TVMBackendParallelLaunch"
"""Through this pointer the code of a library that TVM has compiled starts a parallel loop."""

_OPENMP = "libgomp.so.1"
"""The system has one of a name in a process, whoever loads it first: oneDNN, PyTorch or this module."""

_OF_OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "omp_get_num_procs")
_ROOM = 1024
"""Threads at most, as many as Linux has cores in a set."""

_OF_THE_SYSTEM = ("gettid",)

_LINE_BYTES = 64
"""What caches of x86-64 and most Arm processors hold as a piece; with larger ones some are written twice."""

_CODE = """
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
declare i32 @omp_get_num_procs()
declare i32 @gettid()

define internal i32 @most_threads() {
  %cores = call i32 @omp_get_num_procs()
  %is_more = icmp sgt i32 %cores, MOST
  %most = select i1 %is_more, i32 MOST, i32 %cores
  ret i32 %most
}

; FTVMParallelLambda, what it reads, TVMParallelGroupEnv (a barrier, the number of parts), the status
%job = type { ptr, ptr, { ptr, i32 }, i32 }

; Thread k of n does the parts k, k + n, ...: OpenMP may give fewer threads than it is asked for.
define internal void @work(ptr %job) {
begin:
  %first = call i32 @omp_get_thread_num()
  %threads = call i32 @omp_get_num_threads()
  %function = load ptr, ptr %job
  %data_at = getelementptr %job, ptr %job, i32 0, i32 1
  %data = load ptr, ptr %data_at
  %group = getelementptr %job, ptr %job, i32 0, i32 2
  %parts_at = getelementptr %job, ptr %job, i32 0, i32 2, i32 1
  %parts = load i32, ptr %parts_at
  %status_at = getelementptr %job, ptr %job, i32 0, i32 3
  br label %next
next:
  %part = phi i32 [ %first, %begin ], [ %following, %done ]
  %is_left = icmp slt i32 %part, %parts
  br i1 %is_left, label %do, label %end
do:
  %status = call i32 %function(i32 %part, ptr %group, ptr %data)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %note, label %done
note:
  store i32 %status, ptr %status_at
  br label %done
done:
  %following = add i32 %part, %threads
  br label %next
end:
  ret void
}

; As TVMBackendParallelLaunch; no number of parts means as many as there are threads.
define i32 @launch(ptr %function, ptr %data, i32 %wanted) {
  %job = alloca %job
  %most = call i32 @most_threads()
  %is_given = icmp sgt i32 %wanted, 0
  %parts = select i1 %is_given, i32 %wanted, i32 %most
  %fewer = icmp slt i32 %parts, %most
  %threads = select i1 %fewer, i32 %parts, i32 %most
  store ptr %function, ptr %job
  %data_at = getelementptr %job, ptr %job, i32 0, i32 1
  store ptr %data, ptr %data_at
  %group = getelementptr %job, ptr %job, i32 0, i32 2
  store ptr null, ptr %group
  %parts_at = getelementptr %job, ptr %job, i32 0, i32 2, i32 1
  store i32 %parts, ptr %parts_at
  %status_at = getelementptr %job, ptr %job, i32 0, i32 3
  store i32 0, ptr %status_at
  call void @GOMP_parallel(ptr @work, ptr %job, i32 %threads, i32 0)
  %status = load i32, ptr %status_at
  ret i32 %status
}

; A part of a loop: writes what it reads in each cache line of one page.
define i32 @rewrite(i32 %part, ptr %group, ptr %spans) {
begin:
  %span = getelementptr { ptr, ptr }, ptr %spans, i32 %part
  %end_at = getelementptr { ptr, ptr }, ptr %span, i32 0, i32 1
  %first = load ptr, ptr %span
  %end = load ptr, ptr %end_at
  br label %line
line:
  %at = phi ptr [ %first, %begin ], [ %next, %line ]
  %value = load volatile i8, ptr %at
  store volatile i8 %value, ptr %at
  %next = getelementptr i8, ptr %at, i64 LINE
  %is_left = icmp ult ptr %next, %end
  br i1 %is_left, label %line, label %done
done:
  ret i32 0
}

; Has every thread note its number in the system; returns how many there are.
define internal void @note(ptr %numbers) {
  %thread = call i32 @omp_get_thread_num()
  %number = call i32 @gettid()
  %place = getelementptr i32, ptr %numbers, i32 %thread
  store i32 %number, ptr %place
  ret void
}

define i32 @gather(ptr %numbers, i32 %room) {
  %most = call i32 @most_threads()
  %fits = icmp slt i32 %most, %room
  %threads = select i1 %fits, i32 %most, i32 %room
  call void @GOMP_parallel(ptr @note, ptr %numbers, i32 %threads, i32 0)
  ret i32 %threads
}
"""


@cache
def openmp() -> ctypes.CDLL | None:
    """GNU's OpenMP, None where it is not installed."""
    try:
        return ctypes.CDLL(_OPENMP)
    except OSError:
        return None


def load_library(path: Path) -> tvm.runtime.Module:
    """A library of compiled kernels, whose parallel loops run on the team where there is OpenMP.

    Raises
    ------
    RuntimeError
        When TVM cannot load it.
    FileNotFoundError
        When it is not there.
    """
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    module = tvm.runtime.load_module(str(path))
    if openmp() is not None:
        try:
            hook = ctypes.c_void_p.in_dll(ctypes.CDLL(str(path)), _HOOK)
        except ValueError:  # it has no parallel loop
            return module
        hook.value = launch_address()
    return module


def launch_address() -> int:
    """Of a function like ``TVMBackendParallelLaunch``, which runs the parts of a loop on the team."""
    return int(_engine().get_function_address("launch"))


def launch(function_address: int, data_address: int, parts: int) -> None:
    """Run the parts of a loop on the team: thread k of n the parts k, k + n and so on."""
    _launch()(function_address, data_address, parts)


@cache
def _launch() -> Callable[[int, int, int], int]:
    arguments = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
    return ctypes.CFUNCTYPE(ctypes.c_int32, *arguments)(launch_address())


def rewriter_address() -> int:
    """Of a loop's part k that writes what memory holds, between the k-th pair of its data's addresses."""
    return int(_engine().get_function_address("rewrite"))


def gather() -> tuple[int, ...]:
    """Wake the team of the calling thread; the system's numbers of its other threads.

    It returns once all of them have run.
    """
    numbers = (ctypes.c_int32 * _ROOM)()
    count = _gather()(numbers, _ROOM)
    return tuple(number for number in numbers[1:count] if number)


@cache
def _gather() -> Callable[[object, int], int]:
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)(
        _engine().get_function_address("gather")
    )


@cache
def _engine() -> Any:
    """What owns the compiled functions."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for library, names in ((openmp(), _OF_OPENMP), (ctypes.CDLL(None), _OF_THE_SYSTEM)):
        for name in names:
            llvm.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
    code = _CODE.replace("MOST", str(most_threads() or 2**31 - 1))
    code = code.replace("LINE", str(_LINE_BYTES))
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(code), machine)
    engine.finalize_object()
    return engine
