"""A model with its frozen layers in int8."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from tvm import relax

from tvm_xengine.checks.names import some
from tvm_xengine.errors import NoInt8LayerError, UnsupportedModelError
from tvm_xengine.frontends.assemble import with_main
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.quantization.affine import HIGHEST, Affine, Filters, Whole
from tvm_xengine.quantization.calibrate import calibrated
from tvm_xengine.quantization.constant_values import constant_values, moved_along
from tvm_xengine.quantization.layers import (
    CONVOLUTIONS,
    DROPOUT,
    MATMUL,
    SAME_VALUES,
    Frozen,
    Layer,
    read_product,
    with_followers,
)
from tvm_xengine.quantization.observe import observer
from tvm_xengine.quantization.pools import MAX_POOLS
from tvm_xengine.quantization.qdq import Quantized, read_pairs
from tvm_xengine.quantization.rewrite import SUMS, Choice, Rewriter
from tvm_xengine.quantization.unary import is_unary, tables
from tvm_xengine.relax_ir.forward_ops import ForwardOp, ForwardOps, read_forward_ops
from tvm_xengine.relax_ir.integer_ops import DEQUANTIZE
from tvm_xengine.relax_ir.matrix_ops import VALUE_AND_CHANGE
from tvm_xengine.relax_ir.own_ops import options_of
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.training.differentiate import active_variables

_DERIVED = (*SAME_VALUES, *MAX_POOLS, DROPOUT)
"""Operators whose result has the scale of their operand."""


def with_int8(
    model: ForwardModel,
    batches: Sequence[Mapping[str, Array]] | None = None,
    percentile: float = 100.0,
    *,
    behind: bool = False,
) -> ForwardModel:
    """`model` with the layers in int8 that no gradient flows through; what is trained stays as it is.

    Norms and dropout of these layers are in inference mode. The notes of the model say which layers are
    int8, and of the other frozen ones why not. Pairs of quantize and dequantize go in what is trained, too.

    Parameters
    ----------
    batches
        Inputs of the model by name, each a batch of its size, that scales are calibrated on; None takes the
        scales that the model brings along.
    percentile
        Share of the elements that a calibrated range holds, in percent.
    behind
        Whether frozen layers that gradients flow through, which compute in float32, keep their weights
        in int8, too.

    Raises
    ------
    InvalidDataError
        If `batches` is empty.
    NoInt8LayerError
        If no layer can be int8; it says why.
    UnsupportedModelError
        If there are neither batches nor scales.
    """
    quantized = _pairs(model)
    given = quantized.affines
    if batches is None and not given:
        raise UnsupportedModelError(
            "the model has no scales of its own (QuantizeLinear to 8 bits with constant scales); give samples"
            " to calibrate its frozen layers with"
        )
    frozen = _frozen(model, quantized.source)
    layers, reasons = _layers(frozen, () if batches is not None else given)
    stored = _stored(frozen, reasons) if behind else {}
    if not stored and not any(layer.filters is not None for layer in layers.values()):
        raise NoInt8LayerError(f"no frozen layer can be int8{_because(reasons)}")
    if batches is not None:
        given = _calibrated(model, frozen, layers, batches, percentile)
    affines = _derived(frozen, given)
    pairs = quantized.pairs if batches is None else frozenset()
    made = Rewriter(Choice(frozen, layers, affines, _tables(frozen, affines), stored, pairs)).run()
    products = [layer.name for layer in made.layers if layer.filters is not None]
    for layer in layers.values():
        if layer.filters is not None and layer.name not in products:
            reasons[layer.name] = "there is no scale for its data or its result"
    if not products and not stored:
        raise NoInt8LayerError(f"no frozen layer can be int8{_because(reasons)}")
    notes = []
    if products:
        layers_are = "layer is" if len(products) == 1 else "layers are"
        notes.append(f"{len(products)} frozen {layers_are} int8: {some(products)}")
    anew = [one.name for one in made.layers if one.filters and one.filters.scales is None]
    if anew and batches is None:
        notes.append(
            "their weights in the file are not int8 without zero points and with a scale for each output"
            f" channel, and are rounded to such numbers: {some(anew)}"
        )
    if stored:
        names = some([op.name for op in stored])
        notes.append(f"frozen, with weights in int8 and sums in float32: {names}")
    if reasons:
        notes.append(f"frozen, and in float32{_because(reasons)}")
    readers = read_forward_ops(made.main).live().consumers()
    left = {param.name for param in made.main.params if param in readers}
    gone = model.parameters.keys() - left
    return with_main(model, made.main, constants=made.constants, replaced=gone, notes=notes)


def _because(reasons: Mapping[str, str]) -> str:
    return "".join(
        f"{':' if not k else ';'} {name} ({reason})"
        for k, (name, reason) in enumerate(reasons.items())
    )


def _pairs(model: ForwardModel) -> Quantized:
    source, trained = read_forward_ops(model.main).live(), set(model.trained)
    learning = [param for param in source.params if param.name in trained]
    return read_pairs(source, source.params[: len(model.input_names)], learning)


def _frozen(model: ForwardModel, source: ForwardOps) -> Frozen:
    trained = set(model.trained)
    written = {param for param, _ in source.writes}
    changing = [p for p in source.params if p.name in trained or p in written]
    values = constant_values(model, source, changing)
    grids = {
        **_whole_products(source, values),
        **{
            var: np.broadcast_to(model.weight_scales[var.name], value.shape)
            for var, value in values.items()
            if var.name in model.weight_scales and var in source.params
        },
    }
    return Frozen(source, values, active_variables(source, changing), moved_along(source, grids))


def _whole_products(
    source: ForwardOps, values: Mapping[relax.Var, Array]
) -> dict[relax.Var, Array]:
    """The scale of each element of constants that are numbers of int8 times scales."""
    grids: dict[relax.Var, Array] = {}
    for op in source.ops:
        (made, *_) = op.results
        if made not in values:
            continue
        if op.op == DEQUANTIZE:
            grids[made] = np.full(values[made].shape, options_of(op.call)[0], "float32")
        elif op.op == VALUE_AND_CHANGE and op.operands[0] in grids:
            grids[made] = grids[op.operands[0]]
        elif op.op == "relax.multiply":
            for whole, scale in (op.operands, op.operands[::-1]):
                if whole in values and scale in values and _is_int8(values[whole]):
                    grids[made] = np.broadcast_to(values[scale], values[made].shape)
    return grids


def _is_int8(values: Array) -> bool:
    return bool(((np.rint(values) == values) & (np.abs(values) <= HIGHEST)).all())


def _layers(
    frozen: Frozen, ends: Collection[relax.Var]
) -> tuple[dict[ForwardOp, Layer], dict[str, str]]:
    """Products and sums that may be integer, and of the other frozen products the reasons."""
    readers = frozen.readers()
    layers: dict[ForwardOp, Layer] = {}
    reasons: dict[str, str] = {}
    absorbed: set[ForwardOp] = set()
    for op in frozen.source.ops:
        if op in absorbed or not frozen.computed(op):
            continue
        if any(one in frozen.active for one in op.operands):
            if op.op in (*CONVOLUTIONS, MATMUL) and op.operands[1] not in frozen.active:
                reasons[op.name] = "a trained layer lies before it"
            continue
        layer = read_product(frozen, op)
        if isinstance(layer, str):
            reasons[op.name] = layer
            continue
        if layer is None and op.op in SUMS and len(frozen.computed(op)) == 2:
            layer = Layer(op)
        if layer is not None:
            layers[op] = with_followers(frozen, layer, readers, ends)
            absorbed.update(layers[op].absorbed)
    return layers, reasons


def _stored(frozen: Frozen, reasons: dict[str, str]) -> dict[ForwardOp, Filters]:
    """Weights of the frozen products that gradients flow through, which have no reasons any more.

    Those of which a scale for each channel would take as much stay.
    """
    found = {}
    for op in frozen.source.ops:
        if op.operands and op.operands[0] in frozen.active and op.operands[1:2] != ():
            layer = None if op.operands[1] in frozen.active else read_product(frozen, op)
            filters = layer.filters if isinstance(layer, Layer) else None
            if filters is not None and len(frozen.computed(op)) == 1 and _is_worthwhile(filters):
                found[op] = filters
                reasons.pop(op.name, None)
    return found


def _is_worthwhile(filters: Filters) -> bool:
    channels = len(filters.weight)
    return filters.weight.nbytes > filters.weight.size + 4 * channels


def _calibrated(
    model: ForwardModel,
    frozen: Frozen,
    layers: Mapping[ForwardOp, Layer],
    batches: Sequence[Mapping[str, Array]],
    percentile: float,
) -> dict[relax.Var, Affine]:
    inside = {
        result
        for layer in layers.values()
        for op in (layer.op, *layer.absorbed)
        for result in op.results
        if result is not layer.result
    }
    wanted = [
        op.results[0]
        for op in frozen.source.ops
        if op.op not in _DERIVED
        and op.results[0] not in inside
        and op.results[0] not in frozen.active
        and frozen.computed(op)
        and str(op.results[0].ty.dtype) == "float32"
    ]
    inputs = [
        param
        for param in frozen.source.params[: len(model.input_names)]
        if str(param.ty.dtype) == "float32"
    ]
    observe = observer(model, frozen.source, wanted)
    return calibrated(observe, batches, inputs, percentile)


def _derived(frozen: Frozen, affines: Mapping[relax.Var, Affine]) -> dict[relax.Var, Affine]:
    """The scales, and those of what has the scale of its operand."""
    known = dict(affines)
    for op in frozen.source.ops:
        if op.op in _DERIVED and op.operands[0] in known:
            known.setdefault(op.results[0], known[op.operands[0]])
    return known


def _tables(frozen: Frozen, affines: Mapping[relax.Var, Affine]) -> dict[ForwardOp, Whole]:
    pairs = {}
    for op in frozen.source.ops:
        if op.results[0] in frozen.active or not is_unary(frozen, op):
            continue
        (operand,) = frozen.computed(op)
        if operand in affines and op.results[0] in affines:
            pairs[op] = affines[operand], affines[op.results[0]]
    return tables(frozen, pairs)
