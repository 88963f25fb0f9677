"""The stage model `tight`: placement, rematerialization and paging in one mixed-integer program.

Stage t ends with the first run of op t; in stage t the ops i <= t may run, in order, each at
most once on each device; stage n, after the last op, repeats and copies only. The model follows the
frontier-advancing stages of Checkmate (Jain et al., MLSys 2020) with these differences: memory
is written directly as the sum of what is held during a slot (no recurrence, no FREE
variables), several devices with copies that occupy their destination, ops with
several outputs, workspace, resident state that may be paged, and updates in place.

Variables, for device d, stage t, op i, tensor j, link (a, b):

    compute[d,t,i]  in {0,1}  d runs op i in slot i of stage t
    takes[d,t,i,v]  in {0,1}  it does so with kernel v, which is cheaper than the leanest
    keep[d,t,j]     in {0,1}  j is on d when stage t starts
    copies of j in stage t, right after the slot of its producer (`copies`): a column for each
    link, or products of where it comes from and where it arrives
    made[d,t,j]     in [0,1]  j appears on d by a run (= compute for ops with one output)
    held[d,t,j,q]   in [0,1]  j is on d during the slot of its q-th reader in stage t

With  arrives[d,t,j] = sum of the copies to d  and  there = keep + made + arrives:

    sum_d compute[d,t,t] >= 1                                       every op runs
    there[d,t,j] <= 1;  what is copied is there before            copies have a source
    held[.,1] <= there,  held[.,q+1] <= held[.,q]                   what is dropped is gone
    compute[d,t,i] <= held[d,t,j,q(i)]                              inputs are there
    keep[d,t+1,j] <= held[d,t,j,last]
    sum_v takes[d,t,i,v] <= compute[d,t,i]
    sum_j size_j * (what stands for j in slot k) + workspace * compute[d,t,k]
        + sum_v (its workspace more than the leanest's) * takes[d,t,k,v] <= budget_d

In slot k stand for j: keep[d,t,j] before the slot of its producer, `there` in that slot, held
of the next reader after it, keep[d,t+1,j] after the last reader. An update o of state w in op
u on device d takes over the bytes of w: keep and copies of w on d end after stage u, and a copy
of o to the home of w needs w there, and replaces it.

What it leaves out: first runs in another order than the graph's; between two first runs, a
second run of an op on the same device, repetitions in another order, copies of one slot that take
turns in the same bytes, and copies at other time points than right after the slot of the producer
(for state: the start of the stage). Its optimum is the optimum of that class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.schedule import Schedule, Step, with_frees
from tvm_xengine.solvers.exact.copies import Copies, CopiesOverLinks
from tvm_xengine.solvers.indexed import ANYWHERE, NOWHERE, IndexedProblem
from tvm_xengine.solvers.program import (
    ABSENT,
    Look,
    Program,
    ProgramBuilder,
    is_set,
    refuse_too_large,
)

SCOPE = (
    "schedules that first run the ops in the given order, repeat an op at most once on a device"
    " between two first runs, and copy a tensor right after the place of its producer"
)
"""The class of schedules in which the model's optimum is one."""

_MOST_CELLS = 1_000_000
"""Devices by stages by tensors; of more no program is written. 104,000 (U-Net on two devices) take 0.8 GB."""

_Grid = NDArray[np.int64]
_Terms = list[tuple[int, float]]


@dataclass(frozen=True)
class TightModel:
    """The program and the columns a schedule is read from; -1 marks a column that is absent.

    Attributes
    ----------
    compute
        Shape (D, n + 1, n): device, stage, op.
    takes
        Shape (D, n + 1, n, V); the leanest kernel, the first, has no column.
    keep
        Shape (D, n + 1, J): device, stage, tensor.
    copies
        The columns of copies.
    made
        Shape (D, n + 1, J).
    held
        For (stage, tensor), shape (D, readers).
    slots
        For (stage, tensor), the slots of its readers.
    """

    indexed: IndexedProblem
    program: Program
    compute: _Grid
    takes: _Grid
    keep: _Grid
    copies: Copies
    made: _Grid
    held: Mapping[tuple[int, int], _Grid]
    slots: Mapping[tuple[int, int], tuple[int, ...]]

    def schedule(self, x: NDArray[np.float64]) -> Schedule:
        """The schedule that the solution `x` describes."""
        p, n = self.indexed, self.indexed.op_count
        steps: list[Step] = []
        for t in range(n + 1):
            for slot in range(-1, min(t + 1, n)):
                if slot >= 0:
                    steps += [
                        p.compute(slot, d)
                        for d in range(p.device_count)
                        if is_set(x, self.compute[d, t, slot])
                    ]
                steps += [
                    p.transfer(j, a, b)
                    for j in np.flatnonzero(p.producer == slot).tolist()
                    for a, b in self.copies.taken(x, t, j)
                ]
        survivors = {
            p.tensor_names[j]: p.device_names[d]
            for j in np.flatnonzero(p.must_end_on == ANYWHERE).tolist()
            for d in range(p.device_count)
            if self._ends_on(x, j, d)
        }
        return with_frees(p.problem, steps, survivors=survivors)

    def _ends_on(self, x: NDArray[np.float64], j: int, d: int) -> bool:
        n, i = self.indexed.op_count, self.indexed.producer[j]
        return (
            is_set(x, self.keep[d, n, j])
            or (i >= 0 and is_set(x, self.compute[d, n, i]))
            or any(b == d for _, b in self.copies.taken(x, n, j))
        )


def formulate_tight(
    indexed: IndexedProblem,
    copies: type[Copies] = CopiesOverLinks,
    look: Look = lambda: None,
) -> TightModel:
    """The program whose optimum is the cheapest schedule of the class `SCOPE`.

    Raises
    ------
    UnsupportedProblemError
        If memory would not hold it.
    """
    n = indexed.op_count
    refuse_too_large(indexed.device_count * (n + 1) * indexed.tensor_count, n, _MOST_CELLS)
    draft = _Draft(indexed, copies, look)
    _run_every_op(draft)
    _choose_kernels(draft)
    _make_outputs(draft)
    draft.copies.constrain(draft.builder, draft.keep, draft.made)
    _hold_until_read(draft)
    _overwrite_state(draft)
    _deliver(draft)
    _stay_within_budgets(draft)
    _weigh(draft)
    return TightModel(
        indexed=indexed,
        program=draft.builder.build(),
        compute=draft.compute,
        takes=draft.takes,
        keep=draft.keep,
        copies=draft.copies,
        made=draft.made,
        held=draft.held,
        slots=draft.slots,
    )


class _Draft:
    """The columns of the model while rows are being written."""

    def __init__(self, indexed: IndexedProblem, copies: type[Copies], look: Look) -> None:
        self.p = p = indexed
        self.builder = ProgramBuilder(look)
        n, count, devices = p.op_count, p.tensor_count, p.device_count
        stage = np.arange(n + 1)
        last_run, last_read = np.array(p.last_run), np.array(p.last_read)
        op = np.arange(n)
        runs = (stage[:, None] == op) | (
            p.recomputable & (op < stage[:, None]) & (stage[:, None] <= last_run)
        )
        self.compute = self.builder.grid(runs[None] & p.can_run.T[:, None, :], is_integer=True)
        is_leaner = np.diff(p.kernels.workspace, axis=2, prepend=np.int64(0)) > 0
        is_leaner[:, :, 0] = False
        self.takes = self.builder.grid(
            (self.compute >= 0)[..., None] & is_leaner.transpose(1, 0, 2)[:, None], is_integer=True
        )
        self.is_live = (p.producer <= stage[:, None]) & (stage[:, None] <= last_read)
        is_kept = self.is_live & (p.producer < stage[:, None])
        keep = np.repeat(is_kept[None], devices, axis=0)
        for d in range(devices):
            keep[d, 0] &= p.home == d
        self.keep = self.builder.grid(keep, is_integer=True)
        self.made = np.full((devices, n + 1, count), ABSENT, np.int64)
        for i, tensors in enumerate(p.makes):
            for j in tensors:
                live = np.where(self.is_live[:, j], self.compute[:, :, i], ABSENT)
                several = len(tensors) > 1
                self.made[:, :, j] = self.builder.grid(live >= 0) if several else live
        self.copies = copies.drafted(p, self.builder, (self.keep >= 0) | (self.made >= 0))
        self.slots: dict[tuple[int, int], tuple[int, ...]] = {}
        self.held: dict[tuple[int, int], _Grid] = {}
        for t, j in zip(*(axis.tolist() for axis in np.nonzero(self.is_live)), strict=True):
            slots = self._slots(t, j)
            self.slots[t, j] = slots
            self.held[t, j] = self.builder.fractions(devices * len(slots)).reshape(devices, -1)

    def there(self, d: int, t: int, j: int) -> _Terms:
        """Terms of keep + made + copies: tensor j is on d after the slot of its producer."""
        terms = [(int(self.keep[d, t, j]), 1.0), (int(self.made[d, t, j]), 1.0)]
        terms += self.arrives(d, t, j)
        return [term for term in terms if term[0] >= 0]

    def arrives(self, d: int, t: int, j: int) -> _Terms:
        """Terms of the copies of tensor j to device d in stage t."""
        return [(column, 1.0) for column in self.copies.arriving(d, t, j)]

    def kept_next(self, d: int, t: int, j: int) -> int:
        """Column of keep[d,t+1,j], or -1."""
        return int(self.keep[d, t + 1, j]) if t < self.p.op_count else ABSENT

    def updates(self) -> Iterable[tuple[int, int, int, int]]:
        """(op, result, state, home of the state) of every update."""
        for o in np.flatnonzero(self.p.update_of >= 0).tolist():
            w = int(self.p.update_of[o])
            yield int(self.p.producer[o]), o, w, int(self.p.home[w])

    def _slots(self, t: int, j: int) -> tuple[int, ...]:
        """The slots of stage t in which tensor j may be read, a landing update included."""
        slots = {k for k in self.p.consumers[j] if k <= t and (self.compute[:, t, k] >= 0).any()}
        if 0 <= self.p.updated_by[j] <= t:
            slots.add(int(self.p.updated_by[j]))
        if t == self.p.op_count and self.p.must_end_on[j] != NOWHERE:
            slots.add(t)
        return tuple(sorted(slots))


def _run_every_op(draft: _Draft) -> None:
    """Op t runs in stage t.

    sum_d compute[d,t,t] >= 1  (= 1 if it must not be repeated)
    """
    for t in range(draft.p.op_count):
        terms = [(c, 1.0) for c in draft.compute[:, t, t].tolist() if c >= 0]
        upper = np.inf if draft.p.recomputable[t] else 1.0
        draft.builder.row(terms, lower=1.0, upper=upper)


def _choose_kernels(draft: _Draft) -> None:
    """A run takes at most one kernel other than the leanest.

    sum_v takes[d,t,i,v] <= compute[d,t,i]
    """
    for d, t, i in np.argwhere((draft.takes >= 0).any(axis=3)).tolist():
        taken = [(column, 1.0) for column in draft.takes[d, t, i].tolist() if column >= 0]
        draft.builder.row([*taken, (int(draft.compute[d, t, i]), -1.0)], upper=0.0)


def _make_outputs(draft: _Draft) -> None:
    """A tensor appears when its op runs, unless it is there already; it is there at most once.

    made <= compute,  made >= compute - keep,  keep + made + copies <= 1
    """
    for t, j in draft.held:
        i = int(draft.p.producer[j])
        for d in range(draft.p.device_count):
            terms = draft.there(d, t, j)
            if len(terms) > 1:
                draft.builder.row(terms, upper=1.0)
            made = draft.made[d, t, j]
            if made >= 0 and made != draft.compute[d, t, i]:
                compute, keep = int(draft.compute[d, t, i]), int(draft.keep[d, t, j])
                draft.builder.row([(int(made), 1.0), (compute, -1.0)], upper=0.0)
                kept = [(keep, 1.0)] if keep >= 0 else []
                draft.builder.row([(int(made), 1.0), (compute, -1.0), *kept], lower=0.0)


def _hold_until_read(draft: _Draft) -> None:
    """Inputs are held from where they appear to where they are read, and on to the next stage.

    held[.,1] <= there,  held[.,q+1] <= held[.,q],  keep[d,t+1,j] <= held[.,last]
    compute[d,t,i] <= held[d,t,j,q(i)]
    """
    row = draft.builder.row
    for (t, j), held in draft.held.items():
        for d in range(draft.p.device_count):
            before = draft.there(d, t, j)
            for column, slot in zip(held[d].tolist(), draft.slots[t, j], strict=True):
                row([(column, 1.0), *((c, -v) for c, v in before)], upper=0.0)
                before = [(column, 1.0)]
                if slot in draft.p.consumers[j]:
                    compute = int(draft.compute[d, t, slot])
                    if compute >= 0:
                        row([(compute, 1.0), (column, -1.0)], upper=0.0)
            following = draft.kept_next(d, t, j)
            if following >= 0:
                row([(following, 1.0), *((c, -v) for c, v in before)], upper=0.0)


def _overwrite_state(draft: _Draft) -> None:
    """State w is gone where its update o ran in op u, and where o has landed on it.

    there[d,t,w] + compute[d,u,u] <= 1                              t > u
    copies of o to the home h of w in stage t <= held[h,t,w,q(u)]   o lands on w
    keep[h,t+1,w] + there[h,t,o] <= 1,  there[h,t,w] + keep[h,t,o] <= 1
    """
    row = draft.builder.row
    n = draft.p.op_count
    for u, o, w, h in draft.updates():
        for t in range(u, n + 1):
            if t > u:
                for d in range(draft.p.device_count):
                    if draft.compute[d, u, u] >= 0:
                        row([*draft.there(d, t, w), (int(draft.compute[d, u, u]), 1.0)], upper=1.0)
            landed = draft.arrives(h, t, o)
            if landed:
                at = int(draft.held[t, w][h, draft.slots[t, w].index(u)])
                row([*landed, (at, -1.0)], upper=0.0)
            following = draft.kept_next(h, t, w)
            if following >= 0:
                row([*draft.there(h, t, o), (following, 1.0)], upper=1.0)
            if draft.keep[h, t, o] >= 0:
                row([*draft.there(h, t, w), (int(draft.keep[h, t, o]), 1.0)], upper=1.0)


def _deliver(draft: _Draft) -> None:
    """At the end state is at home, updated, and every output is on some device.

    held[d,n,j,last] = 1  at home;  sum_d held[d,n,j,last] >= 1  for outputs
    """
    for j, where in enumerate(draft.p.must_end_on.tolist()):
        if where == NOWHERE:
            continue
        last = draft.held[draft.p.op_count, j][:, -1]
        columns = last.tolist() if where == ANYWHERE else [int(last[where])]
        draft.builder.row([(column, 1.0) for column in columns], lower=1.0)


def _stay_within_budgets(draft: _Draft) -> None:
    """In every slot in which something can appear, what is held fits the budget.

    sum_j size_j * standing[d,t,j,k] + workspace * compute[d,t,k]
        + sum_v (its workspace more than the leanest's) * takes[d,t,k,v] <= budget_d
    """
    for t in range(draft.p.op_count + 1):
        live = np.flatnonzero(draft.is_live[t])
        for d in range(draft.p.device_count):
            _memory_rows(draft, d, t, live)


def _memory_rows(draft: _Draft, d: int, t: int, live: NDArray[np.int64]) -> None:
    p, builder = draft.p, draft.builder
    arriving = {int(p.producer[j]) for j in live if draft.copies.arriving(d, t, int(j))}
    arriving |= set(np.flatnonzero(draft.compute[d, t] >= 0).tolist())
    slots = np.array(sorted(arriving), np.int64)
    if not len(slots):
        return
    rows = builder.new_rows(len(slots), upper=float(p.budget[d]))
    row_of = dict(zip(slots.tolist(), rows.tolist(), strict=True))
    for j in live.tolist():
        size, own = float(p.size[j]), int(p.producer[j])
        # Boundaries of the slots in which one column stands for the tensor.
        ends = (own, *draft.slots[t, j], p.op_count + 1)
        columns = (draft.keep[d, t, j], *draft.held[t, j][d], draft.kept_next(d, t, j))
        begins = (-2, own + 1, *(slot + 1 for slot in draft.slots[t, j]))
        closes = (own - 1, *ends[1:])
        for column, begin, close in zip(columns, begins, closes, strict=True):
            if column >= 0:
                within = rows[(slots >= begin) & (slots <= close)]
                builder.entries(within, np.full(len(within), column), size)
        if own in row_of:
            terms = _appears(draft, d, t, j)
            builder.entries([row_of[own]] * len(terms), terms, size)
    for k in slots.tolist():
        compute = int(draft.compute[d, t, k]) if k >= 0 else ABSENT
        if compute >= 0:
            unread = sum(p.size[j] for j in p.makes[k] if not draft.is_live[t, j])
            builder.entries(row_of[k], compute, float(p.workspace[k, d] + unread))
            for v in np.flatnonzero(draft.takes[d, t, k] >= 0).tolist():
                more = float(p.kernels.workspace[k, d, v] - p.workspace[k, d])
                builder.entries(row_of[k], int(draft.takes[d, t, k, v]), more)


def _appears(draft: _Draft, d: int, t: int, j: int) -> list[int]:
    """Columns that stand for tensor j in the slot of its producer.

    An update result has no bytes of its own where it takes over those of its state.
    """
    w = int(draft.p.update_of[j])
    if w < 0:
        return [column for column, _ in draft.there(d, t, j)]
    columns = [int(draft.keep[d, t, j])]
    if draft.p.home[w] != d:
        columns += [column for column, _ in draft.arrives(d, t, j)]
    return [column for column in columns if column >= 0]


def _weigh(draft: _Draft) -> None:
    """Minimise sum value of the leanest * compute + what other kernels save * takes + the value of copies."""
    p, value = draft.p, draft.p.kernels.value
    for d in range(p.device_count):
        t, i = np.nonzero(draft.compute[d] >= 0)
        draft.builder.minimise(draft.compute[d, t, i], value[i, d, 0])
        t, i, v = np.nonzero(draft.takes[d] >= 0)
        draft.builder.minimise(draft.takes[d, t, i, v], value[i, d, v] - value[i, d, 0])
    draft.copies.weigh(draft.builder)
