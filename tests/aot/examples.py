"""The networks that packages are made of in tests and benchmarks."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pytest
from tvm import relax

from tvm_xengine.aot.check.emulation import missing_tool
from tvm_xengine.aot.entries import chosen_entries
from tvm_xengine.aot.export import ExportReport, export_step
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.plan.kernels import Backend, Optimize
from tvm_xengine.aot.plan.regions import parse_regions
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.compiler.lean.short_storage import ShortStorage
from tvm_xengine.frontends import zoo
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.zoo.layers import Layers, build_network
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.solvers.result import Limits
from tvm_xengine.training.adam import Adam
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.optimizer import Optimizer
from tvm_xengine.training.optimizers import SGD
from tvm_xengine.training.recipe import Recipe

OPTIMIZERS: Mapping[str, Optimizer] = {
    "sgd": SGD(),
    "momentum": SGD(momentum=0.9),
    "adam": Adam(),
}


def tiny_mlp(batch: int = 2) -> ForwardModel:
    """16-12-4: small enough for a Cortex-M0 with 16 KiB of memory."""

    def body(layers: Layers) -> relax.Expr:
        x = layers.input("x", (batch, 16))
        x = layers.relu("relu", layers.linear("fc1", x, 12))
        return layers.linear("fc2", x, 4)

    return build_network("tiny_mlp", 0, body)


def facts_mlp(batch: int = 8) -> ForwardModel:
    """16-32-10, the perceptron that peers were measured with."""

    def body(layers: Layers) -> relax.Expr:
        x = layers.input("x", (batch, 16))
        x = layers.relu("relu", layers.linear("fc1", x, 32))
        return layers.linear("fc2", x, 10)

    return build_network("facts_mlp", 0, body)


def attention(batch: int = 2, length: int = 8, width: int = 16) -> ForwardModel:
    """One attention block with residual, layer norm and a classifier."""

    def body(layers: Layers) -> relax.Expr:
        x = layers.input("x", (batch, length, width))
        query, key, value = (layers.linear(name, x, width) for name in ("query", "key", "value"))
        turned = layers.emit("turned", relax.op.permute_dims(key, [0, 2, 1]))
        scores = layers.emit("scores", relax.op.matmul(query, turned))
        scale = relax.const(width**-0.5, "float32")
        scaled = layers.emit("scaled", relax.op.multiply(scores, scale))
        weights = layers.emit("weights", relax.op.nn.softmax(scaled, axis=-1))
        mixed = layers.emit("mixed", relax.op.matmul(weights, value))
        summed = layers.add("sum", x, layers.linear("out", mixed, width))
        normed = layers.layer_norm("norm", summed)
        bent = layers.emit("bent", relax.op.tanh(normed))
        return layers.linear("fc", layers.flatten("flatten", bent), 5)

    return build_network("attention", 0, body)


MODELS: Mapping[str, Callable[[], ForwardModel]] = {
    "tiny_mlp": tiny_mlp,
    "lenet": lambda: zoo.build("lenet", batch_size=2),
    "resnet8": lambda: zoo.build("resnet8", batch_size=1),
    "ds_cnn": lambda: zoo.build("ds_cnn", batch_size=1),
    "attention": attention,
}


def export(
    model: ForwardModel,
    directory: Path,
    *,
    target: str = "host",
    regions: str = "sram=4MiB",
    optimizer: str = "sgd",
    trainable: Collection[str] | None = None,
    backend: str = "c",
    optimize: str = "speed",
    time_limit_s: float = 10.0,
    storage: ShortStorage | None = None,
    entries: Collection[str] = (),
    layout: str = "cmake",
    recipe: Recipe | None = None,
    selftest_steps: int = 20,
    name: str | None = None,
) -> ExportReport:
    """The package of `model` in `directory`."""
    recipe = recipe or Recipe(optimizer=OPTIMIZERS[optimizer], residuals_apart=optimize == "size")
    training = build_step_by_recipe(model, recipe, trainable=trainable)
    options = ExportOptions(
        target=target,
        regions=parse_regions(regions),
        backend=Backend(backend),
        optimize=Optimize(optimize),
        plan=PlanOptions(limits=Limits(time_limit_s)),
        storage=storage,
        entries=chosen_entries(tuple(entries)),
        recipe=recipe,
        layout=layout,
        selftest_steps=selftest_steps,
        name=name,
    )
    return export_step(model, training, options, directory)


def need_compiler(name: str) -> None:
    """Skip, visibly, where a compiler of this machine is missing."""
    if shutil.which(name) is None:
        pytest.skip(f"needs the Debian package {name}")


def need_tools(target: str) -> None:
    """Skip, visibly, where building or running for `target` is not possible."""
    if missing := missing_tool(embedded_target(target)):
        pytest.skip(f"needs the Debian packages {missing}")
