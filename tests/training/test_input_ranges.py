"""Which values an integer input may have, judged by PyTorch, which refuses all others itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tvm_xengine.frontends.torch.read import from_torch_export
from tvm_xengine.relax_ir.forward_ops import read_forward_ops
from tvm_xengine.scheduling.value_range import ValueRange, by_part
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
    "shifted_down": lambda w, i: F.embedding(i - 12, w),
    "shifted_far": lambda w, i: F.embedding(i + 19, w) + F.embedding(i + 20, w),
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
    ranges = index_ranges(source, inputs, model.constants)
    assert set(ranges) == {var.name for var in inputs}
    for var, name in zip(inputs, READS, strict=True):
        allowed = ranges[var.name]
        for value in (-101, -100, *range(-3 * ROWS, 3 * ROWS), *range(30, 40), -35, -36):
            inside = allowed.low <= value <= allowed.high or value in allowed.besides
            assert inside == is_taken(name, value), (name, value, str(allowed))


class Factors(nn.Module):
    """Solves with factors, and unpacks others, whose exchanges are inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.square, self.tall = nn.Parameter(torch.eye(3)), nn.Parameter(torch.ones(2, 5, 4))

    def forward(self, x: Tensor, exchanged: Tensor, unpacked: Tensor) -> Tensor:
        solved = torch.linalg.lu_solve(self.square, exchanged, x)
        permutation, low, up = torch.lu_unpack(self.tall, unpacked)
        return solved.sum() + (permutation @ low @ up).sum()


def test_exchanges_of_rows_name_rows() -> None:
    """PyTorch leaves them to LAPACK, which reads and writes anywhere."""
    exchanged, unpacked = torch.ones(3, dtype=torch.int32), torch.ones(2, 4, dtype=torch.int32)
    given = (torch.ones(3, 2), exchanged, unpacked)
    model = from_torch_export(torch.export.export(Factors(), given, strict=False))
    source = read_forward_ops(model.main)
    ranges = index_ranges(source, source.params[: len(model.input_names)], model.constants)
    assert ranges == {"exchanged": ValueRange(1, 3), "unpacked": ValueRange(1, 5)}


SHAPE = (4, 3)
PART_ROWS = (4, 10)

PARTS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "added": lambda a, b, x: b[x + torch.tensor([0, 3, 5])].sum(1),
    "chunk": lambda a, b, x: a[x.chunk(3, 1)[0][:, 0]] + F.embedding(x.chunk(3, 1)[1][:, 0], b),
    "concatenated": lambda a, b, x: F.embedding(torch.cat([x[:, 1:], x[:, :1] + 6], 1), b).sum(1),
    "divided": lambda a, b, x: F.embedding(x[:, 0] // 2, a) + F.embedding(-x[:, 1], b),
    "expanded": lambda a, b, x: F.embedding(x[:, 1:2].expand(4, 3), a).sum(1),
    "flip": lambda a, b, x: F.embedding(x.flip(1)[:, 0], a) + b[x.flip(1)[:, 1]],
    "from_end": lambda a, b, x: a[x[:, 0]] + F.embedding(x[:, 0], b) + F.embedding(x[:, 1], b),
    "gather": lambda a, b, x: (
        a[x.gather(1, torch.tensor([[0], [2], [1], [0]]))].sum(1) + b[x[:, 1]]
    ),
    "index_select": lambda a, b, x: a[x.index_select(1, torch.tensor([0, 2]))].sum(1),
    "masked": lambda a, b, x: F.embedding(
        x.masked_fill(torch.tensor([False, True, True]), 0), a
    ).sum(1),
    "one_hot": lambda a, b, x: F.one_hot(x[:, 0], 4)[:, :2] * 1.0 + b[x[:, 1]],
    "repeated": lambda a, b, x: F.embedding(x[:, :1].repeat(1, 3), a).sum(1),
    "reshaped": lambda a, b, x: F.embedding(x.reshape(2, 6)[:, 1], a) + b[x.view(-1)[3:5]],
    "roll": lambda a, b, x: F.embedding(x.roll(1, 1)[:, 0], a),
    "rows": lambda a, b, x: F.embedding(x[::2, 0], a) + F.embedding(x[1::2, 2], b),
    "split": lambda a, b, x: F.embedding(x.split([1, 2], 1)[1], a).sum(1),
    "stacked": lambda a, b, x: F.embedding(torch.stack([x[:, 0] + 6, x[:, 2]], 1), b).sum(1),
    "transposed": lambda a, b, x: a[x.T[0]] + F.embedding(x.t()[2], b),
    "triangle": lambda a, b, x: F.embedding(x.tril(), a).sum(1) + F.embedding(x.triu(1), b).sum(1),
    "two_axes": lambda a, b, x: a[x[:, 0], x[:, 1]][:, None],
    "unbind": lambda a, b, x: F.embedding(x.unbind(1)[0], a) + F.embedding(x.unbind(1)[1], b),
    "unfold": lambda a, b, x: F.embedding(x.unfold(1, 2, 1)[:, 0], b).sum(1) + a[x[:, 2]],
}
"""Parts of an input of four rows and three columns, that index tables of 4 and 10 rows, or none."""


class Parts(nn.Module):
    """One integer input for each way to read parts."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.ones(rows, 2)) for rows in PART_ROWS)

    def forward(self, *given: Tensor) -> list[Tensor]:
        return [read(self.a, self.b, x) for read, x in zip(PARTS.values(), given, strict=True)]


def takes_at(name: str, place: tuple[int, int], value: int) -> bool:
    """Whether PyTorch takes a value in one place, where all others are 0."""
    x = torch.zeros(SHAPE, dtype=torch.int64)
    x[place] = value
    try:
        PARTS[name](torch.ones(4, 2), torch.ones(10, 2), x)
    except (IndexError, RuntimeError):
        return False
    return True


def test_each_element_may_have_the_values_that_pytorch_takes_there() -> None:
    given = tuple(torch.zeros(SHAPE, dtype=torch.int64) for _ in PARTS)
    model = from_torch_export(torch.export.export(Parts(), given, strict=False))
    source = read_forward_ops(model.main)
    inputs = source.params[: len(model.input_names)]
    ranges = index_ranges(source, inputs, model.constants)
    for var, name in zip(inputs, PARTS, strict=True):
        assert ranges[var.name].parts is not None, name
        for place in np.ndindex(*SHAPE):
            for value in range(-11, 12):
                x = np.zeros(SHAPE, np.int64)
                x[place] = value
                found = ranges[var.name].first_outside(x)
                assert found in (None, place)
                assert (found is None) == takes_at(name, place, value), (name, place, value)


class Columns(nn.Module):
    """Columns that index tables of 3 and 6 rows, the ends of edges, and one that is half a number."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(3, 2), nn.Embedding(6, 2)])

    def forward(self, columns: Tensor, edges: Tensor, half: Tensor) -> Tensor:
        found = [table(columns[:, k]) for k, table in enumerate(self.tables)]
        near = self.tables[1].weight[edges[0]] + self.tables[1].weight[edges[1]]
        return sum(found) + near + self.tables[0](half[0]) * half[1][:, None]


def test_a_range_says_where_it_holds() -> None:
    given = tuple(torch.zeros(shape, dtype=torch.int64) for shape in ((4, 2), (2, 4), (2, 4)))
    model = from_torch_export(torch.export.export(Columns(), given, strict=False))
    source = read_forward_ops(model.main)
    ranges = index_ranges(source, source.params[: len(model.input_names)], {})
    assert {name: str(allowed) for name, allowed in ranges.items()} == {
        "columns": "0..2 at [..., 0], 0..5 at [..., 1]",
        "edges": "-6..5",
        "half": "0..2 at [..., 0, :]",
    }


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint32", "int64", "uint64"])
def test_values_of_any_type_are_compared(dtype: str) -> None:
    ranges = [ValueRange(0, 0, (-1,)), ValueRange(0, 5), ValueRange(-(2**63), 2**63 - 1)]
    allowed = by_part(ranges, np.array([[0, 1, 2]]))
    most = 1 if dtype == "bool" else np.iinfo(dtype).max
    assert allowed.first_outside(np.array([[0, 1, most]] * 2, dtype)) is None
    assert allowed.first_outside(np.array([[0, 1, 0], [1, 1, 0]], dtype)) == (1, 0)
    if dtype != "bool":
        assert allowed.first_outside(np.array([[0, most, 0]], dtype)) == (0, 1)
    if dtype.startswith("int"):
        assert allowed.first_outside(np.array([[-1, 0, -1]], dtype)) is None
        assert allowed.first_outside(np.array([[-1, -1, -1]], dtype)) == (0, 1)


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
    (allowed,) = index_ranges(
        source, source.params[: len(model.input_names)], model.constants
    ).values()
    assert str(allowed) == f"0..{ROWS - 1}"
