"""Streams of CUDA: kernels and copies of a GPU side by side, without the processor in between.

Kernels run in the default stream and the copies of each link in one of its own. One thread issues them
all in the order of the program, and events of CUDA keep them in order where they share bytes.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from tvm import ir, tirx

from tvm_xengine.program.step_program import ArenaView, TensorCopy
from tvm_xengine.scheduling.platform import Stream

RECORD, AWAIT, COPY = "xengine_cuda_record", "xengine_cuda_await", "xengine_cuda_copy"
TELL, SETTLE = "xengine_cuda_tell", "xengine_cuda_settle"

_NON_BLOCKING = 1
"""``cudaStreamNonBlocking``: does not wait for the default stream by itself."""
_WITHOUT_TIMES = 2
"""``cudaEventDisableTiming``."""
_BY_ADDRESS = 4
"""``cudaMemcpyDefault``: where memory is shows in its address."""


class CudaStreams:
    """Streams for links, and events, of one step.

    Parameters
    ----------
    links
        The streams of copies.
    events
        How many events there are.
    gpus
        The devices whose memory is that of a GPU.
    address
        Where a view lies.
    """

    def __init__(
        self,
        links: Iterable[Stream],
        events: int,
        gpus: frozenset[str],
        address: Callable[[ArenaView], int],
    ) -> None:
        self._gpus, self._address = gpus, address
        self._streams = {link: _made("cudaStreamCreateWithFlags", _NON_BLOCKING) for link in links}
        count = events + 1 + len(self._streams)
        self._events = [_made("cudaEventCreateWithFlags", _WITHOUT_TIMES) for _ in range(count)]
        self._begin, *self._ends = self._events[events:]
        weakref.finalize(self, _destroy, [*self._streams.values()], self._events)

    def moves(self, call: TensorCopy) -> bool:
        """Whether a copy has an end on a GPU."""
        return not self._gpus.isdisjoint((call.src.device, call.dst.device))

    def stream(self, stream: Stream | None) -> int:
        """CUDA's stream for one of a step: 0, the default, for kernels."""
        return 0 if stream is None else self._streams.get(stream, 0)

    def begin(self) -> list[tuple[str, Sequence[int]]]:
        """Calls by which no copy begins before what the default stream was given."""
        record = (RECORD, (self._begin, 0))
        return [record, *((AWAIT, (stream, self._begin)) for stream in self._streams.values())]

    def end(self) -> list[tuple[str, Sequence[int]]]:
        """Calls by which the default stream ends after all copies."""
        calls: list[tuple[str, Sequence[int]]] = []
        for stream, event in zip(self._streams.values(), self._ends, strict=True):
            calls += [(RECORD, (event, stream)), (AWAIT, (0, event))]
        return calls

    def await_event(self, stream: Stream, event: int) -> tuple[str, Sequence[int]]:
        """The call by which a stream waits for an event."""
        return AWAIT, (self.stream(stream), self._events[event])

    def record(self, stream: Stream, event: int) -> tuple[str, Sequence[int]]:
        """The call by which an event happens when a stream has come so far."""
        return RECORD, (self._events[event], self.stream(stream))

    def copy(self, stream: Stream | None, call: TensorCopy) -> tuple[str, Sequence[int]]:
        """The call that copies a tensor."""
        places = (self._address(call.dst), self._address(call.src))
        return COPY, (*places, call.src.size_bytes, self.stream(stream))


def cuda_functions() -> Mapping[ir.GlobalVar, tirx.PrimFunc]:
    """The functions that streams call, all with numbers for arguments; they fail with CUDA's errors.

    `TELL` lets a semaphore of the host be posted once a stream has come so far, and `SETTLE` waits
    for a stream.
    """
    post = ctypes.cast(ctypes.CDLL(None).sem_post, ctypes.c_void_p).value
    _library()
    return {
        ir.GlobalVar(name): _function(name, arguments, call)
        for name, arguments, call in (
            (RECORD, 2, lambda event, stream: ("cudaEventRecord", event, stream)),
            (AWAIT, 2, lambda stream, event: ("cudaStreamWaitEvent", stream, event, _int(0))),
            (
                COPY,
                4,
                lambda dst, src, size, stream: (
                    *("cudaMemcpyAsync", dst, src, size, _int(_BY_ADDRESS), stream),
                ),
            ),
            (
                TELL,
                2,
                lambda stream, semaphore: (
                    *("cudaLaunchHostFunc", stream, tirx.const(post, "int64"), semaphore),
                ),
            ),
            (SETTLE, 1, lambda stream: ("cudaStreamSynchronize", stream)),
        )
    }


def settle_cuda() -> None:
    """Wait for all streams.

    Raises
    ------
    RuntimeError
        When a kernel or a copy has failed.
    """
    if error := _library().cudaDeviceSynchronize():
        raise RuntimeError(f"a kernel or a copy on the GPU has failed with CUDA's error {error}")


def _function(name: str, arguments: int, call: Callable[..., tuple[object, ...]]) -> tirx.PrimFunc:
    parameters = [tirx.Var(f"number_{k}", "int64") for k in range(arguments)]
    function, *given = call(*parameters)
    status = tirx.Var("status", "int32")
    body = tirx.SeqStmt(
        [
            tirx.Bind(status, tirx.call_extern("int32", function, *given)),
            tirx.AssertStmt(
                status == _int(0),
                ir.StringImm("RuntimeError"),
                [ir.StringImm(f"CUDA refuses a call of {function}")],
            ),
        ]
    )
    return tirx.PrimFunc(parameters, body).with_attr("global_symbol", name)


def _int(value: int) -> ir.Expr:
    return tirx.const(value, "int32")


@cache
def _library() -> ctypes.CDLL:
    """CUDA's runtime as TVM has loaded it, open for compiled code."""
    lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    path = next(line.split(maxsplit=5)[-1] for line in lines if "libcudart.so" in line)
    return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def _made(function: str, flags: int) -> int:
    handle = ctypes.c_void_p()
    if error := getattr(_library(), function)(ctypes.byref(handle), flags):
        raise RuntimeError(f"{function} of CUDA fails with error {error}")
    return int(handle.value or 0)


def _destroy(streams: Sequence[int], events: Sequence[int]) -> None:
    for event in events:
        _library().cudaEventDestroy(ctypes.c_void_p(event))
    for stream in streams:
        _library().cudaStreamDestroy(ctypes.c_void_p(stream))
