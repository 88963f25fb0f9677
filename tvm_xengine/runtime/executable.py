"""A compiled training step with its arenas: runs in turn, or devices and links side by side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import tvm
from numpy.typing import ArrayLike, NDArray
from tvm import relax

from tvm_xengine.errors import StorageError
from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.library.context import KernelContext
from tvm_xengine.kernels.threads.running import may_spin, while_kernels_run
from tvm_xengine.program.step_program import ArenaView, StepProgram
from tvm_xengine.program.streams import split_into_streams, stream_of
from tvm_xengine.runtime.cuda_streams import CudaStreams, cuda_functions, settle_cuda
from tvm_xengine.runtime.events import Events, can_overlap, event_functions
from tvm_xengine.runtime.file_memory import FAILED, file_functions
from tvm_xengine.runtime.marks import Marks, mark_function
from tvm_xengine.runtime.shared_arenas import ArenaPart
from tvm_xengine.runtime.step_memory import StepMemory
from tvm_xengine.runtime.storage import Arena, is_for_cuda
from tvm_xengine.runtime.stream_threads import (
    StreamThreads,
    check_cores,
    free_cores,
    ways_to_wait,
)
from tvm_xengine.runtime.vm_function import (
    VmFunction,
    emit_cuda_streams,
    emit_stream,
    emit_vm_function,
)
from tvm_xengine.scheduling.platform import Platform, Stream

_STEP = "step"
"""What the step is called in the virtual machine."""


@dataclass(frozen=True)
class CompiledKernels:
    """The compiled kernels that a step calls.

    Attributes
    ----------
    modules
        Their code.
    library_calls
        By the symbols of the kernels that call a library.
    parallel
        Whether any of them runs on several threads of a processor.
    """

    modules: Sequence[tvm.runtime.Module]
    library_calls: Mapping[str, LibraryCall] = field(default_factory=dict)
    parallel: bool = True


class StepExecutable(StepMemory):
    """One training step that lives in one arena per device and allocates nothing else.

    Parameters
    ----------
    program
        The calls of the step; all its tensors lie in arenas.
    kernels
        The compiled kernels that it calls.
    platform
        The devices of the arenas.
    guard_bytes
        Additional bytes behind every arena, to detect stray writes.
    arenas
        What the step sees of arenas that it shares with others; None allocates its own.
    overlap
        Whether devices and links run side by side: processors and their links each in a thread of
        their own, GPUs and their links in streams of CUDA. Without effect where there is one stream
        only, a GPU is not one for CUDA, or the system is not Linux.
    """

    def __init__(
        self,
        program: StepProgram,
        kernels: CompiledKernels,
        platform: Platform,
        *,
        guard_bytes: int = 0,
        arenas: Mapping[str, ArenaPart] | None = None,
        overlap: bool = False,
    ) -> None:
        super().__init__(program, platform, guard_bytes=guard_bytes, arenas=arenas)
        self._files = {name: a for name, a in self.arenas.items() if a.file is not None}
        self._kernels = kernels
        self._contexts: list[KernelContext] = []  # they must outlive the calls of their kernels
        gpus = {name: arena for name, arena in self.arenas.items() if _is_gpu(arena)}
        has_events = can_overlap() and all(is_for_cuda(arena.device) for arena in gpus.values())
        self._gpus = frozenset(gpus if has_events else ())
        self.is_overlapped = (
            overlap
            and len({stream_of(call, platform) for call in program.calls}) > 1
            and has_events
        )
        self.program, self._platform = program, platform
        self._run = self._side_by_side() if self.is_overlapped else self._in_turn()
        spin = self.runs_in_turn and may_spin(kernels.modules)
        self._while_running = partial(while_kernels_run, spin=spin, parallel=kernels.parallel)
        self._waits = [arena.device.sync for arena in gpus.values()]

    @property
    def launches(self) -> bool:
        """Whether some calls return before they have run, as on a GPU, so that marks time nothing."""
        return bool(self._waits)

    @property
    def runs_in_turn(self) -> bool:
        """Whether each call begins when the one before it has ended."""
        return not self.is_overlapped

    @property
    def open_ended(self) -> Collection[int]:
        """Positions of the calls whose marks are wider than the calls were long."""
        return ()

    @contextmanager
    def marked(self) -> Iterator[Marks]:
        """Take the time of each call of the steps that run inside; the last one's times stay.

        The arenas are the same; a program with two more calls for each one runs in them.
        """
        usual, marks = self._run, self._new_marks()
        run = self._side_by_side(marks) if self.is_overlapped else self._in_turn(marks)
        self._run = partial(marks.run, run)
        try:
            yield marks
        finally:
            self._run = usual

    def _new_marks(self) -> Marks:
        return Marks([call.step for call in self.program.calls])

    def _in_turn(self, marks: Marks | None = None) -> Callable[[], object]:
        cuda = self._cuda((), 0)
        function = emit_vm_function(self.program, _STEP, None, self._files, marks, cuda)
        return self._compiled({_STEP: function}, marks=marks, keeps=cuda)[_STEP]

    def _cuda(self, links: Sequence[Stream], events: int) -> CudaStreams | None:
        if not self._gpus:
            return None
        return CudaStreams(links, events, self._gpus, self._address)

    def _address(self, view: ArenaView) -> int:
        return int(self.arenas[view.device].view(view).data_ptr())

    def _side_by_side(self, marks: Marks | None = None) -> Callable[[], object]:
        streams, platform = split_into_streams(self.program, self._platform), self._platform
        check_cores(platform)
        gpu = {s: calls for s, calls in streams.calls.items() if not {*s}.isdisjoint(self._gpus)}
        host = {s: calls for s, calls in streams.calls.items() if s not in gpu}
        # A link has a thread, which copies and waits where it keeps no device waiting.
        free = free_cores(platform)
        cores = [platform.device(stream[0]).cores if len(stream) == 1 else free for stream in host]
        cores += [free] if gpu else []
        waits = ways_to_wait(list(host), cores)
        events = Events(streams.events)
        cuda = self._cuda([stream for stream in gpu if len(stream) > 1], streams.events)
        functions = {
            f"{_STEP}_{k}": emit_stream(
                *(calls, f"{_STEP}_{k}", self._files, marks, cuda),
                wait=waits[k],
            )
            for k, (stream, calls) in enumerate(host.items())
        }
        if gpu and cuda is not None:
            name = f"{_STEP}_{len(host)}"
            functions[name] = emit_cuda_streams(gpu, name, cuda, events, marks)
        run = [*self._compiled(functions, events, marks, cuda).values()]
        return run[0] if len(run) == 1 else StreamThreads(run, events, cores, self._settle).run

    def _settle(self) -> None:
        """Wait for what GPUs have begun; a launch returns before its kernel has run."""
        if self._gpus:
            settle_cuda()
            return
        for wait in self._waits:
            wait()

    def _helpers(self, marks: Marks | None) -> Mapping[tvm.ir.GlobalVar, tvm.tirx.PrimFunc]:
        """The functions for files, for marks and for CUDA, where there are any."""
        of_files = file_functions() if self._files else {}
        of_cuda = cuda_functions() if self._gpus else {}
        return {**of_files, **of_cuda, **({} if marks is None else mark_function(marks))}

    def _compiled(
        self,
        functions: Mapping[str, VmFunction],
        events: Events | None = None,
        marks: Marks | None = None,
        keeps: object = None,
    ) -> dict[str, Callable[[], object]]:
        """Functions by name, linked with the kernels, each in a machine of its own with its arguments.

        They hold what they `keep`, which they name by addresses only.
        """
        of_events = {} if events is None else event_functions(events.count)
        linked = link(
            {name: function.function for name, function in functions.items()},
            self._kernels.modules,
            {**of_events, **self._helpers(marks)},
        )
        further = [*([] if events is None else [events.tensor]), *_times(marks)]
        return {
            name: self._callable(function, linked, name, further, keeps)
            for name, function in functions.items()
        }

    def _callable(
        self,
        function: VmFunction,
        linked: tvm.runtime.Module,
        name: str,
        further: Sequence[object],
        keeps: object,
    ) -> Callable[[], object]:
        machine = relax.VirtualMachine(linked, tvm.cpu())
        contexts = [
            KernelContext(self._kernels.library_calls[symbol]) for symbol in function.contexts
        ]
        self._contexts += contexts
        views = [self._arena(view.device).view(view) for view in function.views]
        arguments = [*views, *(context.tensor for context in contexts), *further]
        run = partial(machine[name], *arguments)
        return run if keeps is None else partial(_run_keeping, run, keeps)

    def _arena(self, device: str) -> Arena | ArenaPart:
        """The arena of a device that the calls touch."""
        return self.arenas[device]

    def agreed(self, found: str | None) -> str | None:
        """What this process has found, or another one that runs a part of the step."""
        return found

    def run(self) -> None:
        """Run the step on what the arenas hold; write the batch before each run.

        The bytes of batch and hyper inputs are used again once they have been read.

        Raises
        ------
        InvalidStateError
            If an earlier run has failed, and the state was not written since.
        StorageError
            If a file of a device could not be read or written.
        """
        self.recover()
        try:
            with self._while_running(), _naming_storage(self._platform):
                self._run()
                self._settle()
        except BaseException:
            self._lost = dict.fromkeys(self.overwritten)
            self._settle()
            raise

    def step(self, batch: Mapping[str, ArrayLike]) -> dict[str, NDArray[np.generic]]:
        """Write a batch (and hyper parameters), run the step, and return its results.

        Raises
        ------
        InvalidInputError
            If an input is missing or superfluous, or has another shape, type or range; nothing
            was written then.
        """
        self.write(self.check(batch))
        self.run()
        return self.read_results()


@contextmanager
def _naming_storage(platform: Platform) -> Iterator[None]:
    """Raise `StorageError` where code that moves bytes from or to a file has failed."""
    try:
        yield
    except RuntimeError as error:
        if FAILED not in str(error):
            raise
        folders = dict.fromkeys(d.folder for d in platform.devices if d.folder is not None)
        where = " or ".join(folders)
        raise StorageError(f"{str(error).splitlines()[-1]} in {where}") from error


def _times(marks: Marks | None) -> tuple[tvm.runtime.Tensor, ...]:
    return () if marks is None else (marks.tensor,)


def _run_keeping(run: Callable[[], object], _keeps: object) -> None:
    run()


def _is_gpu(arena: Arena | ArenaPart) -> bool:
    return int(arena.device.dlpack_device_type()) != int(tvm.cpu().dlpack_device_type())


def link(
    functions: Mapping[str, relax.Function],
    libraries: Sequence[tvm.runtime.Module],
    others: Mapping[tvm.ir.GlobalVar, tvm.tirx.PrimFunc],
) -> tvm.runtime.Module:
    """Virtual-machine code of straight-line functions, with the kernels imported."""
    mine = {tvm.ir.GlobalVar(name): function for name, function in functions.items()}
    module = tvm.IRModule({**mine, **others})
    executable = relax.build(
        module.with_attr("external_mods", list(libraries)),
        tvm.target.Target({"kind": "llvm"}),
        # All shapes are numbers, so nothing has to be lowered or checked again in every step.
        relax_pipeline=relax.transform.AttachGlobalSymbol(),
    )
    # The module itself: handing over the executable would link all its kernels once more.
    return executable.mod
