"""Which values an integer input may have, judged by PyTorch, which refuses all others itself."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tvm_xengine.frontends.torch.read import from_torch_export
from tvm_xengine.relax_ir.forward_ops import read_forward_ops
from tvm_xengine.training.forward.input_ranges import index_ranges

ROWS, COLUMNS = 7, 5
OF_ROWS = ("cross_entropy", "index_add", "index_copy", "index_put", "nll_loss")
"""Those that read one index for each row."""

READS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": lambda w, i: F.cross_entropy(w[:2], i),
    "embedding": lambda w, i: F.embedding(i, w),
    "gather": lambda w, i: w.gather(0, i),
    "index": lambda w, i: w[i],
    "index_of_columns": lambda w, i: w[:, i],
    "index_add": lambda w, i: w.index_add(0, i, w[:2]),
    "index_copy": lambda w, i: w.index_copy(0, i, w[:2]),
    "index_put": lambda w, i: w.index_put((i,), w[:2]),
    "index_select": lambda w, i: w.index_select(1, i.reshape(-1)),
    "nll_loss": lambda w, i: F.nll_loss(w[:2], i, ignore_index=-3),
    "one_hot": lambda w, i: F.one_hot(i, ROWS).to(w.dtype) @ w,
    "put": lambda w, i: w.put(i, w[:2]),
    "scatter": lambda w, i: w.scatter(0, i, w[:2]),
    "scatter_add": lambda w, i: w.scatter_add(1, i, w[:2]),
    "shifted": lambda w, i: F.embedding(i + 2, w),
    "take": lambda w, i: w.take(i),
    "where": lambda w, i: F.embedding(torch.where(i < 0, 0, i), w),
}


class Reads(nn.Module):
    """One integer input for each way to read."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(ROWS, COLUMNS))

    def forward(self, *indices: Tensor) -> list[Tensor]:
        return [read(self.w, i) for read, i in zip(READS.values(), indices, strict=True)]


def filled(name: str, value: int) -> Tensor:
    """The indices of a read, all of one value."""
    return torch.full((2,) if name in OF_ROWS else (2, COLUMNS), value)


def is_taken(name: str, value: int) -> bool:
    """Whether PyTorch takes a value."""
    try:
        READS[name](torch.ones(ROWS, COLUMNS), filled(name, value))
    except (IndexError, RuntimeError):
        return False
    return True


def test_an_input_may_have_the_values_that_pytorch_takes() -> None:
    given = tuple(filled(name, 0) for name in READS)
    model = from_torch_export(torch.export.export(Reads(), given, strict=False))
    source = read_forward_ops(model.main)
    inputs = source.params[: len(model.input_names)]
    ranges = index_ranges(source, inputs)
    assert set(ranges) == {var.name for var in inputs}
    for var, name in zip(inputs, READS, strict=True):
        allowed = ranges[var.name]
        for value in (-101, -100, *range(-3 * ROWS, 3 * ROWS), *range(30, 40), -35, -36):
            inside = allowed.low <= value <= allowed.high or value in allowed.besides
            assert inside == is_taken(name, value), (name, value, str(allowed))


class Parts(nn.Module):
    """Columns that index tables of 3 and 6 rows, the ends of edges, and one that is half a number."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(3, 2), nn.Embedding(6, 2)])

    def forward(self, columns: Tensor, edges: Tensor, half: Tensor) -> Tensor:
        found = [table(columns[:, k]) for k, table in enumerate(self.tables)]
        near = self.tables[1].weight[edges[0]] + self.tables[1].weight[edges[1]]
        return sum(found) + near + self.tables[0](half[0]) * half[1][:, None]


def test_parts_of_an_input_may_have_what_may_stand_in_one_of_them() -> None:
    given = tuple(torch.zeros(shape, dtype=torch.int64) for shape in ((4, 2), (2, 4), (2, 4)))
    model = from_torch_export(torch.export.export(Parts(), given, strict=False))
    source = read_forward_ops(model.main)
    ranges = index_ranges(source, source.params[: len(model.input_names)])
    assert {name: str(allowed) for name, allowed in ranges.items()} == {
        "columns": "0..5",
        "edges": "-6..5",
    }


class ManyColumns(nn.Module):
    """A table that each column of an input is looked up in, as tables of categories have them."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(ROWS, COLUMNS))
        self.columns = columns

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([F.embedding(x[:, k], self.w) for k in range(self.columns)]).sum(0)


def test_no_column_is_left_out_however_many_there_are() -> None:
    columns = 70  # more than a machine's integers have bits
    given = (torch.zeros(2, columns, dtype=torch.int64),)
    model = from_torch_export(torch.export.export(ManyColumns(columns), given, strict=False))
    source = read_forward_ops(model.main)
    (allowed,) = index_ranges(source, source.params[: len(model.input_names)]).values()
    assert str(allowed) == f"0..{ROWS - 1}"
