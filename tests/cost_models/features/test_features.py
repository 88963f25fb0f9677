from __future__ import annotations

import numpy as np
import pytest
from tvm import te, topi

from tests.kernels.kernels import BASELINE, NATIVE, matmul, momentum, scale_and_shift
from tvm_xengine.cost_models.features.extract import kernel_features
from tvm_xengine.cost_models.features.statements import statements_of
from tvm_xengine.cost_models.features.table import table_of
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.targets import resolve_target


def features(func, description=BASELINE):
    return kernel_features(prepare_kernel(func, resolve_target(description)))


def value(found, name):
    return found.values[found.names.index(name)]


def test_operations_and_bytes_of_an_elementwise_kernel_are_exact():
    found = features(scale_and_shift(1000))
    assert found.flops == 2000  # one product, one sum
    assert found.moved_bytes == 8000
    assert 2 ** value(found, "log_elements") == pytest.approx(1001)


@pytest.mark.parametrize("description", [BASELINE, NATIVE])
def test_operations_of_a_matrix_product_are_near_the_textbook(description):
    m, n, k = 48, 64, 80
    found = features(matmul(m, n, k), description)
    # Packing and padding of tiles add some.
    assert 1.0 <= found.flops / (2 * m * n * k) <= 1.4


def test_work_grows_with_the_kernel_and_the_rate_features_do_not_jump():
    small, large = features(matmul(64, 64, 64)), features(matmul(128, 128, 128))
    assert large.work / small.work == pytest.approx(8, rel=0.35)
    assert value(large, "flops_per_work") == pytest.approx(value(small, "flops_per_work"), rel=0.3)


def test_wider_vectors_show():
    base, native = features(matmul(64, 64, 64)), features(matmul(64, 64, 64), NATIVE)
    assert base.names == native.names
    assert value(native, "machine_vector_bytes") >= value(base, "machine_vector_bytes")
    assert value(native, "lanes") >= value(base, "lanes")


def test_every_number_is_finite_and_repeatable():
    for func in (scale_and_shift(3), momentum(17), matmul(3, 5, 7)):
        first, second = features(func), features(func)
        assert np.isfinite(first.values).all()
        np.testing.assert_array_equal(first.values, second.values)


def test_an_unrolled_run_of_stores_counts_in_full():
    kernel = prepare_kernel(matmul(64, 64, 64), resolve_target(NATIVE))
    statements = statements_of(kernel.func)
    multiplied = sum(s.executions * s.store.lanes * s.ops["multiply"] for s in statements)
    assert multiplied >= 64**3


def test_slices_and_look_ups_touch_a_part_of_their_tensors():
    table = te.placeholder((5000, 64), "float32", name="table")
    places = te.placeholder((12,), "int64", name="places")
    found = [
        features(te.create_prim_func([*inputs, made]))
        for inputs, made in (
            ((table, places), topi.take(table, places, axis=0)),
            ((table,), topi.strided_slice(table, [100, 0], [130, 64])),
            ((table,), topi.nn.relu(table)),
        )
    ]
    rows_bytes = [12 * 64 * 4, 30 * 64 * 4, 5000 * 64 * 4]
    touched = table_of(found).touched_bytes
    np.testing.assert_allclose(touched, np.multiply(rows_bytes, 2), rtol=0.05)
    assert (touched <= [each.moved_bytes for each in found]).all()
