"""Steps that happen completely or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import tvm
from numpy.typing import ArrayLike, NDArray

from tvm_xengine.errors import NotFiniteError
from tvm_xengine.processes.held_signals import interrupts_held
from tvm_xengine.runtime.comparison import timed_run
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.runtime.file_memory import FileMemory, FileTensor
from tvm_xengine.runtime.inputs import is_finite
from tvm_xengine.runtime.storage import StoredTensor, copy_tensor, pieces_of
from tvm_xengine.scheduling.sizes import tensor_bytes


class Transactions:
    """Takes steps; one that fails, is interrupted, or makes a NaN or an infinity is undone.

    A step writes over its state, so what it writes over is copied before each step, and read once
    after it. The copies are made once: those of tensors in memory lie in memory of the host, those
    of tensors in a file in another file of the same folder. It costs ``memory_bytes`` and
    such a file in addition to the arenas; in time, a copy of so many bytes and a pass over them
    per step.

    Parameters
    ----------
    executable
        What runs; its state must have been written.
    label
        The name by which the model's author knows a tensor of the step.

    Raises
    ------
    NotFiniteError
        If the state is not finite.
    """

    def __init__(self, executable: StepExecutable, label: Callable[[str], str] = str) -> None:
        self._executable, self._label = executable, label
        executable.recover()
        self._state = {name: executable.tensors[name] for name in executable.overwritten}
        self._kept = _room_for(self._state)
        self.steps = 0
        if (name := executable.agreed(_first_not_finite(self._state))) is not None:
            raise NotFiniteError(
                f"{label(name)} is not finite before the first step; repair the weights or the state that"
                " was loaded",
                name,
            )

    @property
    def memory_bytes(self) -> int:
        """Memory of the host that holds the state before a step."""
        return sum(_bytes(t) for t in self._kept.values() if not isinstance(t, FileTensor))

    def take(self, batch: Mapping[str, ArrayLike]) -> tuple[dict[str, NDArray[np.generic]], float]:
        """Take a step; its results, and its wall clock in microseconds.

        An interrupt arrives when the step has been taken or undone.

        Raises
        ------
        NotFiniteError
            If an input is not finite, when nothing was written, or a result or the new state, when
            the state before the step is in place again.
        StorageError
            If a file of a device could not be read or written. The state before the step is in place
            again, or is kept outside the file until it can be written there.
        """
        executable = self._executable
        arrays = executable.check(batch)
        if (name := next((n for n, a in arrays.items() if not is_finite(a)), None)) is not None:
            raise NotFiniteError(
                f"step {self.steps + 1}: the input {name} is not finite; the step was not taken",
                name,
            )
        with interrupts_held():
            executable.recover()
            for name, tensor in self._state.items():
                copy_tensor(tensor, self._kept[name])
            executable.write(arrays)
            try:
                step_us = timed_run(executable)
                results = executable.read_results()
                self._check(results)
            except BaseException:
                executable.undo(self._kept)
                raise
            self.steps += 1
        return results, step_us

    def _check(self, results: Mapping[str, NDArray[np.generic]]) -> None:
        found = next((name for name, array in results.items() if not is_finite(array)), None)
        found = self._executable.agreed(found or _first_not_finite(self._state))
        if found is not None:
            raise NotFiniteError(
                f"step {self.steps + 1}: {self._label(found)} is not finite; the state of step"
                f" {self.steps} is restored. Try a smaller learning rate",
                found,
            )


def _first_not_finite(tensors: Mapping[str, StoredTensor]) -> str | None:
    every = ((name, piece) for name, tensor in tensors.items() for piece in pieces_of(tensor))
    return next((name for name, piece in every if not is_finite(piece)), None)


def _room_for(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """For each tensor one of its shape and type, in memory of the host or beside its file."""
    stored = {name: t for name, t in tensors.items() if isinstance(t, FileTensor)}
    room: dict[str, StoredTensor] = {
        name: tvm.runtime.empty(tensor.shape, tensor.dtype, tvm.cpu())
        for name, tensor in tensors.items()
        if name not in stored
    }
    for folder in {tensor.memory.folder for tensor in stored.values()}:
        own = {name: t for name, t in stored.items() if t.memory.folder == folder}
        memory = FileMemory(sum(map(_bytes, own.values())), folder)
        room |= dict(zip(own, _in_a_row(memory, own.values()), strict=True))
    return room


def _in_a_row(memory: FileMemory, tensors: Iterable[FileTensor]) -> Iterable[FileTensor]:
    start_byte = 0
    for tensor in tensors:
        yield memory.tensor(start_byte, tensor.shape, tensor.dtype)
        start_byte += _bytes(tensor)


def _bytes(tensor: StoredTensor) -> int:
    return tensor_bytes(tuple(map(int, tensor.shape)), str(tensor.dtype))
