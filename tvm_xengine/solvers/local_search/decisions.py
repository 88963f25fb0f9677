"""The points of the search space, and some to begin from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tvm_xengine.solvers.compiled import entry
from tvm_xengine.solvers.local_search.arrays import END_NOWHERE, Arrays, Ints

EVERYWHERE = 255
"""Value of `Decisions.keep` under which a tensor stays wherever it is."""
NEVER = 99
"""Value of `Decisions.level` under which what is brought back for another op never stays."""
BRING, BRING_ALONE, DROP = range(3)
"""What `Decisions.ahead` does to a tensor: have it on a device, there and nowhere else, not there."""
WAYS = 3


class Decisions(NamedTuple):
    """A point of the search space.

    Attributes
    ----------
    order, position
        Op at each place of the order of first computations, and its inverse (-1 for ops
        that need not run).
    device, redevice
        Where each op runs first, and where again (-1: where the result is needed).
    keep, push, level
        For each gap. When it begins the tensor is copied to the devices in the mask `push`
        and dropped from those not in the mask `keep`. What is brought back for the sake of
        another op is dropped again, until it was brought back `level` times.
        Gap k < touches begins after touch k; gap touches + t before tensor t's first touch.
    ahead
        For each op a tensor that is brought somewhere or dropped right after its first run, as
        `moved` says, or -1. So a tensor can be made once more before what it is made from is
        overwritten, and can leave in the middle of a gap, where it was needed until then to make
        something else again, or return before the op that needs it.
    """

    order: Ints
    position: Ints
    device: Ints
    redevice: Ints
    keep: Ints
    push: Ints
    level: Ints
    ahead: Ints


def keep_everything(arrays: Arrays, device: Ints) -> Decisions:
    """Every needed op runs once, in the order of the graph, on its `device`; all is kept."""
    gaps = len(arrays.touch_tensor) + arrays.n_tensors
    position = np.full(arrays.n_ops, -1)
    position[arrays.needed_ops] = np.arange(len(arrays.needed_ops))
    return Decisions(
        order=arrays.needed_ops.copy(),
        position=position,
        device=device.astype(np.int64),
        redevice=np.full(arrays.n_ops, -1),
        keep=np.full(gaps, EVERYWHERE),
        push=np.zeros(gaps, dtype=np.int64),
        level=np.ones(gaps, dtype=np.int64),
        ahead=np.full(arrays.n_ops, -1),
    )


def drop_in_long_gaps(arrays: Arrays, device: Ints, longest: int) -> Decisions:
    """As `keep_everything`, but nothing that can be made again is held for more than `longest` ops."""
    x = keep_everything(arrays, device)
    next_touch = np.full(arrays.n_tensors, 2 * arrays.n_ops)
    for i in reversed(x.order.tolist()):
        for k in range(arrays.touch_ptr[i], arrays.touch_ptr[i + 1]):
            t = arrays.touch_tensor[k]
            wanted_at_end = arrays.end_device[t] != END_NOWHERE
            if next_touch[t] - x.position[i] > longest and not wanted_at_end:
                x.keep[k], x.level[k] = 0, NEVER
            next_touch[t] = x.position[i]
    return x


def copied(x: Decisions) -> Decisions:
    """Decisions that can be changed without changing `x`."""
    return Decisions(*(field.copy() for field in x))


@entry
def moved(t: int, d: int, devices: int, how: int) -> int:
    """Value of `Decisions.ahead`: what happens to tensor t on device d, one of `BRING` and so on."""
    return WAYS * (t * devices + d) + how
