"""Tensors that a team of threads writes in turns."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import tvm

from tests.kernels.threads.test_team import needs_openmp
from tvm_xengine.kernels.threads import handed_around
from tvm_xengine.kernels.threads.handed_around import HandedAround


def tensors(*sizes: int) -> list[tvm.runtime.Tensor]:
    rng = np.random.default_rng(0)
    return [tvm.runtime.tensor(rng.standard_normal(size).astype("float32")) for size in sizes]


def test_tensors_keep_what_they_hold() -> None:
    held = tensors(1, 3, 1024, 5000, 100_000)
    before = [tensor.numpy().copy() for tensor in held]
    HandedAround(held).hand_around()
    for tensor, values in zip(held, before, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), values)


@needs_openmp
def test_every_byte_is_in_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[tuple[int, int]] = []

    def launch(_function: int, spans: int, count: int) -> None:
        found = (ctypes.c_void_p * (2 * count)).from_address(spans)
        parts.extend(zip(found[::2], found[1::2], strict=True))

    monkeypatch.setattr(handed_around, "launch", launch)
    held = tensors(1, 1024, 5000)
    HandedAround(held).hand_around()
    assert sum(end - begin for begin, end in parts) == 4 * (1 + 1024 + 5000)
    assert all(0 < end - begin <= 4096 for begin, end in parts)
    assert len(parts) == 1 + 1 + 5


def test_nothing_is_handed_around_where_there_is_nothing() -> None:
    HandedAround([]).hand_around()
    HandedAround(tensors(0)).hand_around()
