"""Emission of named bindings and training kernels into a Relax function."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax, te

from tvm_xengine.frontends.naming_builder import UniqueNames
from tvm_xengine.kernels.library.parts import name_attributes
from tvm_xengine.kernels.te.inplace import overwritten_pairs
from tvm_xengine.relax_ir.kernel_attributes import INPLACE_ATTR
from tvm_xengine.relax_ir.types import static_shape

Option = int | float | bool | str | None | tuple[float, ...] | tuple[bool, ...]
Kernel = Callable[..., "te.Tensor | list[te.Tensor] | tvm.tirx.PrimFunc"]

_MOST_FLOAT32 = float(np.finfo(np.float32).max)
_OPAQUE_PATTERN = 8
"""TVM's ``OpPatternKind.kOpaque``: such a kernel is fused with no other."""


class Emitter:
    """Binds expressions and kernel calls to telling names in a function under construction.

    A kernel is a plain function from TE tensors (positional) and options (keyword-only) to one
    TE tensor, a list of them, or a PrimFunc that takes the inputs and then the outputs. Equal
    calls share one PrimFunc, which carries the kernel's name and options as attributes, so that
    a device's library may replace it.

    Attributes
    ----------
    origins
        For variables whose names do not say which op they belong to, that op.
    """

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self._builder = builder
        self.origins: dict[str, str] = {}
        self._names = UniqueNames()
        self._kernels: dict[tuple[object, ...], tuple[tvm.ir.GlobalVar, list[tvm.ir.Type]]] = {}

    def reserve(self, name: str) -> None:
        """Keep bindings from taking the name of a parameter."""
        self._names.fresh(name)

    def bind(self, value: relax.Expr, name: str) -> relax.Var:
        """Bind an expression to a variable called `name`, made unique when taken."""
        return self._builder.emit(value, self._names.fresh(name))

    def call(
        self,
        kernel: Kernel,
        inputs: Sequence[relax.Expr],
        name: str,
        **options: Option,
    ) -> relax.Var:
        """Bind the result of a kernel that makes one tensor."""
        return self.call_as(kernel.__name__, kernel, inputs, name, **options)

    def call_as(
        self,
        function: str,
        kernel: Kernel,
        inputs: Sequence[relax.Expr],
        name: str,
        **options: Option,
    ) -> relax.Var:
        """`call`, where the kernel's function, and what it is fused to, is named as people write it."""
        gvar, types = self._kernel(kernel, inputs, options, function)
        if len(types) != 1:
            raise ValueError(f"{kernel.__name__} makes {len(types)} tensors, use call_many")
        return self.bind(relax.call_tir(gvar, relax.Tuple(list(inputs)), types[0]), name)

    def call_many(
        self,
        kernel: Kernel,
        inputs: Sequence[relax.Expr],
        name: str,
        outputs: Sequence[str],
        **options: Option,
    ) -> tuple[relax.Var, ...]:
        """Bind the results of a kernel that makes ``len(outputs)`` tensors, in order."""
        gvar, types = self._kernel(kernel, inputs, options, kernel.__name__)
        if len(types) != len(outputs):
            raise ValueError(f"{kernel.__name__} makes {len(types)} tensors, not {len(outputs)}")
        if len(types) == 1:
            call = relax.call_tir(gvar, relax.Tuple(list(inputs)), types[0])
            return (self.bind(call, outputs[0]),)
        made = self.bind(relax.call_tir(gvar, relax.Tuple(list(inputs)), types), name)
        return tuple(
            self.bind(relax.TupleGetItem(made, position), output)
            for position, output in enumerate(outputs)
        )

    def _kernel(
        self,
        kernel: Kernel,
        inputs: Sequence[relax.Expr],
        options: dict[str, Option],
        function: str,
    ) -> tuple[tvm.ir.GlobalVar, list[tvm.ir.Type]]:
        shapes = tuple((static_shape(value.ty), dtype_of(value)) for value in inputs)
        key = (function, kernel, shapes, tuple(sorted(options.items(), key=lambda item: item[0])))
        if key not in self._kernels:
            func, types = kernel_function(kernel, shapes, options)
            self._kernels[key] = (self._builder.add_func(func, function), types)
        return self._kernels[key]


def dtype_of(value: relax.Expr) -> str:
    """The element type of a tensor expression."""
    return str(value.ty.dtype)


def shape_of(value: relax.Expr) -> tuple[int, ...]:
    """The static shape of a tensor expression."""
    return static_shape(value.ty)


def kernel_function(
    kernel: Kernel,
    shapes: tuple[tuple[tuple[int, ...], str], ...],
    options: dict[str, Option],
) -> tuple[tvm.tirx.PrimFunc, list[tvm.ir.Type]]:
    """The PrimFunc of a kernel for inputs of these shapes and types, and the types of its outputs."""
    names = _input_names(kernel, len(shapes))
    inputs = [
        te.placeholder(shape, dtype, name=name)
        for (shape, dtype), name in zip(shapes, names, strict=True)
    ]
    if "float64" not in {dtype for _, dtype in shapes}:
        options = {name: _in_float32(option) for name, option in options.items()}
    made = kernel(*inputs, **options)
    if isinstance(made, tvm.tirx.PrimFunc):
        # Fusion takes kernels for what TE could say, which these are not.
        func = made.with_attr("op_pattern", _OPAQUE_PATTERN)
        outputs = list(func.params[len(inputs) :])
    else:
        outputs = made if isinstance(made, list) else [made]
        # Indices as wide as those of Relax's own kernels, so that FuseTIR can merge the two.
        func = te.create_prim_func([*inputs, *outputs], index_dtype_override="int64")
        func = func.without_attr("global_symbol")
    func = func.with_attrs(name_attributes(kernel.__name__, **options))
    if pairs := overwritten_pairs(kernel):
        flat = [position for pair in pairs if pair[0] < len(outputs) for position in pair]
        func = func.with_attr(INPLACE_ATTR, flat).without_attr("tirx.noalias")
    return func, [relax.TensorType(output.shape, output.dtype) for output in outputs]


def _in_float32(option: Option) -> Option:
    """A number as float32 holds it: infinite beyond its range, as PyTorch makes it."""
    if isinstance(option, tuple):
        return tuple(_in_float32(one) for one in option)  # type: ignore[return-value]
    if isinstance(option, float) and abs(option) > _MOST_FLOAT32:
        return math.copysign(math.inf, option)
    return option


def _input_names(kernel: Kernel, count: int) -> list[str]:
    names: list[str] = []
    for parameter in inspect.signature(kernel).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            return names + [f"{parameter.name}_{k}" for k in range(count - len(names))]
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            names.append(parameter.name)
    return names[:count]
