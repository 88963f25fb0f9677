"""The part of the ONNX front end that needs onnx: ONNX graphs to Relax."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import onnx
import tvm
from onnx import numpy_helper
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, _get_convert_map, get_constant

from tvm_xengine.checks.model_files import require_file
from tvm_xengine.checks.operators import NODE_ADVICE, first_line, with_advice
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.assemble import assemble
from tvm_xengine.frontends.initialise import initialised
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.naming_builder import NamingBlockBuilder, UniqueNames, identifier
from tvm_xengine.frontends.onnx.author.intent import state_roles
from tvm_xengine.frontends.onnx.author.kinds import Kind, computed_parameters, kinds_of
from tvm_xengine.frontends.onnx.converters import converters
from tvm_xengine.frontends.onnx.external_data import load_external_data
from tvm_xengine.frontends.onnx.graphs import modes
from tvm_xengine.frontends.onnx.graphs.constants import fold_constants
from tvm_xengine.frontends.onnx.graphs.functions import opset_of, write_out_functions
from tvm_xengine.frontends.onnx.graphs.rewrites import write_constants_as_tensors, write_padding
from tvm_xengine.frontends.onnx.narrow_types import HELD_AS, hold_narrow_types
from tvm_xengine.frontends.onnx.node import OnnxNode
from tvm_xengine.frontends.onnx.place import places_of
from tvm_xengine.frontends.onnx.plain import PlainModel, plain
from tvm_xengine.frontends.onnx.refusals import (
    VALUES_DECIDE_SHAPE,
    layer_name,
    require_fixed_shapes,
    require_known_operators,
    require_known_types,
)
from tvm_xengine.frontends.place import Place
from tvm_xengine.frontends.roles import Use

logger = logging.getLogger(__name__)


def load_model_file(path: Path) -> onnx.ModelProto:
    """The model in a file."""
    require_file(path)
    try:
        model = onnx.load(str(path), load_external_data=False)
        load_external_data(path, model)
    except UnsupportedModelError:
        raise
    except Exception as error:
        raise UnsupportedModelError(
            f"{path} is not an ONNX model: {str(error).strip() or type(error).__name__}"
        ) from error
    if not model.graph.node:
        raise UnsupportedModelError(f"{path} is not an ONNX model: it has no nodes")
    return model


def import_model(
    name: str,
    model: onnx.ModelProto,
    *,
    batch_size: int | None = None,
    train_norms: bool = True,
    initialise_seed: int | None = None,
) -> ForwardModel:
    """The forward model of an ONNX model, which is not changed.

    Parameters
    ----------
    batch_size, initialise_seed
        Those of `tvm_xengine.frontends.onnx.read.from_onnx`.
    train_norms
        Whether batch norms of a file that is exported for inference use the statistics of the batch,
        and dropouts drop elements, as a training step usually needs, or do what the file says.

    Raises
    ------
    UnsupportedModelError
        Names the node, its operator and why it cannot be imported.
    """
    prepared = onnx.ModelProto()
    prepared.CopyFrom(model)
    try:
        made = _read(name, prepared, batch_size, train_norms=train_norms)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{name}: {str(error).removeprefix(f'{name}: ')}") from error
    except MemoryError as error:
        raise UnsupportedModelError(
            f"{name}: a tensor of the graph does not fit in memory: {first_line(error)}"
        ) from error
    except Exception as error:  # onnx trusts a file to be what it says
        raise UnsupportedModelError(
            f"{name}: the graph contradicts itself: {first_line(error)}"
        ) from error
    for note in made.notes:
        logger.warning("%s: %s", name, note)
    return made if initialise_seed is None else initialised(made, initialise_seed)


def _read(
    name: str, model: onnx.ModelProto, batch_size: int | None, *, train_norms: bool
) -> ForwardModel:
    from_pytorch, kinds = model.producer_name == "pytorch", kinds_of(model)
    computed = computed_parameters(model.graph, kinds)
    given = plain(name, model, batch_size)
    try:
        return _of_plain(
            *(name, given, kinds, computed), from_pytorch=from_pytorch, train_norms=train_norms
        )
    except UnsupportedModelError as error:
        raise given.refusal(error) from error


def _of_plain(
    name: str,
    given: PlainModel,
    kinds: Mapping[str, Kind],
    computed: Mapping[str, tuple[str, ...]],
    *,
    from_pytorch: bool,
    train_norms: bool,
) -> ForwardModel:
    roles, told = state_roles(given.model.graph, kinds, computed, from_pytorch=from_pytorch)
    state = {role.name for role in roles if role.use is not Use.CONSTANT}
    model, narrow = _convertible(given.model, state)
    if given.contradiction:
        raise UnsupportedModelError(given.contradiction)
    held = [_held_note(tensor, kind) for tensor, kind in narrow.items()]
    asleep = modes.of_inference(model.graph) if train_norms else {}
    modes.set_modes(model.graph, train=bool(asleep))
    notes = [*given.notes, *told, *held, *([modes.told(asleep)] if asleep else [])]
    names = _rename(model.graph)
    values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    mod, places = _imported(model, {names[one] for one in state if one in names})
    origins = [replace(one, variable=names[one.name]) for one in roles if one.name in names]
    parameters = {role.variable for role in origins if role.is_parameter}
    found = assemble(name, mod, values, parameters, origins=origins, notes=notes)
    known = {names[one]: scale for one, scale in given.weight_scales.items() if one in names}
    return replace(found, places=places, weight_scales=known)


def _convertible(
    model: onnx.ModelProto, state: Collection[str]
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """The model in operators that have a converter, constants folded.

    Beside it, the inputs and outputs whose types are held in wider ones.
    """
    known = _known_operators()
    model = write_out_functions(model, known)
    write_constants_as_tensors(model.graph)
    fold_constants(model, state)
    require_known_operators(model, known)
    narrow = hold_narrow_types(model)
    require_known_types(model)
    write_padding(model)
    return model, narrow


def _held_note(tensor: str, kind: str) -> str:
    return f"{tensor} has the values of {kind} and is held as {HELD_AS[kind]}"


def _imported(
    model: onnx.ModelProto, state: Collection[str]
) -> tuple[tvm.IRModule, Mapping[str, Place]]:
    """The Relax module, and the places of its variables.

    Initialisers that are not in `state` are constants to converters.
    """
    importer = _Importer(
        {
            info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim]
            for info in model.graph.input
        },
        state,
        places_of(model.graph),
    )
    complaints = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(complaints):
            warnings.simplefilter("ignore")
            mod = importer.from_onnx(model.graph, opset_of(model))
    except Exception as error:
        reason = f"{importer.place} cannot be imported: {first_line(error)}"
        raise UnsupportedModelError(with_advice(reason, NODE_ADVICE)) from error
    require_fixed_shapes(mod["main"])
    return mod, importer.bb.places


def _rename(graph: onnx.GraphProto) -> dict[str, str]:
    """Rename inputs and initialisers to identifiers; returns the new names by the old ones."""
    names = UniqueNames()
    for node in graph.node:
        for made in node.output:
            names.fresh(made)
    renamed = {
        tensor.name: names.fresh(identifier(tensor.name))
        for tensor in [*graph.input, *graph.initializer]
        if tensor.name
    }
    for tensor in [*graph.input, *graph.initializer]:
        tensor.name = renamed.get(tensor.name, tensor.name)
    for node in graph.node:
        for position, read in enumerate(node.input):
            node.input[position] = renamed.get(read, read)
    for output in graph.output:
        output.name = renamed.get(output.name, output.name)
    return renamed


class _Importer(ONNXGraphImporter):  # type: ignore[misc]
    """TVM's importer, with bindings named after the nodes of the graph."""

    def __init__(
        self,
        shapes: dict[str, list[int]],
        state: Collection[str],
        places: Mapping[str, Place],
    ) -> None:
        # The shapes are given because TVM's importer reads an extent of 0 as one that is open.
        super().__init__(shapes, {}, keep_params_in_input=True, sanitize=False)
        self.bb = NamingBlockBuilder()
        self.place = "the graph"
        self._state = state
        self._places = places
        self._converters = converters()

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """Nothing: `require_known_operators` has looked, which knows our converters, too."""

    def _convert_operator(
        self, op_name: str, inputs: list[relax.Expr], attrs: dict[str, object], opset: int
    ) -> relax.Expr:
        custom = attrs["tvm_custom"]
        node = str(custom["name"]) if isinstance(custom, dict) else ""
        self.bb.layer = layer_name(node, op_name)
        self.bb.place = self._places.get(node, Place())
        self.place = f"{op_name} (in {self.bb.layer})"
        value = self._converted(op_name, inputs, attrs, opset)
        if value is None:
            value = super()._convert_operator(op_name, inputs, attrs, opset)
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self._bound(field) for field in value.fields])
        return self._bound(value)

    def _converted(
        self,
        op_name: str,
        inputs: list[relax.Expr],
        attrs: dict[str, object],
        opset: int,
    ) -> relax.Expr | None:
        """By our converter, to which what the file says is no parameter is a constant.

        None leaves the node to TVM's importer.
        """
        if op_name not in self._converters:
            return None
        known = [
            self._nodes,
            {k: v for k, v in self._params.items() if k not in self._state},
        ]
        read = [None if one is None else get_constant(one, known) for one in inputs]
        custom = attrs["tvm_custom"]
        count = int(custom["num_outputs"]) if isinstance(custom, dict) else 1
        value = self._converters[op_name](OnnxNode(self.bb, read, attrs, opset, count))
        if isinstance(value, relax.Tuple):
            return value.fields[0] if count == 1 else relax.Tuple(value.fields[:count])
        return value

    def _bound(self, value: relax.Expr) -> relax.Expr:
        if isinstance(value, relax.Call | relax.TupleGetItem):
            return self.bb.emit(value)
        return value


def _known_operators() -> frozenset[str]:
    """The operators that have a converter, here or in TVM."""
    known = {name for name, convert in _get_convert_map().items() if convert is not None}
    return frozenset(known | {"Constant", *converters()}) - VALUES_DECIDE_SHAPE.keys()
