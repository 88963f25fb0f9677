"""Models that cannot be trained are refused with the names of all that stands in the way."""

import logging
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, topi

from tvm_xengine.errors import MissingGradientError, UnsupportedModelError, XEngineError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.relax import from_relax
from tvm_xengine.training.build import build_step_by_recipe, build_training_module
from tvm_xengine.training.losses import MEAN_SQUARED_ERROR, FunctionLoss
from tvm_xengine.training.recipe import Recipe

op = relax.op
RECIPE = Recipe(loss=MEAN_SQUARED_ERROR)
Body = Callable[[relax.BlockBuilder, relax.Var, relax.Var], relax.Expr]


def _function(body: Body, *, x: str = "float32", shape: object = (2, 4)) -> relax.Function:
    """``main(x, w)``, both of the same shape."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var("x", relax.TensorType(shape, x)),
        relax.Var("w", relax.TensorType(shape, "float32")),
    ]
    with builder.function("main", params=params):
        with builder.dataflow():
            output = builder.emit_output(body(builder, *params))
        builder.emit_func_output(output)
    return builder.get()["main"]


def _model(body: Body, **others: np.ndarray) -> ForwardModel:
    mod = _module(_function(body))
    return from_relax(mod, {"w": np.ones((2, 4), "float32"), **others})


def _module(function: relax.Function) -> tvm.IRModule:
    return tvm.IRModule({"main": function})


def _message(error: type[XEngineError], body: Body) -> str:
    with pytest.raises(error) as caught:
        build_step_by_recipe(_model(body), RECIPE)
    return str(caught.value)


def test_all_ops_without_gradient_are_named_with_their_layers() -> None:
    def body(builder: relax.BlockBuilder, x: relax.Var, w: relax.Var) -> relax.Expr:
        first = builder.emit(op.multiply(x, w), "scaled")
        grid = builder.emit(op.reshape(first, (1, 2, 2, 2)), "grid")
        image = builder.emit(op.reshape(x, (1, 2, 2, 2)), "image")
        warped = builder.emit(op.image.grid_sample(image, grid), "warped")
        rows = relax.const(np.zeros((1, 5), "float32"))
        pooled = builder.emit(op.vision.roi_pool(warped, rows, (2, 2), 1.0), "pooled")
        return op.reshape(pooled, (2, 4))

    message = _message(MissingGradientError, body)
    assert "2 ops of the model have no gradient" in message
    assert "relax.image.grid_sample (in warped)" in message
    assert "relax.vision.roi_pool (in pooled)" in message


def test_ops_whose_attributes_no_rule_covers_are_named_together() -> None:
    indices = relax.const(np.zeros((2, 4), "int64"))

    def body(builder: relax.BlockBuilder, x: relax.Var, w: relax.Var) -> relax.Expr:
        first = builder.emit(op.scatter_elements(x, indices, w, 1, "mul"), "multiplied")
        last = builder.emit(op.scatter_elements(first, indices, w, 1, "max"), "greatest")
        return op.negative(last)

    message = _message(UnsupportedModelError, body)
    assert "multiplied: relax.scatter_elements with the reduction 'mul'" in message
    assert "greatest: relax.scatter_elements with the reduction 'max'" in message


def test_ops_that_cut_the_output_off_are_named() -> None:
    def body(builder: relax.BlockBuilder, x: relax.Var, w: relax.Var) -> relax.Expr:
        rounded = builder.emit(op.round(w), "rounded")
        signs = builder.emit(op.sign(w), "signs")
        return op.multiply(x, op.add(rounded, signs))

    message = _message(MissingGradientError, body)
    assert "only through ops without derivative" in message
    assert "relax.round (in rounded), relax.sign (in signs)" in message


def test_kernels_inside_the_model_are_named() -> None:
    def body(builder: relax.BlockBuilder, x: relax.Var, w: relax.Var) -> relax.Expr:
        product = builder.emit(op.multiply(x, w))
        tiled = builder.emit_te(topi.tile, product, (2, 1), primfunc_name_hint="tiled")
        return op.strided_slice(tiled, [0], [0], [2])

    message = _message(MissingGradientError, body)
    assert "1 ops of the model are kernels" in message
    assert "tiled" in message


def test_dynamic_shapes_are_all_named() -> None:
    batch = tvm.tirx.Var("batch", "int64")
    function = _function(lambda _builder, x, w: op.multiply(x, w), shape=(batch, 4))
    with pytest.raises(UnsupportedModelError, match=r"dynamic shapes \(x: .*batch.*, w: "):
        build_training_module(function, 1, ["w"], RECIPE)


def test_results_of_unknown_shape_are_named() -> None:
    def body(builder: relax.BlockBuilder, x: relax.Var, w: relax.Var) -> relax.Expr:
        found = builder.emit(op.nonzero(op.astype(x, "int32")), "found")
        count = op.sum(op.astype(found, "float32"))
        return op.multiply(w, count)

    message = _message(UnsupportedModelError, body)
    assert "relax.nonzero (in found)" in message


def test_an_output_of_integers_is_refused() -> None:
    message = _message(UnsupportedModelError, lambda _b, x, w: op.argmax(op.multiply(x, w), 1))
    assert "a loss needs a floating-point tensor" in message


def test_several_outputs_are_counted_and_the_way_out_is_named() -> None:
    function = _function(lambda _b, x, w: relax.Tuple([op.add(x, w), op.multiply(x, w)]))
    with pytest.raises(UnsupportedModelError, match=r"returns 2 tensors.*with output= in Python"):
        build_training_module(function, 1, ["w"], RECIPE)


def test_a_parameter_that_nobody_reads_is_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    builder = relax.BlockBuilder()
    x, w, spare = (relax.Var(n, relax.TensorType((2, 4), "float32")) for n in ("x", "w", "spare"))
    with builder.function("main", params=[x, w, spare]):
        with builder.dataflow():
            unread = builder.emit(op.add(spare, spare))
            del unread
            output = builder.emit_output(op.multiply(x, w))
        builder.emit_func_output(output)
    with caplog.at_level(logging.WARNING):
        mod = build_training_module(builder.get()["main"], 1, ["w", "spare"], RECIPE)
    assert "spare" in caplog.text
    names = [param.name for param in mod["train_step"].params]
    assert "spare" not in names and "w" in names


def test_a_trained_parameter_of_a_short_type_is_named() -> None:
    short = relax.TensorType((2, 3), "float16")
    x, w = relax.Var("x", short), relax.Var("w", short)
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            output = builder.emit_output(op.multiply(x, w))
        builder.emit_func_output(output)
    with pytest.raises(UnsupportedModelError, match="found float16 in w; store them as float32"):
        build_training_module(builder.get()["main"], 1, ["w"], RECIPE)


def test_nothing_left_to_train_is_an_error() -> None:
    function = _function(lambda _b, x, w: op.multiply(x, w))
    with pytest.raises(UnsupportedModelError, match="nothing to train"):
        build_training_module(function, 1, [], RECIPE)


def test_a_loss_that_ignores_the_prediction_is_refused() -> None:
    builder = relax.BlockBuilder()
    params = [relax.Var(name, relax.TensorType((2, 4), "float32")) for name in "pt"]
    with builder.function("loss", params=params):
        with builder.dataflow():
            output = builder.emit_output(op.sum(params[1]))
        builder.emit_func_output(output)
    recipe = Recipe(loss=FunctionLoss(builder.get()["loss"]))
    with pytest.raises(UnsupportedModelError, match="does not depend on the prediction"):
        build_step_by_recipe(_model(lambda _b, x, w: op.multiply(x, w)), recipe)


def test_a_parameter_returned_as_it_is_can_be_trained() -> None:
    model = _model(lambda _b, x, w: op.add(w, op.multiply(x, relax.const(0.0, "float32"))))
    step = build_step_by_recipe(model, RECIPE)
    assert step.updated_names == ("w", "w_velocity")
