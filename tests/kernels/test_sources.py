"""Where the kernels of a device come from, and sources that other packages bring."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from tests.kernels.onednn.onednn_twins import NATIVE, kernel_of, needs_onednn
from tests.kernels.onednn.test_devices import batch_for, built, lowered, problem_of
from tests.kernels.onednn.test_onednn_rows_and_windows import named
from tvm_xengine.compiler.plan import plan_keep_all as keep_all
from tvm_xengine.cost_models.prediction.predict import predict_costs
from tvm_xengine.errors import InvalidPlatformError, LibraryError
from tvm_xengine.frontends.load import load_model
from tvm_xengine.kernels.kernel_source import KernelSource, LibrarySource
from tvm_xengine.kernels.sources import (
    SOURCES,
    available_sources,
    kernel_source,
    library_source,
    prepare_from,
    source_names,
)
from tvm_xengine.kernels.te.norms.batch_norm import batch_norm_forward
from tvm_xengine.kernels.te.pooling import max_pool_backward, max_pool_forward
from tvm_xengine.scheduling.problem import CostSource
from tvm_xengine.training.build import build_training_step

TOY = '''
"""Linear maps that check their context; every other kernel is left to the next source."""

from dataclasses import replace

import numpy as np
import tvm
from tvm import tirx

from tvm_xengine.kernels.device_kernel import kernel_symbol, prepare_kernel
from tvm_xengine.kernels.identity import kernel_key
from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.library.parts import kernel_parts

made = []


class Context:
    words = np.array([42], dtype=np.int64)


class ToySource:
    name = "toy"

    def why_not(self, target):
        return None if target.kind.name == "llvm" else "it has kernels of processors only"

    def prepare(self, func, target, name, tuned):
        whole = kernel_parts(func)
        if whole is None or not any(part.name.startswith("linear") for part in whole.parts):
            return None
        kernel = prepare_kernel(func, target, name)
        shapes = tuple(spec.shape for spec in (*kernel.inputs, *kernel.outputs))
        call = LibraryCall("linear", (), shapes, threads=2, source="toy")
        context = tirx.decl_buffer((1,), "int64", name="context")
        lowered = kernel.func
        is_ours = tirx.AssertStmt(
            tirx.BufferLoad(context, [tirx.const(0, "int64")]) == tirx.const(42, "int64"),
            tvm.ir.StringImm("RuntimeError"),
            [tvm.ir.StringImm("another context")],
        )
        func = tirx.PrimFunc([*lowered.params, context], tirx.SeqStmt([is_ours, lowered.body]))
        key = kernel_key(func, target, toy="1.0")
        func = func.with_attrs(dict(lowered.attrs)).with_attr("global_symbol", kernel_symbol(key))
        return replace(kernel, func=func, symbol=kernel_symbol(key), key=key, library=call)

    def load(self):
        pass

    def context(self, call):
        made.append(call)
        return Context()


class Silent:
    name = "silent"
'''

METADATA = "Metadata-Version: 2.1\nName: toy-kernels\nVersion: 1.0\n"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that is installed for the duration of a test."""
    (tmp_path / "toy_kernels.py").write_text(textwrap.dedent(TOY))
    installed = tmp_path / "toy_kernels-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(METADATA)
    (installed / "entry_points.txt").write_text(
        "[tvm_xengine.kernel_sources]\ntoy = toy_kernels:ToySource\n"
        "silent = toy_kernels:Silent\nlost = toy_kernels:Nowhere\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("toy_kernels", None)


def test_every_source_of_the_table_keeps_the_protocol() -> None:
    for name in SOURCES:
        source = kernel_source(name)
        assert isinstance(source, KernelSource) and source.name == name
    assert isinstance(kernel_source("onednn"), LibrarySource)
    assert not isinstance(kernel_source("tir"), LibrarySource)


@pytest.mark.slow
@pytest.mark.usefixtures("toy")
def test_a_source_of_another_package_computes_in_a_step() -> None:
    training = build_training_step(load_model("lenet", batch_size=4))
    assert "toy" in source_names()
    steps = [lowered(training, kernels) for kernels in (("toy", "tir"), ("tir",))]
    kernels = [k for k in steps[0].kernels.values() if k.source == "toy"]
    assert kernels and all(k.library is not None for k in kernels)
    costs = predict_costs(kernels, None)
    assert {cost.source for cost in costs.values()} == {CostSource.ROOFLINE}
    states = []
    for step in steps:
        executable = built(step, keep_all(problem_of(step), step.platform.home), training)
        executable.step(batch_for(executable, 0))
        states.append(executable.read_state())
    assert sys.modules["toy_kernels"].made
    assert all(np.array_equal(states[0][name], states[1][name]) for name in states[1])


def test_a_source_is_gone_with_its_package() -> None:
    assert source_names() == tuple(SOURCES)
    with pytest.raises(InvalidPlatformError, match="toy"):
        kernel_source("toy")
    with pytest.raises(LibraryError, match="toy"):
        library_source("toy")


@pytest.mark.usefixtures("toy")
def test_auto_takes_no_source_that_nobody_named() -> None:
    assert "toy" not in available_sources(("auto",), NATIVE, "cpu")


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("name", ["silent", "lost"])
def test_what_is_no_source_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidPlatformError, match=f"kernel source '{name}': expected"):
        kernel_source(name)


@needs_onednn
def test_a_library_has_what_generated_code_does_not_compute_as_fast() -> None:
    side_by_side = {"pool_size": (2, 2), "strides": (2, 2), "padding": (0,) * 4, "dilation": (1, 1)}
    overlapping = {**side_by_side, "pool_size": (3, 3)}
    norm = named(batch_norm_forward, [(2, 8, 8, 8), (8,), (8,)], epsilon=1e-5, relu=False)
    pool = named(max_pool_forward, [(2, 8, 8, 8)], **side_by_side, output_shape=(2, 8, 4, 4))
    made, types = [(2, 8, 4, 4)] * 2, ["float32", "int32"]
    over = named(max_pool_backward, made, types, **overlapping, data_shape=(2, 8, 9, 9))
    tanh = kernel_of(lambda e, p: e.bind(relax.op.tanh(p[0]), "made"), [(64,)])
    for sources, expected in (
        (("onednn", "tir"), ["tir", "tir", "onednn", "tir"]),
        (("auto",), ["tir", "tir", "onednn", "tir"]),
        (("tir",), ["tir"] * 4),
    ):
        here = available_sources(sources, NATIVE, "cpu")
        kernels = [prepare_from(here, f, NATIVE, "kernel") for f in (norm, pool, over, tanh)]
        assert [kernel.source for kernel in kernels] == expected
