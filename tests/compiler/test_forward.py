"""A forward function runs with the constants that are written into it."""

import numpy as np
from tvm import relax

from tvm_xengine.compiler.forward import build_forward
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Device, Platform

CPU = Platform((Device("cpu", "llvm"),))


def test_tensor_constants_of_a_function_are_in_place_before_it_runs() -> None:
    random = np.random.default_rng(0)
    mask, x, w = (random.random((4, 8), dtype="float32") for _ in range(3))
    kind = relax.TensorType((4, 8), "float32")
    params = [relax.Var("x", kind), relax.Var("w", kind)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            masked = builder.emit(relax.op.multiply(params[0], relax.const(mask)))
            output = builder.emit_output(relax.op.add(masked, params[1]))
        builder.emit_func_output(output)
    forward = build_forward(builder.get(), 1, CPU)
    forward.write({"w": w})
    assert len(forward.names(Role.CONSTANT)) == 1
    for byte in (0xA5, 0xFF):
        forward.poison(byte)
        np.testing.assert_allclose(forward.step({"x": x})["output"], x * mask + w, rtol=1e-6)
