from __future__ import annotations

from tvm import te, topi

from tvm_xengine.kernels.schedules.blocks import intermediates, read_blocks
from tvm_xengine.kernels.schedules.shared_axes import partitioned_dimensions, shared_axes


def blocks_and_buffers(*tensors):
    func = te.create_prim_func(list(tensors))
    return read_blocks(func), intermediates(func)


def test_softmax_shares_its_rows():
    x = te.placeholder((6, 7, 8), "float32", name="x")
    blocks, _ = blocks_and_buffers(x, topi.nn.softmax(x))
    assert [axis[0].extent for axis in shared_axes(blocks)] == [6, 7]


def test_what_is_summed_is_not_shared():
    x = te.placeholder((6, 7), "float32", name="x")
    total = topi.sum(x, axis=0, keepdims=True)
    blocks, _ = blocks_and_buffers(x, topi.subtract(x, total))
    assert [axis[0].extent for axis in shared_axes(blocks)] == [7]


def test_a_transposed_intermediate_is_shared_where_the_positions_meet():
    x = te.placeholder((6, 6), "float32", name="x")
    scaled = te.compute((6, 6), lambda i, j: x[i, j] * 2.0, name="scaled")
    y = te.compute((6, 6), lambda i, j: scaled[j, i] + 1.0, name="y")
    blocks, (buffer,) = blocks_and_buffers(x, y)
    axes = shared_axes(blocks)
    assert [(str(a.var.name), str(b.var.name)) for a, b in axes] == [
        ("v_j", "v_i"),
        ("v_i", "v_j"),
    ]
    assert partitioned_dimensions(buffer, blocks, axes) == (0, 1)


def test_neighbours_are_not_shared():
    x = te.placeholder((9,), "float32", name="x")
    scaled = te.compute((9,), lambda i: x[i] * 2.0, name="scaled")
    y = te.compute((8,), lambda i: scaled[i] + scaled[i + 1], name="y")
    blocks, _ = blocks_and_buffers(x, y)
    assert shared_axes(blocks) == ()
