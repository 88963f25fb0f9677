"""Mixed precision: heavy ops in a short type, sensitive ones and the parameters in float32."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes  # noqa: F401  (numpy's bfloat16)
import numpy as np
import tvm
from tvm import relax

from tvm_xengine.checks.arguments import checked_fields
from tvm_xengine.relax_ir.batch_norms import running_statistics, updated_statistics
from tvm_xengine.relax_ir.forward_ops import ForwardOp, ForwardOps, read_forward_ops
from tvm_xengine.relax_ir.types import SHORT_FLOATS
from tvm_xengine.training.emitter import dtype_of

SHORT = frozenset(
    {
        "relax.einsum",
        "relax.matmul",
        *(f"relax.nn.conv{rank}d" for rank in (1, 2, 3)),
        *(f"relax.nn.conv{rank}d_transpose" for rank in (1, 2, 3)),
    }
)
"""Ops that are computed in the short type."""

LONG = frozenset(
    f"relax.{name}"
    for name in (
        *("exp", "log", "power", "rsqrt", "erf", "square", "cumsum", "log_add_exp"),
        # Of these LLVM has none in float16, and TVM 0.27 no prelu of bfloat16.
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "sinh", "tan"),
        "nn.prelu",
        # TVM 0.27 has none of bfloat16.
        *("isfinite", "isinf", "isnan"),
        # Comparisons of short elements gain nothing: they are made in float32 anyway.
        *("argmax", "argmin", *(f"nn.max_pool{rank}d" for rank in (1, 2, 3))),
        *("mean", "sum", "prod", "variance", "std"),
        *("nn.batch_norm", "nn.layer_norm", "nn.group_norm", "nn.instance_norm", "nn.rms_norm"),
        *("nn.softmax", "nn.log_softmax", "nn.softplus", "nn.avg_pool2d", "nn.avg_pool3d"),
        *("nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d"),
    )
)
"""Ops that are computed in float32. All others take the short type when an operand has it."""

SCALED = frozenset(["relax.multiply", "relax.divide"])
"""Ops that PyTorch computes in float32 where an operand is a number, which a short type would round."""


@checked_fields
@dataclass(frozen=True)
class MixedPrecision:
    """Compute in a short type with float32 parameters.

    Attributes
    ----------
    dtype
        ``float16`` or ``bfloat16``.
    loss_scale
        Factor for the gradient of the loss, taken back before the update, which keeps small
        gradients above the smallest number of the short type.
    """

    dtype: str = "float16"
    loss_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.dtype not in SHORT_FLOATS:
            raise ValueError(f"dtype must be float16 or bfloat16, got {self.dtype!r}")
        if self.loss_scale <= 0:
            raise ValueError(f"loss_scale must be > 0, got {self.loss_scale}")


def in_mixed_precision(source: ForwardOps, dtype: str) -> ForwardOps:
    """The same function with casts, its parameters and result as before."""
    return _recast(source, _Caster(source, dtype))


def with_sensitive_ops_widened(source: ForwardOps) -> ForwardOps:
    """The same function with casts around sensitive ops on short types, as PyTorch computes them."""
    results = [result for op in source.ops for result in op.results]
    if not any(dtype_of(value) in SHORT_FLOATS for value in (*source.params, *results)):
        return source
    return _recast(source, _Widener(source))


def _recast(source: ForwardOps, caster: _Caster) -> ForwardOps:
    with caster.builder.function("main", params=list(source.params)):
        with caster.builder.dataflow():
            for op in source.ops:
                caster.emit(op)
            outputs = [caster.returned(output) for output in source.outputs]
            outputs += [
                caster.cast(caster.value(value), dtype_of(param)) for param, value in source.writes
            ]
            result = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
            output = caster.builder.emit_output(result)
        caster.builder.emit_func_output(output)
    return read_forward_ops(source.written(caster.builder.get()["main"]))


class _Caster:
    """Re-emits ops with their operands in the types that they are computed in."""

    def __init__(self, source: ForwardOps, dtype: str = "") -> None:
        self.builder = relax.BlockBuilder()
        self._dtype = dtype
        self._made: dict[relax.Var, relax.Expr] = {}
        self._casts: dict[tuple[relax.Expr, str], relax.Expr] = {}
        self._fixed = running_statistics(source)

    def value(self, read: relax.Expr) -> relax.Expr:
        return self._made.get(read, read) if isinstance(read, relax.Var) else read

    def returned(self, output: relax.Expr) -> relax.Expr:
        """What the function returns of a value."""
        return self.cast(self.value(output), "float32")

    def emit(self, op: ForwardOp) -> None:
        operands = [self.value(read) for read in op.operands]
        wanted = stored = self._computed_in(op, operands)
        if op.op in SCALED and any(_is_rounded(operand, wanted) for operand in operands):
            wanted = "float32"
        if wanted is not None and op.op != "relax.astype":
            operands = [self.cast(operand, wanted) for operand in operands]
        made = self.builder.emit(op.rebuild(operands), op.name)
        if stored is not None and stored != wanted:
            made = self.cast(made, stored)
        if isinstance(made.ty, relax.TupleType):
            for position, result in enumerate(op.results):
                field = relax.TupleGetItem(made, position)
                self._made[result] = self.builder.emit(field, f"{op.name}_{position}")
        else:
            self._made[op.results[0]] = made

    def cast(self, value: relax.Expr, dtype: str) -> relax.Expr:
        if "float" not in dtype_of(value) or dtype_of(value) == dtype or value in self._fixed:
            return value
        if isinstance(value, tvm.ir.GenericConst) and not value.ty.ndim:
            return relax.const(float(value.value.numpy()), dtype)
        key = (value, dtype)
        if key not in self._casts:
            name = f"{value.name}_{dtype}" if isinstance(value, relax.Var) else "constant"
            self._casts[key] = self.builder.emit(relax.op.astype(value, dtype), name)
        return self._casts[key]

    def _computed_in(self, op: ForwardOp, operands: list[relax.Expr]) -> str | None:
        if op.op in SHORT:
            return self._dtype
        if op.op in LONG:
            return "float32"
        types = {dtype_of(operand) for operand in operands}
        if self._dtype in types:
            return self._dtype
        # One of them was computed in float32 here, and the other one is short in the model itself.
        return "float32" if types & {*SHORT_FLOATS} and "float32" in types else None


def _is_rounded(value: relax.Expr, dtype: str | None) -> bool:
    """Whether a number is another one in a short type."""
    if dtype not in SHORT_FLOATS or not isinstance(value, tvm.ir.GenericConst) or value.ty.ndim:
        return False
    number = value.value.numpy()
    return bool(number.astype(np.dtype(dtype)) != number)


class _Widener(_Caster):
    """Re-emits ops in their own types, but for sensitive ones on short operands."""

    def __init__(self, source: ForwardOps) -> None:
        super().__init__(source)
        self._fixed = updated_statistics(source)

    def returned(self, output: relax.Expr) -> relax.Expr:
        return self.value(output)

    def emit(self, op: ForwardOp) -> None:
        super().emit(op)
        for result in op.results:
            self._made[result] = self.cast(self._made[result], dtype_of(result))

    def _computed_in(self, op: ForwardOp, operands: list[relax.Expr]) -> str | None:
        if op.op not in LONG or self._fixed.intersection(operands):
            return None
        short = any(dtype_of(operand) in SHORT_FLOATS for operand in operands)
        return "float32" if short else None
