"""When a run can begin at the earliest, and what follows it at least, with copies but without memory.

Both are longest paths in which every op takes the device, and every tensor the way, that is best for the op
behind it alone. What is made on one device and read on another changes its stream on the way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_xengine.solvers.indexed import Floats, IndexedProblem


@dataclass(frozen=True)
class HeadsAndTails:
    """Times before and after the runs of a problem; infinite where there is no such run or copy.

    Attributes
    ----------
    run_head
        No run of op i on device d begins earlier, shape (n, D).
    copy_head
        Tensor j is not on device d earlier, shape (D, J).
    tail
        From the end of the first run of op i to that of the step, shape (n, D), if all its runs are on d:
        what is read elsewhere is copied.
    repeated_tail
        The same if it runs elsewhere, too, shape (n,): then a reader need not wait for a copy.
    """

    run_head: Floats
    copy_head: Floats
    tail: Floats
    repeated_tail: Floats

    @classmethod
    def of(cls, p: IndexedProblem) -> HeadsAndTails:
        """The times of a problem."""
        run_head, copy_head = _heads(p)
        tail, repeated_tail = _tails(p)
        return cls(run_head, copy_head, tail, repeated_tail)


def handovers_us(p: IndexedProblem) -> Floats:
    """What a tensor waits for at least from its run on a device to a reader on another, shape (D, D, 1)."""
    apart = 1.0 - np.eye(p.device_count)
    return np.asarray((p.problem.platform.handover_us or 0.0) * apart[:, :, None], np.float64)


def _heads(p: IndexedProblem) -> tuple[Floats, Floats]:
    route, handed = p.routes.value, p.routes.value + handovers_us(p)
    begin = np.zeros((p.op_count, p.device_count))
    there = np.full((p.device_count, p.tensor_count), np.inf)
    readable = there.copy()
    for j in np.flatnonzero(p.producer < 0).tolist():
        there[:, j] = readable[:, j] = route[p.home[j], :, j]
    for i in range(p.op_count):
        begin[i] = readable[:, list(p.reads[i])].max(axis=1, initial=0.0)
        made = (begin[i] + p.compute_value[i])[:, None]
        for j in p.makes[i]:
            there[:, j] = (made + route[:, :, j]).min(axis=0)
            readable[:, j] = (made + handed[:, :, j]).min(axis=0)
    return begin, there


def _tails(p: IndexedProblem) -> tuple[Floats, Floats]:
    route, handed = p.routes.value, p.routes.value + handovers_us(p)
    tail, repeated = np.zeros((p.op_count, p.device_count)), np.zeros(p.op_count)
    rest = np.zeros(
        (p.op_count, p.device_count)
    )  # from the begin of the first run, for what is before
    for i in reversed(range(p.op_count)):
        for j in p.makes[i]:
            if p.must_end_on[j] >= 0:
                tail[i] = np.maximum(tail[i], route[:, p.must_end_on[j], j])
            for reader in p.consumers[j]:
                tail[i] = np.maximum(tail[i], (handed[:, :, j] + rest[reader]).min(axis=1))
                repeated[i] = max(repeated[i], float(rest[reader].min()))
        after = repeated[i] if p.recomputable[i] else tail[i]
        rest[i] = p.compute_value[i] + after
    return tail, repeated
