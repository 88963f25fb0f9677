"""The forward function with its frozen layers in int8."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tvm import relax

from tvm_xengine.frontends.naming_builder import UniqueNames
from tvm_xengine.quantization.affine import (
    HIGHEST,
    LOWEST,
    Affine,
    Filters,
    Whole,
    integer_filters,
    stored_filters,
)
from tvm_xengine.quantization.layers import (
    CONVOLUTIONS,
    DROPOUT,
    MATMUL,
    SAME_VALUES,
    Frozen,
    Layer,
)
from tvm_xengine.quantization.pools import MAX_POOLS, max_pool_numbers, mean_numbers
from tvm_xengine.quantization.unary import ALL
from tvm_xengine.relax_ir import integer_ops as ops
from tvm_xengine.relax_ir.forward_ops import ForwardOp
from tvm_xengine.relax_ir.types import Array, static_shape

CONCAT = "relax.concat"
SUMS = ("relax.add", "relax.subtract", "relax.multiply")


@dataclass(frozen=True)
class Choice:
    """What becomes integer, and with which scales.

    Attributes
    ----------
    layers
        Products and sums, by their op.
    affines
        Scales of tensors, by their variables.
    tables
        Functions of one element, by their op.
    stored
        Products in float32 whose weights are kept in int8, by their op.
    pairs
        What the model itself quantizes: it is rounded also where it is computed in float32.
    """

    frozen: Frozen
    layers: Mapping[ForwardOp, Layer]
    affines: Mapping[relax.Var, Affine]
    tables: Mapping[ForwardOp, Whole]
    stored: Mapping[ForwardOp, Filters] = field(default_factory=dict)
    pairs: Collection[relax.Var] = ()


@dataclass
class Rewritten:
    """A forward function, the tensors that it brought along, and the layers that became integer."""

    main: relax.Function
    constants: Mapping[str, Array]
    layers: Sequence[Layer]


class Rewriter:
    """Emits the ops of a function; a tensor is there as real numbers, as int8, or both."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._frozen = choice.frozen
        self._builder = relax.BlockBuilder()
        source = choice.frozen.source
        self._real: dict[relax.Expr, relax.Expr] = {
            p: relax.Var(p.name, p.ty) for p in source.params
        }
        self._whole: dict[relax.Expr, tuple[relax.Expr, Affine]] = {}
        self._constants: dict[relax.Var, Array] = {}
        self._names = UniqueNames()
        for param in source.params:
            self._names.fresh(param.name)
        self._done: list[Layer] = []
        self._skipped: set[ForwardOp] = set()

    def run(self) -> Rewritten:
        """The whole function."""
        source, builder = self._frozen.source, self._builder
        with builder.function("main"):
            with builder.dataflow():
                for op in source.ops:
                    if op not in self._skipped and not self._emit_whole(op):
                        self._emit_real(op)
                returned = [self._as_real(value) for value in source.returned]
                value = returned[0] if len(returned) == 1 else relax.Tuple(returned)
                output = builder.emit_output(value, "output")
            params = [self._real[param] for param in source.params]
            builder.emit_func_output(output, params=[*params, *self._constants])
        main = source.written(builder.get()["main"])
        named = {var.name: value for var, value in self._constants.items()}
        return Rewritten(main, named, self._done)

    def _emit_real(self, op: ForwardOp) -> None:
        operands = [self._as_real(one) for one in op.operands]
        if op in self._choice.stored:
            operands[1] = self._stored_weight(op)
        made = self._builder.emit(op.rebuild(operands), op.name)
        if not isinstance(made.ty, relax.TupleType):
            self._real[op.results[0]] = made
            return
        for k, result in enumerate(op.results):
            self._real[result] = self._builder.emit(relax.TupleGetItem(made, k), f"{op.name}_{k}")

    def _stored_weight(self, op: ForwardOp) -> relax.Expr:
        """The weight of a product as real numbers, from int8 and the scale of each output channel."""
        whole, scale = stored_filters(self._choice.stored[op])
        tensors = [
            self._constant(f"{op.name}_weight_stored", whole),
            self._constant(f"{op.name}_weight_scale", scale),
        ]
        call = ops.integer_call(ops.DEQUANTIZE_CHANNELS, tensors, 0)
        real = self._builder.emit(call, f"{op.name}_weight_real")
        return relax.op.permute_dims(real) if op.op == MATMUL else real

    def _as_real(self, value: relax.Expr) -> relax.Expr:
        """A tensor of the source as it was computed there."""
        if value not in self._real and value in self._whole:
            whole, affine = self._whole[value]
            call = ops.integer_call(ops.DEQUANTIZE, [whole], affine.scale, affine.zero)
            self._real[value] = self._builder.emit(call, f"{value.name}_real")
        return self._real.get(value, value)

    def _as_whole(self, value: relax.Expr) -> tuple[relax.Expr, Affine] | None:
        """A tensor of the source as int8; None if its scale is not known."""
        if value not in self._whole:
            affine = self._choice.affines.get(value)
            if affine is None or str(value.ty.dtype) != "float32":
                return None
            call = ops.integer_call(ops.QUANTIZE, [self._as_real(value)], affine.scale, affine.zero)
            self._whole[value] = self._builder.emit(call, f"{value.name}_int8"), affine
        return self._whole[value]

    def _emit_whole(self, op: ForwardOp) -> bool:
        """Emit an op on int8 if it can be; whether it was."""
        frozen = self._frozen
        if any(one in frozen.active for one in (*op.operands, *op.results)):
            return False
        if op.results[0] in self._choice.pairs:
            return self._emit_pair(op)
        layer = self._choice.layers.get(op)
        if layer is not None and layer.filters is not None:
            return self._emit_product(layer)
        computed = frozen.computed(op)
        if not computed or any(one not in self._whole for one in computed):
            return False
        if layer is not None:
            return self._emit_sum(layer)
        if op.op == CONCAT:
            return self._emit_concat(op)
        if len(computed) != 1:
            return False
        whole, affine = self._whole[computed[0]]
        if op.op == DROPOUT:
            self._whole[op.results[0]] = whole, affine
            return True
        if op.op in SAME_VALUES:
            return self._emit_same(op, op.rebuild([whole]), affine)
        if op.op in MAX_POOLS and (numbers := max_pool_numbers(op)) is not None:
            return self._emit_same(op, ops.integer_call(ops.MAX_POOL, [whole], *numbers), affine)
        if op in self._choice.tables:
            return self._emit_table(op, whole)
        return self._emit_mean(op, whole, affine)

    def _emit_pair(self, op: ForwardOp) -> bool:
        """What the model quantizes, from what is int8 already or from real numbers."""
        (x,), result = op.operands, self._choice.affines[op.results[0]]
        if x not in self._whole:
            call = ops.integer_call(ops.QUANTIZE, [self._as_real(x)], result.scale, result.zero)
            self._whole[op.results[0]] = self._builder.emit(call, op.name), result
            return True
        whole, affine = self._whole[x]
        self._whole[op.results[0]] = self._rescaled(whole, affine, result, op.name), result
        return True

    def _emit_product(self, layer: Layer) -> bool:
        result = self._choice.affines.get(layer.result)
        if result is None or layer.filters is None:
            return False
        data = self._as_whole(layer.op.operands[0])
        if data is None:
            return False
        whole, affine = data
        made = integer_filters(layer.filters, affine, result)
        tensors = [
            whole,
            self._constant(f"{layer.name}_weight_int8", made.weight),
            self._constant(f"{layer.name}_bias_int32", made.bias),
            self._constant(f"{layer.name}_factor", made.factor),
        ]
        attrs, numbers, kind = layer.op.call.attrs, [], ops.DENSE
        if layer.op.op in CONVOLUTIONS:
            kind = ops.CONVOLUTION
            numbers = [int(n) for n in (*attrs.strides, *attrs.padding, *attrs.dilation)]
            numbers += [int(attrs.groups), affine.zero]
        self._emit_layer(
            layer, ops.integer_call(kind, tensors, *numbers, *_bounds(layer, result)), result
        )
        return True

    def _emit_sum(self, layer: Layer) -> bool:
        result = self._choice.affines.get(layer.result)
        if result is None:
            return False
        sides = [self._whole[one] for one in layer.op.operands]
        tensors = [whole for whole, _ in sides]
        (left, right), bounds = [affine for _, affine in sides], _bounds(layer, result)
        if layer.op.op == "relax.multiply":
            factor = left.scale * right.scale / result.scale
            call = ops.integer_call(ops.MULTIPLY, tensors, left.zero, right.zero, factor, *bounds)
        else:
            sign = -1.0 if layer.op.op == "relax.subtract" else 1.0
            factors = left.scale / result.scale, sign * right.scale / result.scale
            call = ops.integer_call(ops.ADD, tensors, left.zero, right.zero, *factors, *bounds)
        self._emit_layer(layer, call, result)
        return True

    def _emit_layer(self, layer: Layer, call: relax.Call, result: Affine) -> None:
        self._whole[layer.result] = self._builder.emit(call, layer.name), result
        self._skipped.update(layer.absorbed)
        self._done.append(layer)

    def _emit_same(self, op: ForwardOp, call: relax.Call, affine: Affine) -> bool:
        """An op that moves elements; where the model gives the result another scale, it is changed."""
        made = self._builder.emit(call, op.name)
        given = self._choice.affines.get(op.results[0], affine)
        self._whole[op.results[0]] = self._rescaled(made, affine, given, op.name), given
        return True

    def _emit_concat(self, op: ForwardOp) -> bool:
        result = self._choice.affines.get(op.results[0])
        if result is None or len(self._frozen.computed(op)) != len(op.operands):
            return False
        wholes = [self._whole[one] for one in op.operands]
        tensors = [self._rescaled(whole, affine, result, op.name) for whole, affine in wholes]
        self._whole[op.results[0]] = self._builder.emit(op.rebuild(tensors), op.name), result
        return True

    def _emit_table(self, op: ForwardOp, whole: relax.Expr) -> bool:
        table = self._constant(f"{op.name}_table", self._choice.tables[op])
        call = ops.integer_call(ops.LOOKUP, [whole, table])
        self._whole[op.results[0]] = (
            self._builder.emit(call, op.name),
            self._choice.affines[op.results[0]],
        )
        return True

    def _emit_mean(self, op: ForwardOp, whole: relax.Expr, affine: Affine) -> bool:
        numbers, result = mean_numbers(op), self._choice.affines.get(op.results[0])
        if numbers is None or result is None:
            return False
        factor = affine.scale / result.scale
        call = ops.integer_call(ops.MEAN_POOL, [whole], *numbers, affine.zero, factor, result.zero)
        made = self._builder.emit(call, op.name)
        shape = static_shape(op.results[0].ty)
        if static_shape(made.ty) != shape:
            made = self._builder.emit(relax.op.reshape(made, shape), f"{op.name}_flat")
        self._whole[op.results[0]] = made, result
        return True

    def _rescaled(self, whole: relax.Expr, old: Affine, new: Affine, name: str) -> relax.Expr:
        if old == new:
            return whole
        table = self._constant(f"{name}_scales", new.quantized(old.real(ALL)))
        return self._builder.emit(ops.integer_call(ops.LOOKUP, [whole, table]), f"{name}_rescaled")

    def _constant(self, name: str, value: Array) -> relax.Var:
        var = relax.Var(self._names.fresh(name), relax.TensorType(value.shape, str(value.dtype)))
        self._constants[var] = value
        return var


def _bounds(layer: Layer, result: Affine) -> tuple[int, int, int]:
    """Zero point, least and greatest element of a result."""
    low, high = layer.bounds
    return result.zero, max(LOWEST, result.bound(low)), min(HIGHEST, result.bound(high))
