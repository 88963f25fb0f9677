"""What factorisations do with single columns of a stack of matrices, inside a TVMScript function.

The macros take the buffers, the matrix `v` of the stack, and one-element buffers for values in between.
"""

# TVMScript decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

from tvm.script import tirx as T


@T.macro
def copy_matrix(source, target, v, rows, columns):
    for i in range(rows):
        for j in range(columns):
            target[v, i, j] = source[v, i, j]


@T.macro
def set_identity(matrix, v, rows, columns):
    for i in range(rows):
        for j in range(columns):
            matrix[v, i, j] = T.Select(i == j, T.cast(1, matrix.dtype), T.cast(0, matrix.dtype))


@T.macro
def rotation(tangent, cosine):
    """From the cotangent of twice the angle, in `tangent`, to tangent and cosine of the smaller angle."""
    cosine[0] = T.Select(
        tangent[0] < T.cast(0, tangent.dtype), T.cast(-1, tangent.dtype), T.cast(1, tangent.dtype)
    )
    tangent[0] = cosine[0] / (
        T.abs(tangent[0]) + T.sqrt(tangent[0] * tangent[0] + T.cast(1, tangent.dtype))
    )
    cosine[0] = T.cast(1, tangent.dtype) / T.sqrt(
        tangent[0] * tangent[0] + T.cast(1, tangent.dtype)
    )


@T.macro
def rotate_columns(matrix, v, rows, pair, tangent, cosine, kept):
    for k in range(rows):
        kept[0] = matrix[v, k, pair[0]]
        matrix[v, k, pair[0]] = cosine[0] * (kept[0] - tangent[0] * matrix[v, k, pair[1]])
        matrix[v, k, pair[1]] = cosine[0] * (tangent[0] * kept[0] + matrix[v, k, pair[1]])


@T.macro
def exchange(values, v, i, j, kept):
    kept[0] = values[v, i]
    values[v, i] = values[v, j]
    values[v, j] = kept[0]


@T.macro
def exchange_columns(matrix, v, rows, i, j, kept):
    for k in range(rows):
        kept[0] = matrix[v, k, i]
        matrix[v, k, i] = matrix[v, k, j]
        matrix[v, k, j] = kept[0]


@T.macro
def dot(matrix, v, rows, i, j, total):
    total[0] = T.cast(0, matrix.dtype)
    for k in range(rows):
        total[0] = total[0] + matrix[v, k, i] * matrix[v, k, j]
