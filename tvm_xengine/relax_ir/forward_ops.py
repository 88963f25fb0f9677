"""Reading a forward function as a list of ops on tensors, without tuples and aliases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import tvm
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.relax_ir.dataflow import returned_fields

_WRITES = "tvm_xengine.writes"
"""Attribute: positions of the parameters whose new values are the last tensors returned."""


@dataclass(frozen=True)
class ForwardOp:
    """One operator call of the forward function.

    Attributes
    ----------
    op
        Name of the operator, for example ``relax.nn.conv2d``.
    call
        The call as it stands in the source.
    operands
        The tensors it reads, tuples flattened: variables or constants of the source.
    results
        One variable per tensor it makes, tuples flattened.
    name
        Name of the binding: the layer that the op came from.
    """

    op: str
    call: relax.Call
    operands: tuple[relax.Expr, ...]
    results: tuple[relax.Var, ...]
    name: str

    def rebuild(self, operands: Sequence[relax.Expr]) -> relax.Call:
        """The same call on other tensors."""
        remaining = iter(operands)
        arguments = [_replace_tensors(argument, remaining) for argument in self.call.args]
        return relax.Call(self.call.op, arguments, self.call.attrs, self.call.ty_args)


@dataclass(frozen=True)
class ForwardOps:
    """A forward function: its parameters, its ops in order, the tensors it returns.

    Attributes
    ----------
    writes
        Pairs (parameter, new value) of the buffers that the model writes itself. The running
        statistics of batch norms are no part of them: their operator says what becomes of them.
    """

    params: tuple[relax.Var, ...]
    ops: tuple[ForwardOp, ...]
    outputs: tuple[relax.Expr, ...]
    writes: tuple[tuple[relax.Var, relax.Expr], ...] = ()

    @property
    def returned(self) -> tuple[relax.Expr, ...]:
        """The outputs, and then the new values of what is written."""
        return (*self.outputs, *(value for _, value in self.writes))

    def returning(self, returned: Sequence[relax.Expr]) -> ForwardOps:
        """The same function with other outputs and new values, in the order of `returned`."""
        count = len(self.outputs)
        written = (param for param, _ in self.writes)
        writes = tuple(zip(written, returned[count:], strict=True))
        return replace(self, outputs=tuple(returned[:count]), writes=writes)

    def written(self, func: relax.Function) -> relax.Function:
        """A Relax function of the same parameters that returns `returned`, with its writes marked."""
        order = {param: position for position, param in enumerate(self.params)}
        return marked_writes(func, [order[param] for param, _ in self.writes])

    def consumers(self) -> dict[relax.Var, int]:
        """How often each variable is read, returned or written."""
        counts: dict[relax.Var, int] = {}
        read = (value for op in self.ops for value in op.operands)
        for value in (*read, *self.returned, *(param for param, _ in self.writes)):
            if isinstance(value, relax.Var):
                counts[value] = counts.get(value, 0) + 1
        return counts

    def live(self) -> ForwardOps:
        """The same function without the ops that nothing returned depends on."""
        needed = {value for value in self.returned if isinstance(value, relax.Var)}
        kept: list[ForwardOp] = []
        for op in reversed(self.ops):
            if any(result in needed for result in op.results):
                kept.append(op)
                needed.update(value for value in op.operands if isinstance(value, relax.Var))
        return replace(self, ops=tuple(reversed(kept)))


def read_forward_ops(func: relax.Function) -> ForwardOps:
    """The ops of a function with one dataflow block, in order."""
    blocks = func.body.blocks
    if len(blocks) > 1 or any(not isinstance(block, relax.DataflowBlock) for block in blocks):
        kinds = [type(block).__name__ for block in blocks]
        raise UnsupportedModelError(
            f"the forward function must be one dataflow block, found {kinds}; "
            "run relax.transform.ConvertToDataflow first"
        )
    reader = _Reader()
    for block in blocks:
        for binding in block.bindings:
            reader.read(binding)
    returned = tuple(_leaves(reader.resolve(func.body.body)))
    written = [func.params[position] for position in _written_positions(func)]
    count = len(returned) - len(written)
    writes = tuple(zip(written, returned[count:], strict=True))
    return ForwardOps(tuple(func.params), tuple(reader.ops), returned[:count], writes)


def marked_writes(func: relax.Function, positions: Sequence[int]) -> relax.Function:
    """`func`, whose last results are new values of the parameters at `positions`."""
    return func.with_attr(_WRITES, list(positions)) if positions else func


def outputs_of(func: relax.Function) -> tuple[relax.Expr, ...]:
    """What a forward function returns, without the new values of what it writes."""
    fields = returned_fields(func)
    return fields[: len(fields) - len(_written_positions(func))]


def _written_positions(func: relax.Function) -> list[int]:
    attrs = func.attrs or {}
    return [int(position) for position in attrs[_WRITES]] if _WRITES in attrs else []


# A tensor, or a tuple of such values.
_Value: TypeAlias = "relax.Expr | tuple[_Value, ...]"


class _Reader:
    """Follows aliases and tuples while it collects the calls."""

    def __init__(self) -> None:
        self.ops: list[ForwardOp] = []
        self._values: dict[relax.Var, _Value] = {}

    def read(self, binding: relax.Binding) -> None:
        value = binding.value
        if isinstance(value, relax.Call) and not isinstance(binding, relax.MatchCast):
            self._values[binding.var] = self._read_call(binding.var, value)
        elif isinstance(value, relax.If | relax.Function):
            raise UnsupportedModelError(
                f"{binding.var.name} is a {type(value).__name__}: control flow inside the model "
                "is not supported"
            )
        else:
            self._values[binding.var] = self.resolve(value)

    def resolve(self, value: relax.Expr) -> _Value:
        match value:
            case relax.Var():
                return self._values.get(value, value)
            case relax.Tuple():
                return tuple(self.resolve(field) for field in value.fields)
            case relax.TupleGetItem():
                fields = self.resolve(value.tuple_value)
                if not isinstance(fields, tuple):
                    raise UnsupportedModelError(
                        f"{value} selects from a tuple that is an input of the model; "
                        "pass its tensors one by one"
                    )
                return fields[value.index]
            case _:
                return value

    def _read_call(self, var: relax.Var, call: relax.Call) -> _Value:
        operands = [
            tensor
            for argument in call.args
            for tensor in _leaves(self.resolve(argument))
            if _is_tensor(tensor)
        ]
        if not isinstance(var.ty, relax.TupleType):
            results, made = (var,), var
        else:
            results = tuple(
                relax.Var(f"{var.name}_{k}", field) for k, field in enumerate(var.ty.fields)
            )
            made = results
        op = call.op.name if isinstance(call.op, tvm.ir.Op) else str(call.op)
        resolved = relax.Call(
            call.op, [self._resolved(argument) for argument in call.args], call.attrs, call.ty_args
        )
        self.ops.append(ForwardOp(op, resolved, tuple(operands), results, var.name))
        return made

    def _resolved(self, argument: relax.Expr) -> relax.Expr:
        return _as_expr(self.resolve(argument))


def _as_expr(value: _Value) -> relax.Expr:
    if isinstance(value, tuple):
        return relax.Tuple([_as_expr(field) for field in value])
    return value


def _leaves(value: _Value) -> Iterator[relax.Expr]:
    if isinstance(value, tuple):
        for field in value:
            yield from _leaves(field)
    else:
        yield value


def _is_tensor(value: relax.Expr) -> bool:
    return isinstance(value.ty, relax.TensorType)


def _replace_tensors(argument: relax.Expr, remaining: Iterator[relax.Expr]) -> relax.Expr:
    if isinstance(argument, relax.Tuple):
        return relax.Tuple([_replace_tensors(field, remaining) for field in argument.fields])
    return next(remaining) if _is_tensor(argument) else argument
