"""Devices with room for everything, where nothing needs to wait or to leave.

On such a device a schedule may make every copy and repeated run at once: a tensor that is ever
there may as well be there from its first run on, wherever that was, at the same cost and without
touching any other device's memory. By induction over the graph, what a run needs is there then.
Update results are excepted, because bringing one home ends the state that others still read.
For the makespan this does not hold: when a stream does what matters there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.indexed import IndexedProblem


def there_at_once(indexed: IndexedProblem) -> NDArray[np.bool_]:
    """Whether tensor j, if it is ever on device d, may as well be there from its first run on.

    Shape (D, J). Copies into the device must cost the same from wherever they come.
    """
    return uncapacitated_devices(indexed)[:, None] & _independent_of_updates(indexed)


def uncapacitated_devices(indexed: IndexedProblem) -> NDArray[np.bool_]:
    """Devices that hold all tensors at once, and that copies reach at one price, shape (D,)."""
    workspace = np.where(indexed.can_run, indexed.kernels.workspace[:, :, -1], 0).max(axis=0)
    fits = int(indexed.size.sum()) + workspace <= indexed.budget
    others = ~np.eye(indexed.device_count, dtype=np.bool_)
    is_even = [
        bool(
            (
                indexed.transfer_value[others[:, d], d]
                == indexed.transfer_value[others[:, d], d][:1]
            ).all()
        )
        for d in range(indexed.device_count)
    ]
    return np.asarray(fits & np.array(is_even), np.bool_)


def _independent_of_updates(indexed: IndexedProblem) -> NDArray[np.bool_]:
    """Whether making the tensor needs no result of an update, shape (J,)."""
    result = indexed.update_of < 0
    for reads, makes in zip(indexed.reads, indexed.makes, strict=True):
        if not all(result[j] for j in reads):
            result[list(makes)] = False
    return result
