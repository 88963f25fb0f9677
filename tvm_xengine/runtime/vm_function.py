"""Emit a step program as a function for TVM's virtual machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.program.step_program import (
    ArenaView,
    Call,
    KernelRun,
    Operand,
    Outside,
    StepProgram,
)
from tvm_xengine.program.streams import StreamCall
from tvm_xengine.runtime.cuda_streams import SETTLE, TELL, CudaStreams
from tvm_xengine.runtime.events import SIGNAL, WAIT
from tvm_xengine.runtime.file_memory import MOST_BYTES, READ, WRITE
from tvm_xengine.runtime.marks import MARK, Marks
from tvm_xengine.scheduling.platform import Stream
from tvm_xengine.scheduling.sizes import round_up

if TYPE_CHECKING:
    from tvm_xengine.runtime.events import Events
    from tvm_xengine.runtime.shared_arenas import ArenaPart
    from tvm_xengine.runtime.storage import Arena

COPY_FUNCTION = "runtime.TVMTensorCopyFromTo"


@dataclass(frozen=True)
class VmFunction:
    """A straight-line Relax function, and its arguments.

    Attributes
    ----------
    views
        The arena view behind each leading parameter, in order.
    contexts
        Symbols of the kernels whose contexts follow them.
    """

    function: relax.Function
    views: tuple[ArenaView, ...]
    contexts: tuple[str, ...]


def emit_vm_function(
    program: StepProgram,
    name: str,
    constants: Mapping[str, NDArray[np.generic]] | None = None,
    files: Mapping[str, Arena | ArenaPart] | None = None,
    marks: Marks | None = None,
    cuda: CudaStreams | None = None,
) -> VmFunction:
    """The function `name` that makes the calls of `program` on views into the arenas.

    .. code-block:: python

        def train_step(cpu_0: R.Tensor((4,), "float32"), cpu_64: ..., gpu_0: ...):
            R.call_packed("f__cpu", cpu_0, cpu_64)
            R.call_packed("runtime.TVMTensorCopyFromTo", cpu_64, gpu_0)
            ...

    It allocates nothing; no pass that re-plans memory may run on it.

    Parameters
    ----------
    constants
        Values of the constants that lie outside the arenas, by their names in `program`.
    files
        Arenas that are files, by device.
    marks
        Takes the time of each call; its tensor is the last parameter then.
    cuda
        Makes copies from and to a GPU, each of which ends before the next call.

    Raises
    ------
    UnsupportedModuleError
        If the program reads something else from outside the arenas.
    """
    emitter = _Emitter(constants or {}, files or {}, marks, cuda)
    for view in program.interface.inputs.values():
        if view.device not in emitter.files:
            emitter.operand(view)
    for call in program.calls:
        emitter.make(call)
    return emitter.function(name)


def emit_calls(
    calls: Sequence[Call],
    name: str,
    files: Mapping[str, Arena | ArenaPart] | None = None,
    marks: Marks | None = None,
) -> VmFunction:
    """The function `name` that makes some calls of a program in order."""
    emitter = _Emitter({}, files or {}, marks)
    for call in calls:
        emitter.make(call)
    return emitter.function(name)


def emit_stream(
    calls: Sequence[StreamCall],
    name: str,
    files: Mapping[str, Arena | ArenaPart] | None = None,
    marks: Marks | None = None,
    cuda: CudaStreams | None = None,
    *,
    wait: str = WAIT,
) -> VmFunction:
    """The function `name` that makes the calls of one stream.

    Its last parameter is the tensor of the events that it waits for and signals; with marks, that of
    the times follows.

    Parameters
    ----------
    wait
        Which function of `event_functions` waits.
    """
    emitter = _Emitter({}, files or {}, marks, cuda)
    for one in calls:
        for event in one.awaits:
            emitter.at_event(wait, event)
        emitter.make(one.call)
        for event in one.signals:
            emitter.at_event(SIGNAL, event)
    return emitter.function(name, has_events=True)


def emit_cuda_streams(
    streams: Mapping[Stream, Sequence[StreamCall]],
    name: str,
    cuda: CudaStreams,
    events: Events,
    marks: Marks | None = None,
) -> VmFunction:
    """The function `name` that issues the calls of all streams of a GPU, in the order of the program.

    It waits for other streams itself, and has them told by the GPU. Its parameters are those of
    `emit_stream`.
    """
    emitter = _Emitter({}, {}, marks, cuda)
    own_signals = {e for calls in streams.values() for one in calls for e in one.signals}
    own_awaits = {e for calls in streams.values() for one in calls for e in one.awaits}
    emitter.numbers(*cuda.begin())
    in_order = [(one, stream) for stream, calls in streams.items() for one in calls]
    for one, stream in sorted(in_order, key=lambda each: each[0].position):
        for event in one.awaits:
            if event in own_signals:
                emitter.numbers(cuda.await_event(stream, event))
            else:
                emitter.at_event(WAIT, event)
        emitter.make(one.call, stream)
        for event in one.signals:
            if event in own_awaits:
                emitter.numbers(cuda.record(stream, event))
            else:
                emitter.numbers((TELL, (cuda.stream(stream), events.address(event))))
    emitter.numbers(*cuda.end())
    return emitter.function(name, has_events=True)


def emit_events(
    events: Sequence[tuple[str, int]], name: str, marks: Marks | None = None
) -> VmFunction:
    """The function `name` that waits for events, signals them and takes times, and does nothing else."""
    emitter = _Emitter({}, {}, marks)
    for function, number in events:
        if function == MARK:
            emitter.call(MARK, [emitter.times, relax.prim_value(number)])
        else:
            emitter.at_event(function, number)
    return emitter.function(name, has_events=True)


class _Emitter:
    def __init__(
        self,
        constants: Mapping[str, NDArray[np.generic]],
        files: Mapping[str, Arena | ArenaPart],
        marks: Marks | None,
        cuda: CudaStreams | None = None,
    ) -> None:
        self.cuda = cuda
        self.constants = constants
        self.files = files
        self.marks = marks
        self.times = relax.Var("times", relax.TensorType(None, "int64", ndim=1))
        self.views: dict[ArenaView, relax.Var] = {}
        self.contexts: dict[str, relax.Var] = {}
        self.events = relax.Var("events", relax.TensorType(None, "int64", ndim=1))
        self.calls: list[relax.Call] = []

    def make(self, call: Call, stream: Stream | None = None) -> None:
        if self.marks is not None:
            self.call(MARK, [self.times, relax.prim_value(self.marks.begin(call))])
        self.made(call, stream)
        if self.marks is not None:
            self.call(MARK, [self.times, relax.prim_value(self.marks.begin(call) + 1)])

    def made(self, call: Call, stream: Stream | None) -> None:
        if isinstance(call, KernelRun):
            arguments = [self.operand(operand) for operand in call.operands]
            if call.has_context:
                arguments.append(self.context(call.symbol))
            self.call(call.symbol, arguments)
        elif call.src.device in self.files:
            self.move(READ, call.dst, call.src)
        elif call.dst.device in self.files:
            self.move(WRITE, call.src, call.dst)
        elif self.cuda is not None and stream is not None:
            self.numbers(self.cuda.copy(stream, call))
        elif self.cuda is not None and self.cuda.moves(call):
            self.numbers(self.cuda.copy(None, call), (SETTLE, (0,)))
        else:
            self.call(COPY_FUNCTION, [self.operand(call.src), self.operand(call.dst)])

    def move(self, function: str, memory: ArenaView, stored: ArenaView) -> None:
        """Move bytes between memory and a file, in pieces that the system takes."""
        arena = self.files[stored.device]
        # What a tensor is padded with belongs to it.
        size_bytes = round_up(memory.size_bytes, arena.block_bytes)
        for done in range(0, size_bytes, MOST_BYTES):
            shape = (min(MOST_BYTES, size_bytes - done),)
            piece = replace(
                memory, offset_bytes=memory.offset_bytes + done, shape=shape, dtype="uint8"
            )
            place = arena.file_place(stored) + done
            numbers = [relax.prim_value(number) for number in (arena.file, place)]
            self.call(function, [self.operand(piece), *numbers])

    def at_event(self, function: str, event: int) -> None:
        self.call(function, [self.events, relax.prim_value(event)])

    def numbers(self, *calls: tuple[str, Sequence[int]]) -> None:
        for function, numbers in calls:
            self.call(function, [relax.prim_value(number) for number in numbers])

    def operand(self, operand: Operand) -> relax.Expr:
        if isinstance(operand, ArenaView):
            if operand not in self.views:
                name = f"{operand.device}_{operand.offset_bytes}_{len(self.views)}"
                self.views[operand] = relax.Var(
                    name, relax.TensorType(operand.shape, operand.dtype)
                )
            return self.views[operand]
        if operand.kind is not Outside.CONSTANT:
            raise UnsupportedModuleError(
                f"{operand.name} is read from the {operand.kind.value}, but a function of the virtual"
                " machine reads arenas and constants only"
            )
        return relax.const(self.constants[operand.name].reshape(operand.shape), operand.dtype)

    def context(self, symbol: str) -> relax.Var:
        if symbol not in self.contexts:
            name = f"context_{len(self.contexts)}"
            self.contexts[symbol] = relax.Var(name, relax.TensorType(None, "int64", ndim=1))
        return self.contexts[symbol]

    def call(self, symbol: str, arguments: list[relax.Expr]) -> None:
        nothing = relax.TupleType([])
        self.calls.append(relax.Call(relax.ExternFunc(symbol), arguments, None, [nothing]))

    def function(self, name: str, *, has_events: bool = False) -> VmFunction:
        builder = relax.BlockBuilder()
        params = [*self.views.values(), *self.contexts.values()]
        params += [self.events] * has_events
        params += [] if self.marks is None else [self.times]
        with builder.function(name, params, pure=False):
            for call in self.calls:
                builder.emit(call)
            builder.emit_func_output(relax.Tuple([]))
        function = builder.get()[name].with_attr("global_symbol", name)
        return VmFunction(function, tuple(self.views), tuple(self.contexts))
