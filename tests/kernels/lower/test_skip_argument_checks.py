"""Checks of arguments go, what a kernel asserts itself stays."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import ir, te, tirx

from tvm_xengine.kernels.device_kinds import compile_for_processor
from tvm_xengine.kernels.lower.pipeline import lower_to_explicit_memory

TARGET = tvm.target.Target({"kind": "llvm"})


def _doubled() -> tirx.PrimFunc:
    x = te.placeholder((5,), "float32", name="x")
    func = te.create_prim_func([x, te.compute((5,), lambda i: x[i] * 2.0, name="y")])
    module = tvm.IRModule({"kernel": func.with_attr("global_symbol", "kernel")})
    return lower_to_explicit_memory(TARGET)(module)["kernel"]


def _compiled(func: tirx.PrimFunc) -> tvm.runtime.Module:
    return compile_for_processor(tvm.IRModule({"kernel": func}), TARGET)


def _tensors() -> list[tvm.runtime.Tensor]:
    return [tvm.runtime.tensor(np.arange(5, dtype="float32")) for _ in range(2)]


def test_arguments_are_not_checked() -> None:
    compiled = _compiled(_doubled())
    assert "Mismatched" not in compiled.inspect_source("ll")
    x, y = _tensors()
    compiled["kernel"](x, y)
    np.testing.assert_array_equal(y.numpy(), 2 * x.numpy())


@pytest.mark.parametrize("holds", [True, False])
def test_what_a_kernel_asserts_stays(holds: bool) -> None:
    func = _doubled()
    asserted = tirx.AssertStmt(
        tirx.const(holds, "bool"),
        ir.StringImm("RuntimeError"),
        [ir.StringImm("the library's call failed")],
    )
    compiled = _compiled(func.with_body(tirx.SeqStmt([asserted, func.body])))
    if holds:
        compiled["kernel"](*_tensors())
    else:
        with pytest.raises(RuntimeError, match="the library's call failed"):
            compiled["kernel"](*_tensors())
