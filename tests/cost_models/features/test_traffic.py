"""Footprints against sets of addresses, misses against a simulated cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import product

import pytest
import tvm
from tvm import te, tirx

from tests.kernels.kernels import BASELINE, matmul
from tvm_xengine.cost_models.features.statements import statements_of
from tvm_xengine.cost_models.features.traffic import (
    Run,
    footprints,
    missed_bytes,
    runs_of,
)
from tvm_xengine.kernels.lower.pipeline import lower_to_explicit_memory
from tvm_xengine.kernels.targets import resolve_target

LINE_BYTES = 64
FLOAT_BYTES = 4


def runs(func: tirx.PrimFunc) -> list[Run]:
    """Of the loops as they are written, without a schedule."""
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    lowered = lower_to_explicit_memory(resolve_target(BASELINE))(module)["main"]
    return runs_of(statements_of(lowered))


def window_sums(extent: int, window: int, stride: int) -> tirx.PrimFunc:
    """y[i, j] = sum of x[stride * i + p, stride * j + q] over a window."""
    size = (extent - 1) * stride + window
    x = te.placeholder((size, size), "float32", name="x")
    p, q = (te.reduce_axis((0, window), name=name) for name in "pq")
    y = te.compute(
        (extent, extent),
        lambda i, j: te.sum(x[i * stride + p, j * stride + q], axis=[p, q]),
        name="y",
    )
    return te.create_prim_func([x, y])


@pytest.mark.parametrize(("extent", "window", "stride"), [(12, 3, 1), (9, 5, 2), (16, 2, 2)])
def test_windows_that_overlap_are_counted_once(extent, window, stride):
    touched = {
        (i * stride + p, j * stride + q)
        for i, j, p, q in product(range(extent), range(extent), range(window), range(window))
    }
    (found,) = footprints(runs(window_sums(extent, window, stride)), (0,))
    exact = FLOAT_BYTES * (len(touched) + extent**2)
    assert exact <= found.touched_bytes <= 1.1 * exact


def test_a_column_needs_a_line_for_each_element():
    x = te.placeholder((256, 64), "float32", name="x")
    k = te.reduce_axis((0, 256), name="k")
    y = te.compute((64,), lambda j: te.sum(x[k, j], axis=k), name="y")
    inner = footprints(runs(te.create_prim_func([x, y])), (1,))[0]
    assert inner.touched_bytes == pytest.approx(256 * LINE_BYTES, rel=0.05)
    # Rows are 256 bytes apart: only every fourth set of a cache takes the column.
    assert inner.held_bytes == pytest.approx(4 * 256 * LINE_BYTES, rel=0.05)


@pytest.mark.parametrize("cache_bytes", [2048, 8192, 40_000])
@pytest.mark.parametrize("extents", [(40, 40, 40), (24, 72, 36)])
def test_misses_of_a_product_are_near_those_of_a_cache(extents, cache_bytes):
    m, n, k = extents
    a, b, c = 0, 4 * m * k, 4 * m * k + 4 * k * n

    def addresses() -> Iterator[int]:
        for i, j in product(range(m), range(n)):
            yield c + 4 * (i * n + j)
            for r in range(k):
                yield a + 4 * (i * k + r)
                yield b + 4 * (r * n + j)

    cache = Cache(cache_bytes)
    cache.misses_bytes(addresses())  # the first call warms it
    expected = cache.misses_bytes(addresses())
    (found,) = missed_bytes(runs(matmul(*extents)), (cache_bytes,))
    if expected == 0:
        assert found == 0
    else:
        assert 1 / 2.5 <= found / expected <= 2.5


class Cache:
    """Fully associative, the least recently used line goes."""

    def __init__(self, size_bytes: int) -> None:
        self._lines: OrderedDict[int, None] = OrderedDict()
        self._most = size_bytes // LINE_BYTES

    def misses_bytes(self, addresses: Iterable[int]) -> int:
        """Bytes that the cache fetches."""
        missed = 0
        for address in addresses:
            line = address // LINE_BYTES
            if line in self._lines:
                self._lines.move_to_end(line)
                continue
            missed += LINE_BYTES
            self._lines[line] = None
            if len(self._lines) > self._most:
                self._lines.popitem(last=False)
        return missed
