"""A compiled training step of which this process runs a part."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import tvm
from numpy.typing import ArrayLike, NDArray

from tvm_xengine.cluster.ranks import Message, Ranks
from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.program.rank_actions import (
    Finish,
    LocalCalls,
    Receive,
    Send,
    actions_of_rank,
    local_program,
)
from tvm_xengine.program.step_program import ArenaView, StepProgram
from tvm_xengine.program.streams import overwritten_state
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.runtime.executable import StepExecutable, link
from tvm_xengine.runtime.inputs import checked_inputs, in_slices
from tvm_xengine.runtime.marks import Marks
from tvm_xengine.runtime.vm_function import emit_calls
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Platform

if TYPE_CHECKING:
    import torch


class RankExecutable(StepExecutable):
    """One training step over several processes; each has the arenas of its own devices.

    All processes make it, and use it like a `StepExecutable` in the same way: each writes what lies in
    its arenas, and what one reads is sent to all. Devices of one process run in turn, those of several
    processes side by side.

    Parameters
    ----------
    program
        The calls of the whole step.
    libraries
        The compiled kernels that this process calls.
    platform
        All devices.
    ranks
        The processes.
    """

    def __init__(
        self,
        program: StepProgram,
        libraries: Sequence[tvm.runtime.Module],
        platform: Platform,
        ranks: Ranks,
        *,
        library_calls: Mapping[str, LibraryCall] | None = None,
    ) -> None:
        self._ranks = ranks
        self._rank_of = {device.name: device.rank for device in platform.devices}
        self._actions = actions_of_rank(program, self._rank_of, ranks.rank)
        own = local_program(program, self._rank_of, ranks.rank)
        super().__init__(own, libraries, platform, library_calls=library_calls)
        self.interface = program.interface
        self._agreed_names = (*self.interface.inputs, *self.interface.results)
        # What other processes send may also be written over state.
        self.overwritten = tuple(n for n in overwritten_state(program) if n in self.tensors)
        ranks.meet()  # one process may have compiled more kernels than another

    def _in_turn(self, marks: Marks | None = None) -> Callable[[], object]:
        parts = {
            f"part_{k}": emit_calls(action.calls, f"part_{k}", self._files)
            for k, action in enumerate(self._actions)
            if isinstance(action, LocalCalls)
        }
        linked = link(
            {name: part.function for name, part in parts.items()},
            self._libraries,
            self._helpers(marks),
        )
        begun: dict[int, Message] = {}
        todo: list[Callable[[], object]] = []
        for k, action in enumerate(self._actions):
            match action:
                case LocalCalls():
                    todo.append(self._callable(parts[f"part_{k}"], linked, f"part_{k}"))
                case Send(copy, peer):
                    todo.append(self._begin(self._ranks.send, copy.src, peer, copy.step, begun))
                case Receive(copy, peer):
                    todo.append(self._begin(self._ranks.receive, copy.dst, peer, copy.step, begun))
                case Finish(step):
                    todo.append(partial(_finish, begun, step))

        def run() -> None:
            for act in todo:
                act()

        return run

    def _begin(
        self,
        transport: Callable[[torch.Tensor, int, int], Message],
        view: ArenaView,
        peer: int,
        tag: int,
        begun: dict[int, Message],
    ) -> Callable[[], None]:
        tensor = self._bytes_of(view)

        def begin() -> None:
            begun[tag] = transport(tensor, peer, tag)

        return begin

    def _bytes_of(self, view: ArenaView) -> torch.Tensor:
        """The bytes of a tensor in an arena of this process, as the transport takes them."""
        import torch

        flat = replace(view, shape=(view.size_bytes,), dtype="uint8")
        return torch.from_dlpack(self.arenas[view.device].view(flat))

    def marked(self) -> NoReturn:
        """Refused: calls of several processes have no common clock."""
        raise UnsupportedModuleError(
            "the calls of a step over several ranks cannot be timed in place; leave out --trace and"
            " --replan"
        )

    def write(self, arrays: Mapping[str, ArrayLike]) -> None:
        """Check inputs, and write those that lie in this process."""
        checked = in_slices(self.interface, checked_inputs(self.interface, arrays))
        self._write({name: values for name, values in checked.items() if name in self.tensors})

    def agreed(self, found: str | None) -> str | None:
        """Collective: the first input or result that a process has found, None where none has."""
        names = self._agreed_names
        least = self._ranks.least(len(names) if found is None else names.index(found))
        return names[least] if least < len(names) else None

    def read_state(self, names: Iterable[str] | None = None) -> dict[str, NDArray[np.generic]]:
        """Collective: a copy of every persistent tensor, or of those in `names`."""
        if names is None:
            names = self.names(*(role for role in Role if role.is_persistent))
        own = super().read_state(name for name in names if name in self.tensors)
        places = self.interface.inputs
        return {name: self._shared(places[name], own.get(name)) for name in sorted(names)}

    def read_results(self, names: Iterable[str] | None = None) -> dict[str, NDArray[np.generic]]:
        """Collective: a copy of every result of the last step, or of those in `names`."""
        places = {k: v for k, v in self.interface.results.items() if isinstance(v, ArenaView)}
        wanted = sorted(places if names is None else names)
        own = super().read_results(name for name in wanted if name in self._results)
        return {name: self._shared(places[name], own.get(name)) for name in wanted}

    def _shared(self, view: ArenaView, own: Array | None) -> Array:
        """Collective: a tensor, of which the process where it lies has a copy."""
        import torch

        content = np.empty(view.shape, view.dtype) if own is None else np.array(own, order="C")
        flat = torch.from_numpy(content.reshape(-1).view("uint8"))
        self._ranks.share(flat, self._rank_of[view.device])
        return content

    @property
    def state_views(self) -> NoReturn:
        """Refused: a view is of the memory of one process."""
        raise _no_views()

    @property
    def result_views(self) -> NoReturn:
        """Refused: a view is of the memory of one process."""
        raise _no_views()

    @property
    def measured_peak_bytes(self) -> Mapping[str, int]:
        """Collective: for each device of all processes, the bytes that its allocator gave to the step."""
        own = json.dumps(dict(super().measured_peak_bytes))
        found: dict[str, int] = {}
        for text in self._ranks.gather_texts(own):
            found.update(json.loads(text))
        return found


def _no_views() -> UnsupportedModuleError:
    return UnsupportedModuleError(
        "the step lies in the memory of several processes, of which there are no views; take copies"
    )


def _finish(begun: dict[int, Message], step: int) -> None:
    begun.pop(step).finish()
