"""Arena layout of a library for TVM's virtual machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tvm_xengine.program.step_program import ArenaView


@dataclass(frozen=True)
class Library:
    """A training step and its evaluation on one arena.

    Attributes
    ----------
    arena_bytes, state_bytes
        Size of the arena, and of its beginning that holds the state between calls.
    train_views, eval_views
        The places in the arena that the two functions take, in order.
    inputs, results, eval_inputs
        Where batch tensors and settings, results, and the batch of the evaluation lie.
    output
        Where the evaluation leaves its result.
    state
        Place of each state tensor.
    """

    name: str
    target: str
    arena_bytes: int
    state_bytes: int
    train_views: tuple[ArenaView, ...]
    eval_views: tuple[ArenaView, ...]
    inputs: Mapping[str, ArenaView]
    results: Mapping[str, ArenaView]
    eval_inputs: Mapping[str, ArenaView]
    output: ArenaView
    state: Mapping[str, ArenaView]

    def as_json(self) -> str:
        """The library as a document."""
        return json.dumps(asdict(self), indent=1) + "\n"
