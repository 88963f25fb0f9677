from __future__ import annotations

import pytest
from tvm import te, tirx

from tests.kernels.kernels import BASELINE, NATIVE, matmul, scale_and_shift
from tvm_xengine.cost_models.features.bodies import bodies_of
from tvm_xengine.cost_models.features.extract import kernel_features
from tvm_xengine.cost_models.features.hardware import hardware_of
from tvm_xengine.cost_models.features.statements import statements_of
from tvm_xengine.cost_models.measure.this_machine import this_machine
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.targets import resolve_target


def bodies(func: tirx.PrimFunc, description: str = BASELINE):
    kernel = prepare_kernel(func, resolve_target(description))
    return bodies_of(statements_of(kernel.func), hardware_of(kernel.target, this_machine()))


def unary(value, elements: int = 4096) -> tirx.PrimFunc:
    x = te.placeholder((elements,), "float32", name="x")
    return te.create_prim_func([x, te.compute((elements,), lambda i: value(x[i]), name="y")])


def test_iterations_of_all_bodies_add_up_to_the_work():
    kernel = prepare_kernel(matmul(64, 64, 64), resolve_target(BASELINE))
    statements = statements_of(kernel.func)
    found = bodies_of(statements, hardware_of(kernel.target, this_machine()))
    assert sum(b.iterations * sum(s.weight for s in b.statements) for b in found) == pytest.approx(
        sum(s.executions for s in statements)
    )


def test_a_product_has_a_body_that_multiplies_nearly_as_often_as_the_textbook():
    found = max(bodies(matmul(64, 64, 64)), key=lambda body: body.total_cycles)
    lanes = max(s.store.lanes for s in found.statements)
    products = found.iterations * sum(s.weight * s.ops["multiply"] for s in found.statements)
    # Tiles at the edges are filled up.
    assert 1.0 <= products * lanes / 64**3 <= 1.4


def test_half_the_vector_width_takes_twice_the_instructions():
    slow = sum(b.iterations * b.arithmetic for b in bodies(scale_and_shift(4096), BASELINE))
    fast = sum(b.iterations * b.arithmetic for b in bodies(scale_and_shift(4096), NATIVE))
    assert slow >= 2 * fast


def test_a_sum_into_one_number_waits_for_itself():
    x = te.placeholder((64, 1000), "float32", name="x")
    k = te.reduce_axis((0, 1000), name="k")
    total = te.compute((64,), lambda i: te.sum(x[i, k], axis=k), name="total")
    waiting = [body.chain_cycles for body in bodies(te.create_prim_func([x, total]))]
    assert max(waiting) >= 4
    assert all(body.chain_cycles == 0 for body in bodies(scale_and_shift(1000)))


def test_operations_inside_named_values_are_counted():
    def flops(value) -> float:
        kernel = prepare_kernel(unary(value), resolve_target(BASELINE))
        return kernel_features(kernel).flops / 4096

    # erf is a rational function: seven and five coefficients, a quotient and limits.
    assert 20 <= flops(tirx.erf) <= 40
    # tanh has a polynomial of five near zero, and an exponential of six and a quotient beyond.
    assert 40 <= flops(tirx.tanh) <= 60
    assert flops(lambda x: x * 2.0 + 1.0) == 2


def test_calls_into_the_library_of_c_are_seen():
    assert sum(b.iterations * b.calls for b in bodies(unary(tirx.acos))) == 4096
