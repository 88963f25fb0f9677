"""Matrix products of every form, attention."""

import torch
import torch.nn.functional as F
import tvm
from tvm import relax

from tests.training.cases.case import Case, Draw, DrawCase

op, nn = relax.op, relax.op.nn


def _matmul(draw: Draw) -> Case:
    rows, depth, columns = draw.integers(3, 1, 4)
    left_batch, right_batch = draw.permutation(_batches(draw))
    left = [depth] if draw.flag() else [*left_batch, rows, depth]
    right = [depth] if draw.flag() else [*right_batch, depth, columns]
    return Case(op.matmul, torch.matmul, {"a": draw.normal(*left), "b": draw.normal(*right)})


def _linear(draw: Draw) -> Case:
    depth, columns = draw.integers(2, 1, 4)
    outer = draw.shape(ranks=(1, 3))
    return Case(
        lambda x, w: op.matmul(x, op.permute_dims(w)),
        F.linear,
        {"x": draw.normal(*outer, depth), "w": draw.normal(columns, depth)},
    )


def _transposed(draw: Draw) -> Case:
    rows, depth, columns = draw.integers(3, 1, 4)
    left_batch, right_batch = draw.permutation(_batches(draw))
    right_batch = right_batch or [draw.integer(1, 3)]
    if left_batch and 1 not in (left_batch[-1], right_batch[-1]):
        left_batch = [*left_batch[:-1], right_batch[-1]]
    rank = len(right_batch) + 2
    order = [*range(rank - 2), rank - 1, rank - 2]
    return Case(
        lambda a, b: op.matmul(a, op.permute_dims(b, order)),
        lambda a, b: a @ b.mT,
        {
            "a": draw.normal(*left_batch, rows, depth),
            "b": draw.normal(*right_batch, columns, depth),
        },
    )


def _batches(draw: Draw) -> list[list[int]]:
    if draw.flag():
        return [[], draw.shape(ranks=(0, 2))]
    return draw.broadcastable(2, extents=(1, 3))


def _attention(*, biased: bool) -> DrawCase:
    def draw_case(draw: Draw) -> Case:
        batch, heads, width, out_width = draw.integers(4, 1, 3)
        rows, columns = draw.integers(2, 1, 4)
        scale = draw.one_of([None, 0.3])
        mask = None if biased else draw.one_of([None, "TopLeft", "BottomRight"])
        if mask == "BottomRight":
            rows = min(rows, columns)
        operands = {
            "q": draw.normal(batch, rows, heads, width),
            "k": draw.normal(batch, columns, heads, width),
            "v": draw.normal(batch, columns, heads, out_width),
        }
        if biased:
            operands["bias"] = draw.normal(*_bias_shape(draw, [batch, heads, rows, columns]))
        factor = None if scale is None else tvm.tirx.FloatImm("float32", scale)

        def reference(q, k, v, *bias):
            visible = _visible(rows, columns, mask) if not biased else bias[0]
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            y = F.scaled_dot_product_attention(
                q, k, v, attn_mask=visible, scale=None if scale is None else factor.value
            )
            return y.transpose(1, 2)

        return Case(
            lambda q, k, v, *bias: nn.attention(q, k, v, *bias, scale=factor, causal_mask=mask),
            reference,
            operands,
        )

    return draw_case


def _bias_shape(draw: Draw, full: list[int]) -> list[int]:
    return [extent if draw.flag() else 1 for extent in full[:2]] + full[2:]


def _visible(rows: int, columns: int, mask: str | None) -> torch.Tensor | None:
    if mask is None:
        return None
    offset = 0 if mask == "TopLeft" else columns - rows
    return torch.ones(rows, columns, dtype=torch.bool).tril(offset)


_SUBSCRIPTS = [
    "ij,jk->ik",
    "bij,bjk->bik",
    "bhqd,bhkd->bhqk",
    "ij,ij->",
    "ij->ji",
    "ijk->ik",
    "i,j->ij",
    "ij,j->i",
    "ij,jk,kl->il",
    "bij,kj->bik",
    "bnd,hdk->bhnk",
]


def _einsum(draw: Draw) -> Case:
    text = draw.one_of(_SUBSCRIPTS)
    terms = text.split("->")[0].split(",")
    extents = {letter: draw.integer(1, 4) for letter in sorted(set(text) - set(",->"))}
    operands = {
        f"x{k}": draw.normal(*(extents[letter] for letter in term)) for k, term in enumerate(terms)
    }
    return Case(
        lambda *tensors: op.einsum(tensors, text),
        lambda *tensors: torch.einsum(text, *tensors),
        operands,
    )


CASES: dict[str, list[DrawCase]] = {
    "matmul": [_matmul],
    "tvm_xengine.linear": [_linear],
    "tvm_xengine.matmul_transposed": [_transposed],
    "nn.attention": [_attention(biased=False)],
    "nn.attention_bias": [_attention(biased=True)],
    "einsum": [_einsum],
}
