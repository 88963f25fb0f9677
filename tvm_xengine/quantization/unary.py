"""Functions of one element as tables of the 256 values of int8."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tvm import relax

from tvm_xengine.compiler.forward import build_forward
from tvm_xengine.quantization.affine import HIGHEST, LOWEST, Affine, Whole
from tvm_xengine.quantization.layers import Frozen
from tvm_xengine.quantization.observe import PLATFORM
from tvm_xengine.relax_ir.forward_ops import ForwardOp
from tvm_xengine.relax_ir.own_ops import POINTWISE_OPS, PREFIX
from tvm_xengine.training.forward.evaluation import evaluation_of

_OF_ONE = frozenset(
    {
        *(f"relax.{name}" for name in ("abs", "cos", "erf", "exp", "log", "negative", "rsqrt")),
        *(f"relax.{name}" for name in ("sigmoid", "sin", "sqrt", "square", "tanh", "clip")),
        *(f"relax.nn.{name}" for name in ("gelu", "gelu_tanh", "leakyrelu", "relu", "relu6")),
        *(f"relax.nn.{name}" for name in ("selu", "silu", "softplus")),
        *(f"relax.{name}" for name in ("add", "subtract", "multiply", "divide", "power")),
        *(f"relax.{name}" for name in ("maximum", "minimum")),
        *(PREFIX + name for name in POINTWISE_OPS),
    }
)
"""Operators of one tensor element by element, or of one and numbers."""

ALL = np.arange(LOWEST, HIGHEST + 1, dtype="int16").astype("int8")


def is_unary(frozen: Frozen, op: ForwardOp) -> bool:
    """Whether each element of the result is one function of one element."""
    if op.op not in _OF_ONE or len(op.results) != 1:
        return False
    others = [frozen.value(one) for one in op.operands]
    numbers = [one for one in others if one is not None]
    return len(others) == len(numbers) + 1 and all(one.size == 1 for one in numbers)


def tables(
    frozen: Frozen, affines: Mapping[ForwardOp, tuple[Affine, Affine]]
) -> dict[ForwardOp, Whole]:
    """For each op, the element of its result for each element of its operand.

    Parameters
    ----------
    affines
        Of operand and result.
    """
    if not affines:
        return {}
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"table_{k}", relax.TensorType((len(ALL),), "float32"))
        for k in range(len(affines))
    ]
    with builder.function("main", params=params):
        with builder.dataflow():
            made = [
                builder.emit(_on_table(frozen, op, param))
                for op, param in zip(affines, params, strict=True)
            ]
            output = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(output)
    names = tuple(f"made_{k}" for k in range(len(made)))
    mod = evaluation_of(builder.get()["main"], len(params), {})
    forward = build_forward(mod, len(params), PLATFORM, results=names)
    given = {
        param.name: operand.real(ALL)
        for param, (operand, _) in zip(params, affines.values(), strict=True)
    }
    results = forward.step(given)
    return {
        op: result.quantized(np.asarray(results[name]))
        for name, (op, (_, result)) in zip(names, affines.items(), strict=True)
    }


def _on_table(frozen: Frozen, op: ForwardOp, param: relax.Var) -> relax.Call:
    values = [frozen.value(one) for one in op.operands]
    operands = [
        param if value is None else relax.const(value.reshape(()), str(value.dtype))
        for value in values
    ]
    return op.rebuild(operands)
