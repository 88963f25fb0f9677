"""A problem as arrays for the compiled shortest-path search.

A *state* is a row of words: for each device the tensors that are there, then for each device
the state that an update has overwritten there, then the ops that ran and must not be repeated,
then the ops that ran on an uncapacitated device and that nothing has read yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.indexed import ANYWHERE, NONE, NOWHERE, IndexedProblem
from tvm_xengine.solvers.relaxation.uncapacitated import uncapacitated_devices

WORD = 64
"""Bits of a word."""
MAX_OPS = 63
"""Ops are noted in one word, whose last bit is `AT_THE_END`."""
AT_THE_END = np.uint64(1 << 63)
"""Noted among the unread ops once nothing more will run on a capacitated device."""

Words = NDArray[np.uint64]


class StateView(NamedTuple):
    """Arrays for the compiled code; n ops, D devices, J tensors, W words for a set of tensors.

    Attributes
    ----------
    reads, makes
        Tensors of each op, shape (n, W).
    compute_value, transfer_value
        As in `IndexedProblem`.
    kernel_value, workspace
        Of each kernel, as in `IndexedProblem.kernels`.
    size, budget
        Units, shapes (J,) and (D,).
    is_capacitated
        Devices that do not hold everything at once, shape (D,).
    home, must_end_on, update_of, producer
        As in `IndexedProblem`, shape (J,).
    result_of
        For each updated state its update's result, else `NONE`, shape (J,).
    mark
        For each updated state the bit that notes it as overwritten, else `NONE`, shape (J,).
    recomputable, makes_one
        Whether an op may be repeated, has one output, shape (n,).
    is_final
        Outputs that no op reads and that may end anywhere, shape (J,).
    floor
        The least that one run of each op costs, with bringing its update results home, shape (n,).
    by_size
        The tensors, largest first, shape (J,).
    descendants
        For each op the ops that depend on it, as bits, shape (n,).
    may_save
        Whether a tensor that leaves a device is to be saved on another one: where there is room
        for everything, and what may read it runs, or no device that is as near; shape (D, J).
    may_wait
        Whether runs on uncapacitated devices may wait until something reads them.
    """

    reads: Words
    makes: Words
    compute_value: NDArray[np.float64]
    kernel_value: NDArray[np.float64]
    workspace: NDArray[np.int64]
    transfer_value: NDArray[np.float64]
    size: NDArray[np.int64]
    budget: NDArray[np.int64]
    is_capacitated: NDArray[np.bool_]
    home: NDArray[np.int64]
    must_end_on: NDArray[np.int64]
    update_of: NDArray[np.int64]
    result_of: NDArray[np.int64]
    mark: NDArray[np.int64]
    producer: NDArray[np.int64]
    recomputable: NDArray[np.bool_]
    makes_one: NDArray[np.bool_]
    is_final: NDArray[np.bool_]
    floor: NDArray[np.float64]
    by_size: NDArray[np.int64]
    descendants: Words
    may_save: NDArray[np.bool_]
    may_wait: bool


def is_within_reach(indexed: IndexedProblem) -> bool:
    """Whether `view_of` may be used: few ops, and no way between devices beats the direct link."""
    if indexed.op_count > MAX_OPS or int((indexed.update_of >= 0).sum()) > WORD:
        return False
    weight = indexed.transfer_value
    others = ~np.eye(indexed.device_count, dtype=np.bool_)
    if not np.isfinite(weight[others]).all():
        return False
    direct = np.where(others[:, :, None], weight, 0.0)
    return all(
        bool((direct <= direct[:, [b]] + direct[[b]] + 1e-9).all())
        for b in range(indexed.device_count)
    )


def view_of(indexed: IndexedProblem) -> StateView:
    """The arrays of `indexed`."""
    result_of = np.full(indexed.tensor_count, NONE, np.int64)
    results = np.flatnonzero(indexed.update_of >= 0)
    result_of[indexed.update_of[results]] = results
    mark = np.where(result_of >= 0, np.cumsum(result_of >= 0) - 1, NONE)
    is_uncapacitated = uncapacitated_devices(indexed)
    unread = np.array([not ops for ops in indexed.consumers], np.bool_)
    return StateView(
        reads=np.array([words_of(tensors, indexed.tensor_count) for tensors in indexed.reads]),
        makes=np.array([words_of(tensors, indexed.tensor_count) for tensors in indexed.makes]),
        compute_value=indexed.compute_value,
        kernel_value=indexed.kernels.value,
        workspace=indexed.kernels.workspace,
        transfer_value=indexed.transfer_value,
        size=indexed.size,
        budget=indexed.budget,
        is_capacitated=~is_uncapacitated,
        home=indexed.home,
        must_end_on=indexed.must_end_on,
        update_of=indexed.update_of,
        result_of=result_of,
        mark=mark,
        producer=indexed.producer,
        recomputable=indexed.recomputable,
        makes_one=np.array([len(tensors) == 1 for tensors in indexed.makes], np.bool_),
        is_final=(indexed.must_end_on == ANYWHERE) & unread,
        floor=np.array(
            [
                min(_run_and_return(indexed, i, d) for d in range(indexed.device_count))
                for i in range(indexed.op_count)
            ]
        ),
        by_size=np.argsort(-indexed.size, kind="stable"),
        descendants=_descendants(indexed),
        may_save=_may_save(indexed, is_uncapacitated),
        may_wait=not (is_uncapacitated[indexed.home] & (result_of >= 0)).any(),
    )


def first_state(indexed: IndexedProblem) -> Words:
    """The row from which every schedule starts: all state at home."""
    row = [words_of(np.flatnonzero(there), indexed.tensor_count) for there in indexed.at_home]
    return np.concatenate([*row, np.zeros(indexed.device_count + 2, np.uint64)])


def words_of(positions: Iterable[int], count: int) -> Words:
    """A set of positions below `count` as bits, shape (W,)."""
    words = np.zeros(-(-count // WORD), np.uint64)
    for position in positions:
        words[position // WORD] |= np.uint64(1 << (int(position) % WORD))
    return words


def _descendants(indexed: IndexedProblem) -> Words:
    below = [0] * indexed.op_count
    for i in reversed(range(indexed.op_count)):
        for j in indexed.makes[i]:
            for reader in indexed.consumers[j]:
                below[i] |= 1 << reader | below[reader]
    return np.array(below, np.uint64)


def _may_save(indexed: IndexedProblem, is_uncapacitated: NDArray[np.bool_]) -> NDArray[np.bool_]:
    may = np.repeat(is_uncapacitated[:, None], indexed.tensor_count, axis=1)
    for j in range(indexed.tensor_count):
        for r in np.flatnonzero(is_uncapacitated).tolist():
            may[r, j] = not any(
                _replaces(indexed, j, int(other), r)
                for other in np.flatnonzero(may[:, j])
                if other != r
            )
    return may


def _replaces(indexed: IndexedProblem, j: int, other: int, r: int) -> bool:
    """Whether tensor j need not be on r since nothing there uses it and `other` is as near."""
    copy, devices = indexed.transfer_value[:, :, j], np.arange(indexed.device_count)
    updater = int(indexed.updated_by[j])
    users = [*indexed.consumers[j], *([updater] if updater >= 0 else [])]
    if indexed.must_end_on[j] == r or indexed.can_run[users, r].any():
        return False
    if indexed.must_end_on[j] == other or (updater >= 0 and indexed.can_run[updater, other]):
        return False  # what is there may be overwritten
    rest = devices[(devices != r) & (devices != other)]
    return bool(
        (copy[rest, other] <= copy[rest, r]).all() and (copy[other, rest] <= copy[r, rest]).all()
    )


def _run_and_return(indexed: IndexedProblem, i: int, d: int) -> float:
    """Weight of running op i on d and of bringing its update results home."""
    weight = float(indexed.compute_value[i, d])
    for j in indexed.makes[i]:
        end = int(indexed.must_end_on[j])
        if indexed.update_of[j] >= 0 and end not in (NOWHERE, d):
            weight += float(indexed.transfer_value[d, end, j])
    return weight
