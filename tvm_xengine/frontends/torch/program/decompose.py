"""Programs without mutation, in operators that have a converter."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from tvm_xengine.checks.operators import TORCH_ADVICE, located
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.program.decompositions import decompositions
from tvm_xengine.frontends.torch.program.keywords import keywords_respelled
from tvm_xengine.frontends.torch.program.nodes import layer_of, op_name
from tvm_xengine.frontends.torch.program.past_autograd import (
    DETACH,
    DETACH_IN_PLACE,
    GRADIENTS_ENABLED,
)
from tvm_xengine.frontends.torch.quiet import quiet_export


def decomposed(program: ExportedProgram, convertible: Collection[str]) -> ExportedProgram:
    """The program without mutation, and with only those ops decomposed that have no converter.

    Parameters
    ----------
    convertible
        Names of the operators that have one.

    Raises
    ------
    UnsupportedModelError
        Names what is left without a converter.
    """
    unknown = _unknown_ops(program, convertible)
    if not unknown and not _is_written(program):
        return program  # tracing it again takes half a second
    graph = program.graph
    with (
        quiet_export(),
        _operators_listed_once(),
        _without_gradients_marked(graph),
        _detached_in_place(graph),
        keywords_respelled(program) as restored,
    ):
        written, own = torch._decomp.decomposition_table, decompositions()
        rules = {**written, **torch.export.default_decompositions(), **own}
        table = {
            op: rule
            for op, rule in rules.items()
            if isinstance(op, torch._ops.OpOverload) and op.__name__ not in convertible
        }

        def is_overridden(op: torch._ops.OpOverload) -> bool:
            return op in written or op in own or op.__name__ in convertible

        with _composites_left_alone(table, is_overridden):
            plain = restored(program.run_decompositions(table))
    if unknown := _unknown_ops(plain, convertible):
        if any("_local_scalar_dense" in op_name(node) for node in unknown):
            raise UnsupportedModelError(
                "forward reads the value of a tensor as a number, as float(t) and t.item() do; compute with"
                " the tensor"
            )
        if any("sym_size" in op_name(node) for node in unknown):
            raise UnsupportedModelError(
                "a shape depends on the values of tensors, as those of x[x > 0] and x.nonzero() do;"
                " shapes are static, so keep them by torch.where or torch.nonzero_static"
            )
        places = located((op_name(node), layer_of(node)) for node in unknown)
        raise UnsupportedModelError(
            f"{len(unknown)} ops of the program have no converter: {places}; {TORCH_ADVICE}"
        )
    return plain


def _unknown_ops(program: ExportedProgram, convertible: Collection[str]) -> list[fx.Node]:
    return [
        node
        for node in program.graph.nodes
        if node.op == "call_function" and op_name(node) not in convertible
    ]


def _is_written(program: ExportedProgram) -> bool:
    """Whether an op writes to a tensor, as its schema says."""
    return any(
        isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        for node in program.graph.nodes
    )


@contextmanager
def _operators_listed_once() -> Iterator[None]:
    """Let PyTorch ask its dispatcher once for all operators, instead of once for each namespace."""
    utils = torch._export.utils
    asks = getattr(utils, "_materialize_cpp_cia_ops", None)  # not in every version
    if asks is None:
        yield
        return
    utils._materialize_cpp_cia_ops = cache(asks)
    try:
        yield
    finally:
        utils._materialize_cpp_cia_ops = asks


@contextmanager
def _composites_left_alone(
    table: dict[Any, Callable[..., Any]], is_overridden: Callable[[torch._ops.OpOverload], bool]
) -> Iterator[None]:
    """Let PyTorch override only those composite operators whose rule is another than their own.

    It overrides all of them, some three hundred with twenty kernels each, for each of two traces,
    which takes longer than tracing a small network. `table` loses the ones that are left alone.
    """
    place = torch.export.exported_program
    lists = getattr(place, "_collect_all_valid_cia_ops", None)  # not in every version
    if lists is None:
        yield
        return
    composite = lists()
    overridden = {op for op in composite if is_overridden(op)}
    for op in composite - overridden:
        table.pop(op, None)
    place._collect_all_valid_cia_ops = lambda: overridden
    try:
        yield
    finally:
        place._collect_all_valid_cia_ops = lists


@contextmanager
def _without_gradients_marked(graph: fx.Graph) -> Iterator[None]:
    """Detach, for a while, what is computed under ``torch.no_grad``; decomposing forgets that."""
    made: list[tuple[fx.Node, fx.Node]] = []
    for node in list(graph.nodes):
        source = node.args[0] if node.target is operator.getitem else None
        if not isinstance(source, fx.Node) or source.args[:1] != (False,):
            continue
        is_float = node.meta["val"].is_floating_point()
        if source.target is GRADIENTS_ENABLED and is_float:
            made.append((node, _followed_by(DETACH, node)))
    try:
        yield
    finally:
        _take_out(made)


@contextmanager
def _detached_in_place(graph: fx.Graph) -> Iterator[None]:
    """Write ``x.detach_()`` as a detached copy for a while; decomposing forgets it."""
    made: list[tuple[fx.Node, fx.Node]] = []
    for node in list(graph.nodes):
        if node.target is not DETACH_IN_PLACE:
            continue
        node.target = DETACH
        made.append((node, _followed_by(torch.ops.aten.clone.default, node)))
    try:
        yield
    finally:
        _take_out(made)
        for node, _ in made:
            node.target = DETACH_IN_PLACE


def _followed_by(op: torch._ops.OpOverload, node: fx.Node) -> fx.Node:
    """A new node of `op` behind another one, which all that read that one read in its place."""
    with node.graph.inserting_after(node):
        made = node.graph.call_function(op, (node,))
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)
    return made


def _take_out(made: Iterable[tuple[fx.Node, fx.Node]]) -> None:
    """Undo `_followed_by`, of nodes with what follows them."""
    for node, follower in made:
        follower.replace_all_uses_with(node)
        node.graph.erase_node(follower)
