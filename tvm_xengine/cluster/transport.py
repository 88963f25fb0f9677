"""What a way to hand tensors from rank to rank must do, and the one that a platform takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from tvm_xengine.relax_ir.types import Array
from tvm_xengine.runtime.events import Events
from tvm_xengine.runtime.marks import Marks
from tvm_xengine.runtime.storage import Arena
from tvm_xengine.runtime.vm_function import VmFunction

if TYPE_CHECKING:
    from tvm_xengine.program.step_program import ArenaView


class Compile(Protocol):
    """Makes functions of the virtual machine callable; those with events or marks take them as arguments."""

    def __call__(
        self,
        functions: Mapping[str, VmFunction],
        events: Events | None = None,
        marks: Marks | None = None,
        /,
    ) -> Mapping[str, Callable[[], object]]: ...


class Transport(Protocol):
    """How the processes of a step hand tensors to each other.

    Attributes
    ----------
    arenas
        Those that the calls of this process touch; of other processes, too, where it sees them.
    open_ended
        Positions of the copies whose end is not known, but only when it is waited for.
    """

    @property
    def arenas(self) -> Mapping[str, Arena]: ...

    @property
    def open_ended(self) -> Collection[int]: ...

    def allocate(self, arena_bytes: Mapping[str, int], guard_bytes: int) -> Mapping[str, Arena]:
        """Collective: the arenas of the devices of this process; comes before all else."""

    def step(self, compiled: Compile, marks: Marks | None = None) -> Callable[[], object]:
        """Collective: what this process does in a step, once it has written its inputs.

        With marks it takes the times of its calls. No process reads an input before it is written, nor
        writes over what another one still reads.
        """

    def read(
        self, places: Mapping[str, ArenaView], own: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        """Collective: copies of tensors that lie anywhere, of which `own` are those of this process."""
