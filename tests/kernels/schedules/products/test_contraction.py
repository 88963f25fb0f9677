from __future__ import annotations

from tvm import te, topi

from tests.kernels.kernels import matmul
from tvm_xengine.kernels.schedules.blocks import read_blocks
from tvm_xengine.kernels.schedules.products.contraction import read_contraction, size
from tvm_xengine.kernels.te.convolution import conv_data_gradient


def contraction_of(*tensors):
    func = te.create_prim_func(list(tensors))
    return read_contraction(read_blocks(func), func.params)


def matmul_of(rows, columns, depth):
    x = te.placeholder((rows, depth), "float32", name="x")
    y = te.placeholder((depth, columns), "float32", name="y")
    k = te.reduce_axis((0, depth), name="k")
    return (x, y), te.compute((rows, columns), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k))


def test_rows_columns_and_depth_of_a_matrix_product():
    func = matmul(7, 5, 3)
    contraction = read_contraction(read_blocks(func), func.params)
    sizes = [size(axes) for axes in (contraction.rows, contraction.columns, contraction.depth)]
    assert sizes == [7, 5, 3]


def test_columns_are_what_lies_side_by_side_in_the_output():
    x = te.placeholder((7, 3), "float32", name="x")
    y = te.placeholder((5, 3), "float32", name="y")
    k = te.reduce_axis((0, 3), name="k")
    transposed = te.compute((5, 7), lambda j, i: te.sum(x[i, k] * y[j, k], axis=k), name="t")
    contraction = contraction_of(x, y, transposed)
    assert [size(contraction.rows), size(contraction.columns)] == [5, 7]


def test_groups_of_a_convolution_become_a_batch():
    dy = te.placeholder((2, 12, 9, 9), "float32", name="dy")
    w = te.placeholder((12, 5, 3, 3), "float32", name="w")
    attributes = {"strides": (1, 1), "padding": (1,) * 4, "dilation": (1, 1), "groups": 4}
    made = conv_data_gradient(dy, w, data_shape=(2, 20, 9, 9), **attributes)
    contraction = contraction_of(dy, w, made)
    assert size(contraction.batch) == 4
    assert size(contraction.rows) == 5


def test_other_sums_are_no_contractions():
    x = te.placeholder((7, 5), "float32", name="x")
    assert contraction_of(x, topi.sum(x, axis=1)) is None
    assert contraction_of(x, topi.max(x, axis=1)) is None
    assert contraction_of(x, topi.tanh(x)) is None


def test_what_is_made_of_a_product_may_be_several_results():
    """As those of an update, one of which reads the other; what only they read is no result."""
    (x, y), summed = matmul_of(7, 5, 3)
    old = te.placeholder((7, 5), "float32", name="old")
    decayed = te.compute((7, 5), lambda i, j: summed[i, j] + old[i, j], name="decayed")
    first = te.compute((7, 5), lambda i, j: decayed[i, j] * 0.5, name="first")
    second = te.compute((7, 5), lambda i, j: decayed[i, j] - first[i, j], name="second")
    func = te.create_prim_func([x, y, old, first, second])
    contraction = read_contraction(read_blocks(func), func.params)
    assert [store.output for store in contraction.stores] == list(func.params[-2:])
    turned = te.compute((7, 7), lambda i, j: summed[i, 0] + old[j, 0], name="turned")
    assert contraction_of(x, y, old, turned) is None
