"""The part of the torch front end that needs torch: ATen graphs to Relax."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
import tvm
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec, TensorArgument
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tvm_xengine.checks.model_files import require_file
from tvm_xengine.checks.names import some
from tvm_xengine.checks.operators import (
    TORCH_ADVICE,
    TYPES_ADVICE,
    first_line,
    located,
    with_advice,
)
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.assemble import assemble
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.naming_builder import NamingBlockBuilder, UniqueNames, identifier
from tvm_xengine.frontends.roles import TensorRole, Use
from tvm_xengine.frontends.torch.archive import check_archive
from tvm_xengine.frontends.torch.arrays import to_array
from tvm_xengine.frontends.torch.aten.converter import Converter
from tvm_xengine.frontends.torch.aten.table import converters
from tvm_xengine.frontends.torch.decompositions import decompositions
from tvm_xengine.frontends.torch.past_autograd import detached_in_place, silent_writes
from tvm_xengine.frontends.torch.place import place_of
from tvm_xengine.frontends.torch.promotion import convert_operands
from tvm_xengine.frontends.torch.quiet import quiet_export
from tvm_xengine.frontends.torch.shared_memory import check_shared_memory, memory, shared_memory
from tvm_xengine.frontends.torch.writes import counted, written_buffers
from tvm_xengine.relax_ir.forward_ops import marked_writes
from tvm_xengine.relax_ir.types import Array, static_shape

RETURNED = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
"""Kinds of what forward returns, beside the buffers that it writes."""


def is_returned_tensor(spec: OutputSpec) -> bool:
    """Whether it is a tensor that forward returns; None and numbers are no outputs of the model."""
    return spec.kind in RETURNED and isinstance(spec.arg, TensorArgument)


def load_program(path: Path) -> ExportedProgram:
    """The exported program in a file."""
    require_file(path)
    check_archive(path)
    try:
        with quiet_export():
            return torch.export.load(path)
    except Exception as error:
        raise UnsupportedModelError(
            f"{path} is not a program saved by torch.export.save: {first_line(error)}"
        ) from error


def import_exported_program(
    name: str, program: ExportedProgram, *, prefix: str = "", varying: Collection[str] = ()
) -> ForwardModel:
    """The forward model of an exported program.

    Parameters
    ----------
    prefix
        Is taken off the names of its tensors.
    varying
        Names of buffers that something else writes: nothing that depends on them is precomputed.
    """
    _check_shapes(name, program)
    _check_parameters(name, program, prefix)
    _check_silent_writes(name, program)
    check_shared_memory(name, program, prefix)
    _check_outputs(name, program)
    importer = _Importer(prefix, varying)
    try:
        program = _decomposed(program, importer)
    except UnsupportedModelError:
        raise
    except Exception as error:  # of PyTorch's own decompositions
        reason = shared_memory(program, prefix)  # PyTorch cannot write to one of two buffers then
        raise UnsupportedModelError(
            f"{name}: {reason or f'PyTorch cannot decompose the program: {first_line(error)}'}"
        ) from None
    _check_shapes(name, program)
    _check_written(name, program, prefix)
    convert_operands(program.graph)
    try:
        mod, values = importer.translate(program)
    except Exception as error:
        reason = f"{importer.place} cannot be imported: {first_line(error)}"
        advice = TYPES_ADVICE if "must have the same datatype" in reason else TORCH_ADVICE
        raise UnsupportedModelError(f"{name}: {with_advice(reason, advice)}") from error
    parameters = (
        importer.param_names[spec.arg.name]
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.PARAMETER
    )
    trainable = {one for one in parameters if "float" in str(values[one].dtype)}
    model = assemble(name, mod, values, trainable, origins=importer.origins())
    counters = {target.removeprefix(prefix): by for target, by in counted(program).items()}
    return replace(
        model,
        places=importer.block_builder.places,
        counters=counters,
        folded=tuple(sorted(importer.folded)),
    )


def _check_parameters(name: str, program: ExportedProgram, prefix: str) -> None:
    """A step keeps what it trains in float32 or float64, where small updates are not lost."""
    for target, value in program.named_parameters():
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype in ("float16", "bfloat16"):
            raise UnsupportedModelError(
                f"{name}: expected parameters of float32 or float64, found {dtype} in"
                f" {target.removeprefix(prefix)}; call float() on the module, and ask for the"
                f" precision {dtype} to compute in it"
            )


def _check_silent_writes(name: str, program: ExportedProgram) -> None:
    if nodes := silent_writes(program):
        places = located((_op_name(node), _layer(node)) for node in nodes)
        raise UnsupportedModelError(
            f"{name}: forward writes in place to tensors whose gradient it needs, and autograd does not see"
            f" it (under torch.no_grad, or through detach()): {places}; write to a copy (clone), or where"
            " gradients are enabled"
        )


def _check_outputs(name: str, program: ExportedProgram) -> None:
    if not any(map(is_returned_tensor, program.graph_signature.output_specs)):
        raise UnsupportedModelError(
            f"{name}: forward returns no tensor; return one, not a number of it as t.item() makes"
        )


def _check_written(name: str, program: ExportedProgram, prefix: str) -> None:
    """A forward pass may write buffers; parameters are written by the optimizer."""
    written = [
        str(spec.target).removeprefix(prefix)
        for spec in program.graph_signature.output_specs
        if spec.kind is OutputKind.PARAMETER_MUTATION
    ]
    if written:
        raise UnsupportedModelError(
            f"{name}: the forward pass writes the parameters {some(written)}, which the optimizer of a"
            " training step replaces; keep what forward writes in buffers"
        )


def _check_shapes(name: str, program: ExportedProgram) -> None:
    dynamic = [
        node.name
        for node in program.graph.nodes
        if node.op == "placeholder"
        and isinstance(value := node.meta.get("val"), torch.Tensor)
        and any(not isinstance(extent, int) for extent in value.shape)
    ]
    if dynamic:
        raise UnsupportedModelError(
            f"{name}: the inputs {dynamic} have dynamic shapes; export without dynamic_shapes"
        )
    strange = [
        (_op_name(node), _layer(node))
        for node in program.graph.nodes
        for value in _tensors(node.meta.get("val"))
        if value.is_complex() or value.layout is not torch.strided
    ]
    if strange:
        raise UnsupportedModelError(
            f"{name}: complex and sparse tensors are not supported: {located(strange)}; compute with"
            " real and imaginary parts (torch.view_as_real), and with dense tensors (to_dense)"
        )


def _tensors(value: object) -> list[torch.Tensor]:
    values = value if isinstance(value, list | tuple) else [value]
    return [one for one in values if isinstance(one, torch.Tensor)]


def _decomposed(program: ExportedProgram, importer: _Importer) -> ExportedProgram:
    """The program without mutation, and with only those ops decomposed that have no importer."""
    if importer.takes(program):
        return program  # tracing it again takes half a second
    graph = program.graph
    with (
        quiet_export(),
        _operators_listed_once(),
        _without_gradients_marked(graph),
        detached_in_place(graph),
    ):
        rules = {
            **torch._decomp.decomposition_table,
            **torch.export.default_decompositions(),
            **decompositions(),
        }
        table = {
            op: rule
            for op, rule in rules.items()
            if isinstance(op, torch._ops.OpOverload) and importer.is_unknown(op)
        }
        decomposed = program.run_decompositions(table)
    if unknown := importer.unknown_ops(decomposed):
        if any("_local_scalar_dense" in _op_name(node) for node in unknown):
            raise UnsupportedModelError(
                "forward reads the value of a tensor as a number, as float(t) and t.item() do; compute with"
                " the tensor"
            )
        if any("sym_size" in _op_name(node) for node in unknown):
            raise UnsupportedModelError(
                "a shape depends on the values of tensors, as those of x[x > 0] and x.nonzero() do;"
                " shapes are static, so keep them by torch.where or torch.nonzero_static"
            )
        places = located((_op_name(node), _layer(node)) for node in unknown)
        raise UnsupportedModelError(
            f"{len(unknown)} ops of the program have no converter: {places}; {TORCH_ADVICE}"
        )
    return decomposed


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
def _without_gradients_marked(graph: fx.Graph) -> Iterator[None]:
    """Detach, for a while, what is computed under ``torch.no_grad``; decomposing forgets that."""
    made: list[tuple[fx.Node, fx.Node]] = []
    for node in list(graph.nodes):
        source = node.args[0] if node.target is operator.getitem else None
        if not isinstance(source, fx.Node) or source.args[:1] != (False,):
            continue
        is_float = node.meta["val"].is_floating_point()
        if source.target is torch.ops.higher_order.wrap_with_set_grad_enabled and is_float:
            with graph.inserting_after(node):
                detached = graph.call_function(torch.ops.aten.detach.default, (node,))
            detached.meta = dict(node.meta)
            node.replace_all_uses_with(
                detached, delete_user_cb=lambda user, d=detached: user is not d
            )
            made.append((node, detached))
    try:
        yield
    finally:
        for node, detached in made:
            detached.replace_all_uses_with(node)
            graph.erase_node(detached)


class _Importer(ExportedProgramImporter):  # type: ignore[misc]
    """TVM's importer, with every tensor a named parameter and the training forms of the norms."""

    def __init__(self, prefix: str = "", varying: Collection[str] = ()) -> None:
        super().__init__()
        self._prefix = prefix
        self._varying = varying
        self.block_builder = NamingBlockBuilder()
        self.param_names: dict[str, str] = {}
        self._roles: dict[str, TensorRole] = {}
        self.place = "the program"
        self._known: dict[fx.Node, torch.Tensor] = {}
        self._names_in: dict[fx.Node, frozenset[str]] = {}
        self.folded: set[str] = set()

    def is_unknown(self, op: object) -> bool:
        return getattr(op, "__name__", str(op)) not in self.convert_map

    def unknown_ops(self, program: ExportedProgram) -> list[fx.Node]:
        return [
            node
            for node in program.graph.nodes
            if node.op == "call_function" and self.is_unknown(node.target)
        ]

    def takes(self, program: ExportedProgram) -> bool:
        """Whether every op has an importer and writes nothing, as its schema says."""
        return not self.unknown_ops(program) and not any(
            isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
            for node in program.graph.nodes
        )

    @staticmethod
    def _flatten_output_args(values: object) -> tuple[relax.Expr, ...]:
        """What forward returns, in a row; numbers and None are left out of the model later on."""
        if isinstance(values, list | tuple):
            return tuple(one for each in values for one in _Importer._flatten_output_args(each))
        return (values if isinstance(values, relax.Expr) else relax.op.null_value(),)

    def translate(self, program: ExportedProgram) -> tuple[tvm.IRModule, dict[str, Array]]:
        """A module with ``main(inputs..., other tensors...)``, and the values of the others."""
        values: dict[str, Array] = {}
        inputs: list[relax.Var] = []
        others: list[relax.Var] = []
        variables: dict[str, relax.Var] = {}
        state = {**dict(program.named_buffers()), **program.state_dict, **program.constants}
        fixed = _fixed_tensors(program)
        first_of: dict[object, str] = {}
        names = UniqueNames()
        placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
        for spec in program.graph_signature.input_specs:
            if spec.kind is InputKind.USER_INPUT:
                value = _placeholder_value(program, spec.arg.name)
                plain = identifier(spec.arg.name)
            else:
                value = state[spec.target].detach()
                plain = identifier(self._named(spec.target))
            first = first_of.get(memory(value)) if spec.kind is InputKind.PARAMETER else None
            if first is not None:  # tied, as the head of GPT-2 is to its embedding
                variables[spec.arg.name] = variables[first]
                self.param_names[spec.arg.name] = self.param_names[first]
                self._share(self.param_names[first], self._named(spec.target), state[spec.target])
                continue
            name = names.fresh(plain)
            dtype = self._convert_data_type(value.dtype)
            variable = relax.Var(name, relax.TensorType(list(value.shape), dtype))
            variables[spec.arg.name] = variable
            self.param_names[spec.arg.name] = name
            if spec.kind is InputKind.PARAMETER:
                first_of[memory(value)] = spec.arg.name
            if spec.kind is InputKind.USER_INPUT:
                inputs.append(variable)
            else:
                others.append(variable)
                self._roles[name] = _role(
                    name, self._named(spec.target), spec.kind, state[spec.target]
                )
                values[name] = to_array(value).copy()  # training the module changes its own
            if spec.target in fixed and self._named(spec.target) not in self._varying:
                self._known[placeholders[spec.arg.name]] = value
                self._names_in[placeholders[spec.arg.name]] = frozenset([self._named(spec.target)])
        with self.block_builder.function("main", params=[*inputs, *others]):
            with self.block_builder.dataflow():
                made = self._translate_fx_graph(
                    program.graph_module, list(program.graph.nodes), variables
                )
                outputs = [
                    value
                    for value, spec in zip(made, program.graph_signature.output_specs, strict=True)
                    if is_returned_tensor(spec)
                ]
                new = self._new_values(program, dict(zip(_returned(program), made, strict=True)))
                outputs += new.values()
                result = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
                output = self.block_builder.emit_output(result, "output")
            self.block_builder.emit_func_output(output)
        mod = self.block_builder.get()
        order = [param.name for param in mod["main"].params]
        mod["main"] = marked_writes(mod["main"], [order.index(name) for name in new])
        return mod, values

    def _new_values(
        self, program: ExportedProgram, made: Mapping[fx.Node, relax.Expr]
    ) -> dict[str, relax.Expr]:
        """What becomes of each buffer that the program writes, by its variable."""
        new: dict[str, relax.Expr] = {}
        for placeholder, node in written_buffers(program).items():
            name = self.param_names[placeholder.name]
            dtype = self._convert_data_type(placeholder.meta["val"].dtype)
            value = made[node]
            if str(value.ty.dtype) != dtype:  # integers of another width
                value = self.block_builder.emit(relax.op.astype(value, dtype))
            new[name] = value
        return new

    def origins(self) -> list[TensorRole]:
        """Names and roles of the tensors in the program."""
        return list(self._roles.values())

    def _named(self, target: str) -> str:
        return target.removeprefix(self._prefix)

    def _share(self, variable: str, name: str, value: torch.Tensor) -> None:
        """One more name of a tensor; it is trained if it is trained under any of them."""
        role = self._roles[variable]
        if value.requires_grad and role.use is Use.FROZEN:
            role = replace(role, use=Use.TRAINED, reason="")
        self._roles[variable] = replace(role, also=(*role.also, name))

    def create_convert_map(self) -> dict[str, Callable[[fx.Node], relax.Expr]]:
        table = converters()
        by_name = {name: self._by_schema(table, name) for name in table}
        by_name |= dict.fromkeys(_ASSERTIONS, _nothing)
        by_name |= {"getitem": self._field}
        return {name: self._at_layer(convert) for name, convert in by_name.items()}

    def _field(self, node: fx.Node) -> relax.Expr:
        made, position = self.retrieve_args(node)
        return made[position]

    def _by_schema(
        self, table: Mapping[str, Converter], name: str
    ) -> Callable[[fx.Node], relax.Expr]:
        def converted(node: fx.Node) -> relax.Expr:
            given = self.retrieve_args(node)
            named = {key: self._value(value) for key, value in node.kwargs.items()}
            values = [
                given[position]
                if position < len(given)
                else named.get(argument.name, argument.default_value)
                for position, argument in enumerate(node.target._schema.arguments)
            ]
            return table[name](self.block_builder, *values)

        return converted

    def _value(self, value: object) -> object:
        return self.env[value] if isinstance(value, fx.Node) else value

    def _at_layer(
        self, convert: Callable[[fx.Node], relax.Expr]
    ) -> Callable[[fx.Node], relax.Expr]:
        def converted(node: fx.Node) -> relax.Expr:
            self.block_builder.layer = _layer(node)
            self.block_builder.place = place_of(node)
            self.place = f"{_op_name(node)} (in {_layer(node)})"
            if (value := self._folded(node)) is not None:
                return value
            made = convert(node)
            _check_type(made, node)
            return made

        return converted

    def _folded(self, node: fx.Node) -> relax.Expr | list[relax.Expr] | None:
        """The value of a node that depends on constants only, else None."""
        expected = node.meta.get("val")
        if isinstance(expected, tuple | list) and node.all_input_nodes:
            if all(isinstance(one, torch.Tensor) and not one.numel() for one in expected):
                return [self._without_elements(one) for one in expected]
            return self._folded_tuple(node)
        if not isinstance(expected, torch.Tensor):
            return None
        if expected.numel() == 0:
            return self._without_elements(expected)
        if not _is_fixed(node):
            return None
        if not all(self._is_known(read) for read in node.all_input_nodes):
            return None
        value = self._computed(node)
        self._known[node] = value
        return _constant(value)

    def _without_elements(self, value: torch.Tensor) -> relax.Expr:
        """A tensor without elements, of which TVM cannot store a constant."""
        dtype = self._convert_data_type(value.dtype)
        return self.block_builder.emit(relax.op.zeros(list(value.shape), dtype))

    def _folded_tuple(self, node: fx.Node) -> list[relax.Expr] | None:
        """The same for a node that returns several tensors, such as the variance of no elements."""
        if not _is_fixed(node) or not all(self._is_known(read) for read in node.all_input_nodes):
            return None
        if node.target is operator.getitem:
            return None
        values = self._computed(node)
        if not all(isinstance(one, torch.Tensor) and one.numel() for one in values):
            return None
        return [_constant(one) for one in values]

    def _computed(self, node: fx.Node) -> torch.Tensor:
        """What PyTorch computes from values that are known."""
        names = (self._names_in.get(read, frozenset()) for read in node.all_input_nodes)
        self._names_in[node] = frozenset[str]().union(*names)
        self.folded |= self._names_in[node]
        arguments, named = fx.map_arg((node.args, node.kwargs), self._known_value)
        return node.target(*arguments, **named)

    def _is_known(self, node: fx.Node) -> bool:
        """Whether a tensor's values are known; a tensor without elements has none to know."""
        value = node.meta.get("val")
        return node in self._known or (isinstance(value, torch.Tensor) and value.numel() == 0)

    def _known_value(self, node: fx.Node) -> torch.Tensor:
        if node in self._known:
            return self._known[node]
        value = node.meta["val"]
        return torch.empty(value.shape, dtype=value.dtype)


def _constant(value: torch.Tensor) -> relax.Expr:
    array = to_array(value.contiguous())
    return relax.const(array, str(array.dtype))


_ASSERTIONS = (
    "_assert_async.default",
    "_assert_async.msg",
    "_assert_scalar.default",
    "_assert_tensor_metadata.default",
    "sym_constrain_range_for_size.default",
)
"""What PyTorch checks while it runs; shapes and types are known here."""


def _nothing(_node: fx.Node) -> None:
    """What an assertion returns."""


def _role(variable: str, name: str, kind: InputKind, value: torch.Tensor) -> TensorRole:
    """What the program says of a tensor; which buffers are statistics shows later."""
    if kind is not InputKind.PARAMETER:
        return TensorRole(variable, name, Use.CONSTANT)
    if value.requires_grad:
        return TensorRole(variable, name, Use.TRAINED)
    return TensorRole(variable, name, Use.FROZEN, reason="requires_grad is False")


def _check_type(made: relax.Expr, node: fx.Node) -> None:
    """A tensor that is used must have the shape and elements that torch says, integers of any width."""
    expected = node.meta.get("val") if node.users else None
    if not isinstance(expected, torch.Tensor) or not isinstance(made, relax.Expr):
        return
    if not isinstance(made.ty, relax.TensorType):
        return
    found = str(made.ty.dtype)
    wanted = str(expected.dtype).removeprefix("torch.")
    if static_shape(made.ty) != tuple(expected.shape) or _kind(found) != _kind(wanted):
        raise UnsupportedModelError(
            f"imported as {made.ty}, but is {wanted} of shape {tuple(expected.shape)}"
        )


def _kind(dtype: str) -> str:
    return dtype if "float" in dtype else dtype.rstrip("0123456789").removeprefix("u")


def _is_fixed(node: fx.Node) -> bool:
    """Whether PyTorch gives the same values each time: nothing is drawn, or left unwritten."""
    is_random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return not is_random and not _op_name(node).removeprefix("new_").startswith("empty")


def _placeholder_value(program: ExportedProgram, name: str) -> torch.Tensor:
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name == name:
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                return value
            break
    raise UnsupportedModelError(
        f"the input {name} is not a tensor; export the model with tensors as its only arguments"
    )


def _returned(program: ExportedProgram) -> tuple[fx.Node, ...]:
    (output,) = program.graph.find_nodes(op="output")
    return tuple(output.args[0])


def _fixed_tensors(program: ExportedProgram) -> set[str]:
    """Buffers and constants that a forward pass reads and never writes."""
    written = set(program.graph_signature.buffers_to_mutate.values())
    parameters = set(program.graph_signature.parameters)
    return {*dict(program.named_buffers()), *program.constants} - written - parameters


def _layer(node: fx.Node) -> str:
    """The path of the module that the node came from, with the op where that says more."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    kind = kind if isinstance(kind, str) else kind.__module__
    if path and kind.startswith("torch.nn.modules"):
        return identifier(path)
    return identifier(f"{path}_{_op_name(node).split('.')[0]}")


def _op_name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))
