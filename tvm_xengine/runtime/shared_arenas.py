"""Arenas that several steps use in turns: the state of each in its own bytes, everything else in the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from tvm_xengine.program.step_program import ArenaView
from tvm_xengine.runtime.storage import POISON, Arena, allocate_arenas
from tvm_xengine.scheduling.platform import Platform


class ArenaPart:
    """What one of several steps sees of an arena: its state, and above it the bytes that all use.

    It has the interface of an `Arena` of that step alone, with places counted as its plan does.

    Parameters
    ----------
    arena
        Of all steps.
    state_start, state_bytes
        Where the state of this step lies in it.
    shared_start, transient_bytes
        Where the bytes begin that all use, and how many of them this step does.
    """

    def __init__(
        self,
        arena: Arena,
        *,
        state_start: int,
        state_bytes: int,
        shared_start: int,
        transient_bytes: int,
    ) -> None:
        self._arena = arena
        self._state_start, self._state_bytes = state_start, state_bytes
        self._shared_start = shared_start
        self.size_bytes = state_bytes + transient_bytes
        self.guard_bytes = 0

    @property
    def device(self) -> tvm.runtime.Device:
        """Where the memory is."""
        return self._arena.device

    @property
    def file(self) -> int | None:
        """As of an `Arena`."""
        return self._arena.file

    @property
    def block_bytes(self) -> int:
        """As of an `Arena`."""
        return self._arena.block_bytes

    def file_place(self, view: ArenaView) -> int:
        """As of an `Arena`."""
        return self._arena.file_place(self._placed(view))

    @property
    def allocated_bytes(self) -> int:
        """Bytes of the arena that this step uses."""
        return self.size_bytes

    def view(self, view: ArenaView) -> Any:
        """As of an `Arena`.

        Raises
        ------
        ValueError
            If the view does not lie in the state or in the rest.
        """
        return self._arena.view(self._placed(view))

    def read(self) -> NDArray[np.uint8]:
        """A copy of the bytes that this step uses."""
        pieces = [self._arena.view(piece).numpy() for piece in self._pieces()]
        return np.concatenate([np.empty(0, np.uint8), *pieces])

    def poison(self, byte: int = POISON) -> None:
        """Overwrite everything that this step uses, and nothing of the others' state."""
        for piece in self._pieces():
            self._arena.view(piece).copyfrom(np.full(piece.shape, byte, np.uint8))

    def guard_is_intact(self, byte: int = POISON) -> bool:
        """Whether nothing was written behind the whole arena since it was poisoned with `byte`."""
        return self._arena.guard_is_intact(byte)

    def touched_bytes(self, byte: int = POISON) -> int:
        """As of an `Arena`."""
        written = np.flatnonzero(self.read() != byte)
        return int(written[-1]) + 1 if len(written) else 0

    def _pieces(self) -> list[ArenaView]:
        """The two parts, as far as there are bytes in them."""
        sizes = (self._state_bytes, self.size_bytes - self._state_bytes)
        starts = (self._state_start, self._shared_start)
        return [
            ArenaView("", start, (size,), "uint8")
            for start, size in zip(starts, sizes, strict=True)
            if size
        ]

    def _placed(self, view: ArenaView) -> ArenaView:
        """The view in the arena of all."""
        first, end = view.offset_bytes, view.end_bytes
        if first >= 0 and end <= self._state_bytes:
            return replace(view, offset_bytes=self._state_start + first)
        if first < self._state_bytes or end > self.size_bytes:
            raise ValueError(
                f"expected a view inside the {self._state_bytes} bytes of state, or above them inside"
                f" the {self.size_bytes} bytes of the step, got {view}"
            )
        return replace(view, offset_bytes=self._shared_start + first - self._state_bytes)


class SharedArenas:
    """One arena per device for several steps.

    Parameters
    ----------
    platform
        The devices.
    state_bytes, transient_bytes
        For each step by name, what it needs on each device.
    guard_bytes
        Additional bytes behind every arena, to detect stray writes.

    Attributes
    ----------
    arenas
        By device.
    parts
        For each step by name, what it sees of them.
    """

    def __init__(
        self,
        platform: Platform,
        state_bytes: Mapping[str, Mapping[str, int]],
        transient_bytes: Mapping[str, Mapping[str, int]],
        *,
        guard_bytes: int = 0,
    ) -> None:
        self._state_end = {
            device: sum(sizes[device] for sizes in state_bytes.values())
            for device in platform.index
        }
        total = {
            device: end + max(sizes[device] for sizes in transient_bytes.values())
            for device, end in self._state_end.items()
        }
        self.arenas = allocate_arenas(platform, total, guard_bytes=guard_bytes)
        starts = dict.fromkeys(platform.index, 0)
        self.parts: dict[str, dict[str, ArenaPart]] = {}
        for name, sizes in state_bytes.items():
            self.parts[name] = {
                device: ArenaPart(
                    arena,
                    state_start=starts[device],
                    state_bytes=sizes[device],
                    shared_start=self._state_end[device],
                    transient_bytes=transient_bytes[name][device],
                )
                for device, arena in self.arenas.items()
            }
            starts = {device: start + sizes[device] for device, start in starts.items()}

    @property
    def measured_peak_bytes(self) -> Mapping[str, int]:
        """For each device, the bytes that its allocator gave to all steps together."""
        return {name: arena.allocated_bytes for name, arena in self.arenas.items()}

    def poison(self, byte: int = POISON) -> None:
        """Overwrite the bytes that all steps use, and no state."""
        for device, arena in self.arenas.items():
            start = self._state_end[device]
            size = arena.size_bytes + arena.guard_bytes - start
            piece = ArenaView("", start, (size,), "uint8")
            arena.view(piece).copyfrom(np.full(size, byte, np.uint8))
