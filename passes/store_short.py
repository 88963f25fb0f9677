"""Keep large forward tensors and chosen parameters in float16 or bfloat16."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import ir, relax, te, tirx

from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.kernels.te.randomness import rounded_at_random
from tvm_xengine.passes.fusion.merged_kernel import merged_kernel
from tvm_xengine.relax_ir.dataflow import returned_fields, single_block
from tvm_xengine.relax_ir.kernel_attributes import INPLACE_ATTR
from tvm_xengine.relax_ir.kernel_calls import KernelCall, is_view, kernel_call
from tvm_xengine.relax_ir.signature import StepSignature
from tvm_xengine.relax_ir.types import SHORT_FLOATS, static_shape, static_tensor
from tvm_xengine.scheduling.sizes import tensor_bytes

_LONG = "float32"


@tvm.transform.module_pass(opt_level=0, name="StoreShort")
class StoreShort:
    """Store tensors in 16 bits; every kernel still computes in float32.

    .. code-block:: python

        h = R.call_tir(conv2d, (x, w), R.Tensor(..., "float32"))
        dw = R.call_tir(conv_weight_gradient, (h, dy), ...)

    becomes

    .. code-block:: python

        h = R.call_tir(conv2d_short, (x, w), R.Tensor(..., "float16"))
        dw = R.call_tir(conv_weight_gradient_short, (h, dy), ...)

    in which ``conv2d_short`` rounds what it stores and ``conv_weight_gradient_short`` widens what
    it loads. Short are the float32 results of kernels that the function's results depend on (so
    no gradient is), from `least_bytes` on, and the parameters called `parameters` with their new
    values. Runs after `LowerToKernels`; what is already short stays as it is.

    Parameters
    ----------
    least_bytes
        Size in float32 from which a tensor is worth rounding.
    dtype
        One of `SHORT_FLOATS`.
    random_by
        Names of the parameters (seed, step) that new values of `parameters` are rounded at random by;
        None rounds to the nearest number.
    """

    def __init__(
        self,
        func_name: str,
        *,
        parameters: Collection[str] = (),
        least_bytes: int = 1024,
        dtype: str = "float16",
        random_by: tuple[str, str] | None = None,
    ) -> None:
        if dtype not in SHORT_FLOATS:
            raise ValueError(f"expected one of {', '.join(SHORT_FLOATS)}, found {dtype!r}")
        self.func_name = func_name
        self.parameters = frozenset(parameters)
        self.least_bytes = least_bytes
        self.dtype = dtype
        self.random_by = random_by

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        func = mod[self.func_name]
        chosen = _forward_tensors(func, self.least_bytes)
        parameters = {one for one in _named(func, self.parameters) if _is_long(one.ty)}
        updated = _updated(func, parameters)
        chosen |= {*parameters, *updated}
        if not chosen:
            return mod
        drawn = updated if self.random_by else ()
        random = _Random(_named(func, self.random_by or ()), {v: k for k, v in enumerate(drawn)})
        writer = _Writer(mod.clone(), chosen, self.dtype, random)
        return writer.write(self.func_name)


def _named(func: relax.Function, names: Collection[str]) -> list[relax.Var]:
    """The parameters of those names."""
    found = {param.name: param for param in func.params}
    if unknown := sorted(set(names) - found.keys()):
        raise UnsupportedModuleError(
            f"the function has no parameters {unknown}; it has {', '.join(found)}"
        )
    return [found[name] for name in names]


def _updated(func: relax.Function, params: Collection[relax.Var]) -> list[relax.Var]:
    """What the function returns as new values of `params`."""
    fields = returned_fields(func)
    updates = StepSignature.read(func).updates
    made = zip(fields[len(fields) - len(updates) :], updates, strict=True)
    return [
        field
        for field, position in made
        if func.params[position] in params and isinstance(field, relax.Var)
    ]


def _forward_tensors(func: relax.Function, least_bytes: int) -> set[relax.Var]:
    """What the results depend on: the float32 tensors of a kernel that are large enough."""
    bindings = single_block(func).bindings
    results = StepSignature.read(func).num_results
    fields = returned_fields(func)
    needed = {field for field in fields[:results] if isinstance(field, relax.Var)}
    returned = {field for field in fields if isinstance(field, relax.Var)}
    chosen: set[relax.Var] = set()
    made = {binding.var: binding.value for binding in bindings}
    for position, binding in reversed(list(enumerate(bindings))):
        if binding.var not in needed:
            continue
        value = binding.value
        call = kernel_call(position, binding)
        if call is not None:
            needed |= {arg for arg in call.args if isinstance(arg, relax.Var)}
        elif is_view(value):
            needed.add(value.args[0])
        elif isinstance(value, relax.TupleGetItem):
            needed.add(value.tuple_value)
        elif isinstance(value, relax.Var):
            needed.add(value)
        is_made = call is not None or (
            isinstance(value, relax.TupleGetItem) and value.tuple_value in made
        )
        if is_made and binding.var not in returned and _is_large(binding.var, least_bytes):
            chosen.add(binding.var)
    return chosen


def _is_large(var: relax.Var, least_bytes: int) -> bool:
    return _is_long(var.ty) and tensor_bytes(*static_tensor(var.name, var.ty)) >= least_bytes


def _is_long(ty: relax.Type) -> bool:
    return isinstance(ty, relax.TensorType) and str(ty.dtype) == _LONG


@dataclass(frozen=True)
class _Random:
    """What is rounded at random.

    Attributes
    ----------
    by
        Seed and step; empty where nothing is.
    number
        Of each result, so that each has random numbers of its own.
    """

    by: Sequence[relax.Var]
    number: Mapping[relax.Var, int]


class _Writer:
    """Rewrites a function with some of its variables in the short type."""

    def __init__(
        self, mod: tvm.IRModule, chosen: set[relax.Var], dtype: str, random: _Random
    ) -> None:
        self.mod = mod
        self.dtype = dtype
        self.chosen = chosen
        self.random = random
        self.builder = relax.BlockBuilder(mod)
        self.kernels: dict[tuple[object, ...], ir.GlobalVar] = {}
        self.new: dict[relax.Var, relax.Var] = {}

    def write(self, func_name: str) -> tvm.IRModule:
        func = self.mod[func_name]
        params = [self._param(param) for param in func.params]
        bindings = list(single_block(func).bindings)
        items = _items(bindings)
        written = []
        for position, binding in enumerate(bindings):
            call = kernel_call(position, binding)
            if call is None:
                value = self._renamed(binding.value)
                ty = self._type(binding.var, binding.value)
            else:
                value, ty = self._call(call, items.get(binding.var, {}))
            var = type(binding.var)(binding.var.name, ty)
            self.new[binding.var] = var
            written.append(relax.VarBinding(var, value))
        body = self._renamed(func.body.body)
        block = relax.SeqExpr([relax.DataflowBlock(written)], body)
        mod = self.builder.get()
        mod[func_name] = relax.Function(params, block, body.ty, func.is_pure, func.attrs)
        return relax.transform.Normalize()(mod)

    def _shortened(self, ty: relax.TensorType) -> relax.TensorType:
        return relax.TensorType(ty.shape, self.dtype)

    def _param(self, param: relax.Var) -> relax.Var:
        if param not in self.chosen:
            return param
        self.new[param] = relax.Var(param.name, self._shortened(param.ty))
        return self.new[param]

    def _type(self, var: relax.Var, value: relax.Expr) -> relax.Type:
        """The new type of a view, an item or a second name."""
        source = value.args[0] if is_view(value) else value
        if isinstance(source, relax.TupleGetItem):
            return self.new[source.tuple_value].ty.fields[source.index]
        if isinstance(source, relax.Tuple):
            return relax.TupleType([self._renamed(field).ty for field in source.fields])
        if isinstance(var.ty, relax.TensorType) and isinstance(source, relax.Var):
            return relax.TensorType(var.ty.shape, self._renamed(source).ty.dtype)
        return self._renamed(source).ty

    def _renamed(self, value: relax.Expr) -> relax.Expr:
        if isinstance(value, relax.Var):
            return self.new.get(value, value)
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self._renamed(field) for field in value.fields])
        if isinstance(value, relax.TupleGetItem):
            return relax.TupleGetItem(self._renamed(value.tuple_value), value.index)
        if is_view(value):
            return relax.op.reshape(self._renamed(value.args[0]), value.args[1])
        return value

    def _call(
        self, call: KernelCall, items: Mapping[int, relax.Var]
    ) -> tuple[relax.Expr, relax.Type]:
        """The call with short operands and results, and the type of what it makes."""
        args = [self._renamed(arg) for arg in call.args]
        widened = [a.ty.dtype != old.ty.dtype for a, old in zip(args, call.args, strict=True)]
        single = not isinstance(call.var.ty, relax.TupleType)
        made = {0: call.var} if single else items
        rounded = [made.get(k) in self.chosen for k in range(len(call.outputs))]
        types = [
            self._shortened(ty) if is_short else ty
            for ty, is_short in zip(call.outputs, rounded, strict=True)
        ]
        kernel = call.kernel
        if any(widened) or any(rounded):
            drawn = [self.random.number.get(made.get(k)) for k in range(len(call.outputs))]
            if any(number is not None for number in drawn):
                args += self.random.by
            kernel = self._kernel(call, [arg.ty for arg in args], widened, rounded, drawn)
        result = types[0] if single else relax.TupleType(types)
        return relax.call_tir(kernel, relax.Tuple(args), types[0] if single else types), result

    def _kernel(
        self,
        call: KernelCall,
        inputs: Sequence[relax.Type],
        widened: Sequence[bool],
        rounded: Sequence[bool],
        drawn: Sequence[int | None],
    ) -> ir.GlobalVar:
        key = (call.kernel.name_hint, *widened, *rounded, *drawn)
        if key in self.kernels:
            return self.kernels[key]
        old: tirx.PrimFunc = self.mod[call.kernel]
        outputs = list(call.outputs)
        kernels = {"kernel": old}
        for k, number in enumerate(drawn):
            if number is not None:
                kernels[f"round_{k}"] = self._rounding(outputs[k], number)

        def body(
            inner: relax.BlockBuilder,
            called: Mapping[str, ir.GlobalVar],
            given: Sequence[relax.Var],
        ) -> relax.Expr:
            operands, random = given[: len(widened)], given[len(widened) :]
            wide = [
                inner.emit(relax.op.astype(value, _LONG)) if is_short else value
                for value, is_short in zip(operands, widened, strict=True)
            ]
            types = outputs[0] if len(outputs) == 1 else outputs
            made = inner.emit(relax.call_tir(called["kernel"], relax.Tuple(wide), types))
            fields = [made]
            if isinstance(made.ty, relax.TupleType):
                fields = [inner.emit(relax.TupleGetItem(made, k)) for k in range(len(outputs))]
            for k, field in enumerate(fields):
                if f"round_{k}" in called:
                    operands = relax.Tuple([field, *random])
                    short = self._shortened(outputs[k])
                    fields[k] = inner.emit(relax.call_tir(called[f"round_{k}"], operands, short))
                elif rounded[k]:
                    fields[k] = inner.emit(relax.op.astype(field, self.dtype))
            return relax.Tuple(fields) if isinstance(made.ty, relax.TupleType) else fields[0]

        attrs = old.attrs
        pairs = [int(k) for k in attrs.get(INPLACE_ATTR, ())] if attrs else []
        inplace = _still_inplace(pairs, widened, rounded)
        func = merged_kernel(kernels, inputs, body, inplace)
        self.kernels[key] = self.builder.add_func(func, f"{call.kernel.name_hint}_short")
        return self.kernels[key]

    def _rounding(self, ty: relax.TensorType, number: int) -> tirx.PrimFunc:
        """A kernel that rounds a tensor at random; dropouts have numbers from 0 on."""
        data = te.placeholder(static_shape(ty), _LONG, name="data")
        seed, step = (te.placeholder((), "int32", name=name) for name in ("seed", "step"))
        out = rounded_at_random(data, seed, step, dtype=self.dtype, op=-1 - number)
        tensors = [data, seed, step, out]
        func = te.create_prim_func(tensors, index_dtype_override="int64")
        return func.without_attr("global_symbol")


def _still_inplace(
    pairs: Sequence[int], widened: Sequence[bool], rounded: Sequence[bool]
) -> list[int]:
    """The pairs (output, input) whose types still agree."""
    kept = zip(pairs[::2], pairs[1::2], strict=True)
    return [k for pair in kept if rounded[pair[0]] == widened[pair[1]] for k in pair]


def _items(bindings: Sequence[relax.Binding]) -> Mapping[relax.Var, Mapping[int, relax.Var]]:
    """For each tuple the variables that its items are bound to."""
    items: dict[relax.Var, dict[int, relax.Var]] = {}
    for binding in bindings:
        value = binding.value
        if isinstance(value, relax.TupleGetItem):
            items.setdefault(value.tuple_value, {})[value.index] = binding.var
    return items
