"""The part of the torch front end that needs torch: ATen graphs to Relax."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

import torch
import tvm
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils._pytree import TreeSpec
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tvm_xengine.checks.model_files import require_file
from tvm_xengine.checks.operators import (
    TORCH_ADVICE,
    TYPES_ADVICE,
    first_line,
    with_advice,
)
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.assemble import assemble
from tvm_xengine.frontends.call_structure import Fixed, Structure
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.naming_builder import NamingBlockBuilder, UniqueNames, identifier
from tvm_xengine.frontends.roles import TensorRole, Use
from tvm_xengine.frontends.torch.arrays import to_array
from tvm_xengine.frontends.torch.aten.converter import Converter
from tvm_xengine.frontends.torch.aten.table import converters
from tvm_xengine.frontends.torch.folding import Folding
from tvm_xengine.frontends.torch.program.archive import check_archive
from tvm_xengine.frontends.torch.program.checks import (
    check_decomposed,
    check_program,
    is_returned_tensor,
)
from tvm_xengine.frontends.torch.program.decompose import decomposed
from tvm_xengine.frontends.torch.program.nodes import layer_of, op_name, place_of
from tvm_xengine.frontends.torch.program.promotion import convert_operands
from tvm_xengine.frontends.torch.program.shared_memory import (
    memory,
    shared_memory,
)
from tvm_xengine.frontends.torch.program.writes import counted, written_buffers
from tvm_xengine.frontends.torch.quiet import quiet_export
from tvm_xengine.relax_ir.forward_ops import marked_writes
from tvm_xengine.relax_ir.types import Array, static_shape


def load_program(path: Path) -> ExportedProgram:
    """The exported program in a file, which is read once: what was checked is what is loaded."""
    require_file(path)
    content = path.read_bytes()
    check_archive(path, content)
    try:
        with quiet_export():
            return torch.export.load(io.BytesIO(content))
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
    check_program(name, program, prefix)
    autocast = _autocast(program)
    importer = _Importer(prefix, varying)
    try:
        program = decomposed(program, importer.convert_map)
    except UnsupportedModelError:
        raise
    except Exception as error:  # of PyTorch's own decompositions
        reason = shared_memory(program, prefix)  # PyTorch cannot write to one of two buffers then
        raise UnsupportedModelError(
            f"{name}: {reason or f'PyTorch cannot decompose the program: {first_line(error)}'}"
        ) from None
    check_decomposed(name, program, prefix)
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
        arguments=_arguments(program),
        folded=tuple(sorted(importer.folded())),
        own=_own_tensors(program, prefix, {name for role in model.roles for name in role.names}),
        notes=(*model.notes, *autocast, *_written_inputs(program)),
    )


def _written_inputs(program: ExportedProgram) -> list[str]:
    """A sentence about inputs that forward writes."""
    written = [
        str(spec.target)
        for spec in program.graph_signature.output_specs
        if spec.kind is OutputKind.USER_INPUT_MUTATION
    ]
    if not written:
        return []
    return [
        f"forward writes in place to {' and '.join(written)}, which changes the caller's batch in PyTorch;"
        " a step leaves its batch as it is"
    ]


def _autocast(program: ExportedProgram) -> list[str]:
    """A sentence about the types for which forward opens ``torch.autocast``."""
    types = {
        str(node.args[1]).removeprefix("torch.")
        for part in program.graph_module.modules()
        for node in part.graph.nodes
        if node.target is torch.ops.higher_order.wrap_with_autocast and node.args[2]
    }
    return [
        f"forward opens torch.autocast: a kernel rounds to {dtype} what it stores and nothing else, so"
        " losses and gradients differ from PyTorch's by such roundings"
        for dtype in sorted(types)
    ]


def _own_tensors(program: ExportedProgram, prefix: str, known: Collection[str]) -> dict[str, Array]:
    """The state dict of the module; values of the tensors that are not `known` are copies."""
    state = {target.removeprefix(prefix): value for target, value in program.state_dict.items()}
    arrays = {target: to_array(value.detach()) for target, value in state.items()}
    return {name: one if name in known else one.copy() for name, one in arrays.items()}


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
        self._folding = Folding()

    @staticmethod
    def _flatten_output_args(values: object) -> tuple[relax.Expr, ...]:
        """What forward returns, in a row; numbers and None are left out of the model later on."""
        if isinstance(values, list | tuple):
            return tuple(one for each in values for one in _Importer._flatten_output_args(each))
        return (values if isinstance(values, relax.Expr) else relax.op.null_value(),)

    def translate(self, program: ExportedProgram) -> tuple[tvm.IRModule, dict[str, Array]]:
        """A module with ``main(inputs..., other tensors...)``, and the values of the others."""
        variables, values = self._declare(program)
        by_name = {one.name: one for one in variables.values()}  # tied tensors share a variable
        inputs = [one for name, one in by_name.items() if name not in values]
        others = [by_name[name] for name in values]
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

    def _declare(self, program: ExportedProgram) -> tuple[dict[str, relax.Var], dict[str, Array]]:
        """A variable for each argument of the program, by its name there, and values of all but inputs."""
        variables: dict[str, relax.Var] = {}
        values: dict[str, Array] = {}
        state = {**dict(program.named_buffers()), **program.state_dict, **program.constants}
        fixed = _fixed_tensors(program)
        first_of: dict[object, str] = {}
        names = UniqueNames()
        placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
        for spec in program.graph_signature.input_specs:
            argument, is_input = spec.arg.name, spec.kind is InputKind.USER_INPUT
            if isinstance(spec.arg, ConstantArgument):  # the program has its value
                continue
            if is_input:
                value = _input_value(argument, placeholders)
            else:
                value = state[spec.target].detach()
            if spec.kind is InputKind.PARAMETER:
                first = first_of.setdefault(memory(value), argument)
                if first != argument:  # tied, as the head of GPT-2 is to its embedding
                    variables[argument] = variables[first]
                    self.param_names[argument] = self.param_names[first]
                    self._share(self.param_names[first], spec.target, state[spec.target])
                    continue
            name = names.fresh(identifier(argument if is_input else self._named(spec.target)))
            self.param_names[argument] = name
            dtype = self._convert_data_type(value.dtype)
            variables[argument] = relax.Var(name, relax.TensorType(list(value.shape), dtype))
            if is_input:
                continue
            target = self._named(spec.target)
            self._roles[name] = _role(name, target, spec.kind, state[spec.target])
            values[name] = to_array(value).copy()  # training the module changes its own
            if spec.target in fixed and target not in self._varying:
                self._folding.know(placeholders[argument], target, value)
        return variables, values

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

    def folded(self) -> set[str]:
        """Names of the tensors whose values went into constants."""
        return self._folding.folded

    def origins(self) -> list[TensorRole]:
        """Names and roles of the tensors in the program."""
        return list(self._roles.values())

    def _named(self, target: str) -> str:
        return target.removeprefix(self._prefix)

    def _share(self, variable: str, target: str, value: torch.Tensor) -> None:
        """One more name of a tensor; it is trained if it is trained under any of them."""
        role = self._roles[variable]
        if value.requires_grad and role.use is Use.FROZEN:
            role = replace(role, use=Use.TRAINED, reason="")
        self._roles[variable] = replace(role, also=(*role.also, self._named(target)))

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
            self.block_builder.layer = layer_of(node)
            self.block_builder.place = place_of(node)
            self.place = f"{op_name(node)} (in {layer_of(node)})"
            if (value := self._folded(node)) is not None:
                return value
            made = convert(node)
            _check_type(made, node)
            return made

        return converted

    def _folded(self, node: fx.Node) -> relax.Expr | list[relax.Expr] | None:
        """The value of a node that depends on constants only, else None."""
        expected = node.meta.get("val")
        are_several = isinstance(expected, tuple | list) and bool(node.all_input_nodes)
        tensors = list(expected) if are_several else [expected]
        if all(isinstance(one, torch.Tensor) and not one.numel() for one in tensors):
            made = [self._without_elements(one) for one in tensors]
        else:
            values = self._folding.computed(node)
            if values is None:
                return None
            made = [_constant(one) for one in (values if are_several else [values])]
        return made if are_several else made[0]

    def _without_elements(self, value: torch.Tensor) -> relax.Expr:
        """A tensor without elements, of which TVM cannot store a constant."""
        dtype = self._convert_data_type(value.dtype)
        return self.block_builder.emit(relax.op.zeros(list(value.shape), dtype))


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


def _input_value(name: str, placeholders: Mapping[str, fx.Node]) -> torch.Tensor:
    value = placeholders[name].meta.get("val") if name in placeholders else None
    if isinstance(value, torch.Tensor):
        return value
    raise UnsupportedModelError(
        f"the input {name} is not a tensor; export the model with tensors as its only arguments"
    )


def _arguments(program: ExportedProgram) -> tuple[Structure, ...]:
    """What the module was called with."""
    leaves = iter(
        Fixed(spec.arg.name, spec.arg.value) if isinstance(spec.arg, ConstantArgument) else None
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT
    )

    def structure(spec: TreeSpec) -> Structure:
        if spec.is_leaf():
            return next(leaves)
        parts = [structure(part) for part in spec.children()]
        return dict(zip(spec.context, parts, strict=True)) if spec.type is dict else parts

    calls = program.call_spec.in_spec.children()  # arguments by position, and by name
    return tuple(structure(one) for call in calls for one in call.children())


def _returned(program: ExportedProgram) -> tuple[fx.Node, ...]:
    (output,) = program.graph.find_nodes(op="output")
    return tuple(output.args[0])


def _fixed_tensors(program: ExportedProgram) -> set[str]:
    """Buffers and constants that a forward pass reads and never writes."""
    written = set(program.graph_signature.buffers_to_mutate.values())
    parameters = set(program.graph_signature.parameters)
    return {*dict(program.named_buffers()), *program.constants} - written - parameters
