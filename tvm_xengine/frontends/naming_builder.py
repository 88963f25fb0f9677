"""A block builder that names bindings after the layer being imported."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from tvm_xengine.frontends.place import Place


class UniqueNames:
    """Unique names; a name that is taken gets a number."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def fresh(self, name: str) -> str:
        """The name itself when it is free, else ``name_2``, ``name_3``, ..."""
        candidate = name
        while candidate in self._taken:
            self._taken[name] += 1
            candidate = f"{name}_{self._taken[name]}"
        self._taken[candidate] = 1
        return candidate


class NamingBlockBuilder(relax.BlockBuilder):  # type: ignore[misc]
    """Binds every call, nested ones too, to a variable named after the current layer.

    The first op of a layer is called like the layer, a later one after layer and operator.

    Attributes
    ----------
    layer, place
        Layer and place in the model's source that are being imported.
    places
        For each variable its place, where that is known.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layer = "op"
        self.place = Place()
        self.places: dict[str, Place] = {}
        self._names = UniqueNames()
        self._nested: dict[relax.Expr, relax.Var] = {}

    def emit(self, expr: relax.Expr, name_hint: str = "") -> relax.Var:
        bound = self._without_nested_calls(expr)
        name = name_hint or self.layer
        if name in self._names and isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            name = f"{name}_{expr.op.name.split('.')[-1]}"
        fresh = self._names.fresh(name)
        if self.place != Place():
            self.places[fresh] = self.place
        return super().emit(bound, fresh)

    def normalize(self, expr: relax.Expr) -> relax.Expr:
        return super().normalize(self._without_nested_calls(expr))

    def _exit_function_scope(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        """TVM logs a warning when a builder is destroyed whose block an exception left open."""
        if exc_type is not None and not self._func._is_emit_func_output_called:
            self._end_block()
        super()._exit_function_scope(exc_type, exc_val, exc_tb)

    def _without_nested_calls(self, expr: relax.Expr) -> relax.Expr:
        match expr:
            case relax.Call():
                arguments = [self._bound(argument) for argument in expr.args]
                return relax.Call(expr.op, arguments, expr.attrs, expr.ty_args)
            case relax.Tuple():
                return relax.Tuple([self._bound(field) for field in expr.fields])
            case relax.TupleGetItem():
                return relax.TupleGetItem(self._bound(expr.tuple_value), expr.index)
            case _:
                return expr

    def _bound(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Tuple):
            return self._without_nested_calls(expr)
        if not isinstance(expr, relax.Call | relax.TupleGetItem):
            return expr
        if expr not in self._nested:
            self._nested[expr] = self.emit(expr)
        return self._nested[expr]


def identifier(name: str) -> str:
    """A name made of letters, digits and underscores."""
    plain = "".join(letter if letter.isalnum() else "_" for letter in name).strip("_")
    return plain if plain and not plain[0].isdigit() else f"n{plain}"
