"""The same model for batches of another size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.relax_ir.forward_ops import ForwardOp, read_forward_ops
from tvm_xengine.relax_ir.types import Array, static_shape

_SHAPED = ("relax.reshape", "relax.broadcast_to", "relax.full", "relax.zeros", "relax.ones")
"""Operators that are told the shape of their result."""


def with_batch_size(model: ForwardModel, count: int) -> ForwardModel:
    """`model` for batches of `count` samples, which its function is rewritten for.

    The leading dimension of the inputs changes, and with it every shape that follows from it. Where the
    result then has another shape, constants with a row for each sample, all the same, change too: the
    state that a recurrent layer begins with. Whether the samples of a batch are independent is not
    looked at: compare results where it matters.

    Raises
    ------
    UnsupportedModelError
        If a shape in the model does not follow from the batch; the op is named.
    """
    if model.batch_size == count:
        return model
    by_sample = _repeated(model.constants, model.batch_size)
    try:
        made = _rewritten(model, count, {})
    except UnsupportedModelError:
        if not by_sample:
            raise
    else:
        if not by_sample or _result_shapes(made) == _resized_shapes(model, count):
            return made
    return _rewritten(model, count, by_sample)


def _repeated(constants: Mapping[str, Array], count: int) -> dict[str, int]:
    """Constants that have `count` times the same along an axis, with the first such axis."""
    axes = (
        (name, axis)
        for name, value in constants.items()
        for axis, extent in reversed(list(enumerate(value.shape)))
        if extent == count > 1 and (value == value.take([0], axis)).all()
    )
    return dict(axes)


def _result_shapes(model: ForwardModel) -> list[tuple[int, ...]]:
    returned = model.main.ret_ty
    fields = returned.fields if isinstance(returned, relax.TupleType) else [returned]
    return [static_shape(field) for field in fields]


def _resized_shapes(model: ForwardModel, count: int) -> list[tuple[int, ...]]:
    old = (model.batch_size,)
    shapes = _result_shapes(model)
    return [(count, *shape[1:]) if shape[:1] == old else shape for shape in shapes]


def _rewritten(model: ForwardModel, count: int, by_sample: Mapping[str, int]) -> ForwardModel:
    """`model` for `count` samples; `by_sample` are the constants with rows of samples, and their axes."""
    old = model.batch_size
    source = read_forward_ops(model.main)
    inputs = source.params[: len(model.input_names)]
    values: dict[relax.Var, relax.Expr] = {}
    for param in source.params:
        is_batched = param in inputs and static_shape(param.ty)[:1] == (old,)
        values[param] = relax.Var(param.name, _resized(param.ty, count)) if is_batched else param
    taken = list(values.values())
    builder = relax.BlockBuilder()
    with builder.function("main"):
        with builder.dataflow():
            for param in source.params:
                if param.name in by_sample:
                    values[param] = _rows(builder, param, by_sample[param.name], count)
            for op in source.ops:
                values.update(zip(op.results, _emit(builder, op, values, old, count), strict=True))
            returned = [values.get(value, value) for value in source.returned]
            value = returned[0] if len(returned) == 1 else relax.Tuple(returned)
            output = builder.emit_output(value, "output")
        builder.emit_func_output(output, params=taken)
    mod = builder.get()
    mod["main"] = source.written(mod["main"])
    return replace(model, mod=mod)


def _rows(builder: relax.BlockBuilder, constant: relax.Var, axis: int, count: int) -> relax.Var:
    """A constant whose rows along an axis are the same, with `count` of them."""
    shape = list(static_shape(constant.ty))
    row = relax.op.strided_slice(constant, [axis], [0], [min(count, shape[axis])])
    if count > shape[axis]:
        row = relax.op.strided_slice(constant, [axis], [0], [1])
        shape[axis] = count
        row = relax.op.broadcast_to(builder.emit(row), shape)
    return builder.emit(row, f"{constant.name}_rows")


def _emit(
    builder: relax.BlockBuilder,
    op: ForwardOp,
    values: Mapping[relax.Var, relax.Expr],
    old: int,
    count: int,
) -> tuple[relax.Expr, ...]:
    operands = [values.get(r, r) if isinstance(r, relax.Var) else r for r in op.operands]
    call = op.rebuild(operands)
    if op.op in _SHAPED:
        call = _with_new_shape(op, call, operands, old, count)
    elif op.op == "relax.tile":
        call = _with_new_repeats(op, call, old, count)
    try:
        made = builder.emit(call, op.name)
    except (RuntimeError, ValueError, TypeError) as error:  # of TVM's inference of types
        raise _fixed(op, old, count) from error
    if not isinstance(made.ty, relax.TupleType):
        return (made,)
    return tuple(
        builder.emit(relax.TupleGetItem(made, at), result.name)
        for at, result in enumerate(op.results)
    )


def _with_new_shape(
    op: ForwardOp, call: relax.Call, operands: Sequence[relax.Expr], old: int, count: int
) -> relax.Call:
    at = next(k for k, arg in enumerate(call.args) if isinstance(arg, relax.ShapeExpr))
    shape = [int(extent) for extent in call.args[at].values]
    before = sum(prod(static_shape(operand.ty)) for operand in op.operands)
    after = sum(prod(static_shape(operand.ty)) for operand in operands)
    makes_batch = not op.operands or op.op == "relax.broadcast_to"
    if before == after and not (makes_batch and shape[:1] == [old]):
        return call
    able = [k for k in _with_batch(op, operands, shape) if shape[k] and shape[k] * count % old == 0]
    if not able:
        raise _fixed(op, old, count)
    cut = next((k for k in able if shape[k] == old), able[0])
    shape[cut] = shape[cut] * count // old
    args = [*call.args[:at], relax.ShapeExpr(shape), *call.args[at + 1 :]]
    return relax.Call(call.op, args, call.attrs, call.ty_args)


def _with_batch(op: ForwardOp, operands: Sequence[relax.Expr], shape: Sequence[int]) -> list[int]:
    """Which dimensions of a new shape the batch may be in: those that the operand's changed one becomes."""
    everywhere = list(range(len(shape)))
    if len(operands) != 1:
        return everywhere
    before, after = static_shape(op.operands[0].ty), static_shape(operands[0].ty)
    changed = next((k for k, (n, m) in enumerate(zip(before, after, strict=True)) if n != m), None)
    if changed is None:
        return everywhere
    if op.op == "relax.broadcast_to":
        return [changed + len(shape) - len(before)]
    first = prod(before[:changed])
    stop = first * before[changed]
    begins = [prod(shape[:k]) for k in range(len(shape) + 1)]
    return [
        k
        for k in everywhere
        if begins[k] == first or max(begins[k], first) < min(begins[k + 1], stop)
    ]


def _with_new_repeats(op: ForwardOp, call: relax.Call, old: int, count: int) -> relax.Call:
    """Repeats of a tensor that is no batch, once for each sample, as an instance norm repeats weights."""
    (data,) = call.args
    repeats = [int(times) for times in call.attrs.repeats]
    is_batched = static_shape(op.operands[0].ty) != static_shape(data.ty)
    if is_batched or repeats[:1] != [old]:
        return call
    return relax.op.tile(data, [count, *repeats[1:]])


def _fixed(op: ForwardOp, old: int, count: int) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{op.name} ({op.op}) is made for batches of {old} and cannot be written for {count};"
        f" export the model with a batch of {count}"
    )


def _resized(ty: relax.TensorType, count: int) -> relax.TensorType:
    return relax.TensorType([count, *static_shape(ty)[1:]], ty.dtype)
