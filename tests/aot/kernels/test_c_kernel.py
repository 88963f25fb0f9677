"""Kernels in C compute, bit by bit, what LLVM's code computes."""

import ctypes
import itertools
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import ir, relax, te, tirx
from tvm.target import Target

from tests.aot.examples import MODELS, need_tools
from tests.shares import share
from tvm_xengine.aot.emit_c.kernel import CKernel, c_kernel
from tvm_xengine.aot.emit_c.math_functions import helper_definitions
from tvm_xengine.aot.plan.kernels import Optimize, lower_for_target
from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.zoo.layers import Layers, build_network
from tvm_xengine.kernels.device_kernel import DeviceKernel, prepare_kernel
from tvm_xengine.kernels.lower.transcendentals.expand import written_out
from tvm_xengine.kernels.store.kernel_store import load_kernels
from tvm_xengine.relax_ir.signature import TRAIN_STEP
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.losses import MEAN_SQUARED_ERROR
from tvm_xengine.training.optimizers import SGD

C = Target({"kind": "c"})
X86 = Target({"kind": "llvm", "mcpu": "x86-64"})
X86_ALONE = X86.with_host(X86)


def compiled(kernels: list[CKernel], folder: Path) -> ctypes.CDLL:
    used = set[str]().union(*(kernel.helpers for kernel in kernels))
    text = [
        "#include <math.h>\n#include <stdint.h>\n#include <string.h>",
        *helper_definitions(used),
        *(f"{kernel.prototype};\n{kernel.source}" for kernel in kernels),
    ]
    (folder / "kernels.c").write_text("\n".join(text))
    flags = [
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fno-strict-aliasing",
        "-shared",
        "-fPIC",
    ]
    command = ["gcc", *flags, str(folder / "kernels.c"), "-o", str(folder / "k.so"), "-lm"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "k.so"))


Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def positive(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of which kernels make no NaN."""
    return np.abs(random.normal(size=shape))


def differences(kernels: list[DeviceKernel], folder: Path, draw: Draw = positive) -> list[str]:
    """Names of the kernels of target c whose C and LLVM code differ in any bit, of NaN apart."""
    written = [c_kernel(kernel, f"t_{at}") for at, kernel in enumerate(kernels)]
    library = compiled(written, folder)
    ours = [
        replace(kernel, target=X86, func=without_calls(kernel.func).with_attr("target", X86_ALONE))
        for kernel in kernels
    ]
    modules = load_kernels(ours, None)
    return [
        kernel.name
        for kernel, text in zip(kernels, written, strict=True)
        if not same_bits(library, modules[kernel.symbol], kernel, text, draw)
    ]


def without_calls(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel with the functions written out that it calls in C."""

    def inlined(call: ir.Call) -> ir.Expr:
        is_extern = call.op.same_as(ir.Op.get("tirx.call_pure_extern"))
        written = written_out(call.args[0].value) if is_extern else None
        if written is None:
            return call
        x, body = written
        return tirx.Let(x, call.args[1], tvm_ffi.structural_map(body, (ir.Call, inlined)))

    return func.with_body(tvm_ffi.structural_map(func.body, (ir.Call, inlined)))


def same_bits(
    library: ctypes.CDLL,
    module: tvm.runtime.Module,
    kernel: DeviceKernel,
    text: CKernel,
    draw: Draw,
) -> bool:
    random = np.random.default_rng(0)

    def drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray:
        if dtype.startswith("float"):
            return np.asarray(draw(random, shape), dtype)
        return np.asarray(random.integers(0, 3, size=shape), dtype)

    inputs = [drawn(spec.shape, spec.dtype) for spec in kernel.inputs]
    outputs = [np.zeros(spec.shape, spec.dtype) for spec in kernel.outputs]
    scratch = [np.full(kernel.workspace_bytes, 0xA5, "uint8")] if kernel.workspace_bytes else []
    theirs = [tvm.runtime.tensor(array) for array in (*inputs, *outputs, *scratch)]
    for pair in kernel.inplace:
        outputs[pair.output] = inputs[pair.input]
        theirs[len(inputs) + pair.output] = theirs[pair.input]
    mine = [*inputs, *outputs, *scratch]
    pointers = [mine[at].ctypes.data_as(ctypes.c_void_p) for at in text.arguments]
    getattr(library, text.name)(*pointers)
    module[kernel.symbol](*theirs)
    found = theirs[len(inputs) : len(inputs) + len(outputs)]
    pairs = zip(outputs, found, strict=True)
    return all(_bits(ours) == _bits(other.numpy()) for ours, other in pairs)


def _bits(values: np.ndarray) -> bytes:
    """The bytes of numbers; every NaN has the same ones."""
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), np.nan, values).astype(values.dtype)
    return values.tobytes()


def strided() -> ForwardModel:
    """Data gradients in four phases, whose panels share the workspace one after the other."""

    def body(layers: Layers) -> relax.Expr:
        x = layers.conv("conv1", layers.input("x", (1, 3, 16, 16)), 16, 3, padding=1)
        x = layers.relu("relu", layers.conv("conv2", x, 24, 3, stride=2, padding=1))
        return layers.linear("fc", layers.flatten("flat", x), 4)

    return build_network("strided", 0, body)


def dropped() -> ForwardModel:
    """Dropouts in a row, which fuse with each other, with a product and with a condition."""

    def body(layers: Layers) -> relax.Expr:
        x = layers.dropout("drop1", layers.input("x", (3, 14)), 0.25)
        x = layers.linear("fc1", layers.dropout("drop2", x, 0.5), 20)
        x = layers.dropout("drop4", layers.dropout("drop3", x, 0.25), 0.5)
        return layers.linear("fc2", layers.relu("relu", x), 4)

    return build_network("dropped", 0, body)


QUICK = (("attention", Optimize.SPEED), ("dropped", Optimize.SPEED), ("strided", Optimize.SIZE))
NETWORKS = ("attention", "dropped", "strided", "ds_cnn", "lenet", "resnet8")


@pytest.mark.parametrize(
    ("network", "optimize"),
    share(itertools.product(NETWORKS, Optimize), QUICK),
)
def test_every_kernel_of_a_training_step_computes_the_same_bits(
    network: str, optimize: Optimize, tmp_path: Path
) -> None:
    need_tools("host")
    model = {**MODELS, "strided": strided, "dropped": dropped}[network]()
    training = build_training_step(model, optimizer=SGD())
    platform = Platform((Device("cpu", "c"),), alignment_bytes=8)
    step = lower_for_target(training.mod, platform, C, optimize, TRAIN_STEP)
    kernels = list({kernel.symbol: kernel for kernel in step.kernels.values()}.values())
    assert differences(kernels, tmp_path) == []


def test_a_sum_over_all_axes_starts_before_its_loops(tmp_path: Path) -> None:
    """Compilers warn of a sum that may not have been started, and warnings are errors here."""
    need_tools("host")
    training = build_training_step(dropped(), loss=MEAN_SQUARED_ERROR, optimizer=SGD())
    platform = Platform((Device("cpu", "c"),), alignment_bytes=8)
    step = lower_for_target(training.mod, platform, C, Optimize.SIZE, TRAIN_STEP)
    (loss,) = [k for k in step.kernels.values() if k.name == "mean_squared_error_forward"]
    assert "if (" not in c_kernel(loss, "loss").source
    assert differences([loss], tmp_path) == []


def elementwise(
    *dtypes: str, of: Callable[..., tirx.Expr], shape: tuple[int, ...] = (37,)
) -> tirx.PrimFunc:
    inputs = [te.placeholder(shape, dtype, name=f"a{at}") for at, dtype in enumerate(dtypes)]
    made = te.compute(shape, lambda *i: of(*(x(*i) for x in inputs)), name="made")
    return te.create_prim_func([*inputs, made], index_dtype_override="int64")


def test_a_condition_has_no_second_pair_of_parentheses() -> None:
    """Clang asks of `if ((a == b))` whether `=` was meant."""

    def chosen(a: tirx.Expr) -> tirx.Expr:
        three, rest = tirx.const(3, "int32"), tirx.floormod(a, tirx.const(5, "int32"))
        return tirx.if_then_else(a == three, tirx.Let(x := tirx.Var("x", "int32"), rest, x * x), a)

    func = elementwise("int32", of=chosen)
    source = c_kernel(prepare_kernel(func, C), "k").source
    assert "== 3LL) {" in source


EXPRESSIONS = {
    "constant that needs nine digits": (
        ["float32"],
        lambda a: a * tirx.const(1.0000005, "float32"),
    ),
    "double constant": (["float64"], lambda a: a + tirx.const(0.12345678901234568, "float64")),
    "infinity": (["float32"], lambda a: tirx.max(a, tirx.const(float("-inf"), "float32"))),
    "half": (["float16", "float16"], lambda a, b: a * b + a),
    "half to float": (["float16"], lambda a: a.astype("float32") * tirx.const(3.0, "float32")),
    "float to half": (["float32"], lambda a: (a * a).astype("float16")),
    "int8": (["int8", "int8"], lambda a, b: a * b + tirx.const(120, "int8")),
    "floor division": (["int32"], lambda a: tirx.floordiv(a - 2, tirx.const(2, "int32"))),
    "floor modulo": (["int32"], lambda a: tirx.floormod(a - 2, tirx.const(3, "int32"))),
    "bool": (["float32"], lambda a: a > tirx.const(0.5, "float32")),
    "select of nan": (["float32"], lambda a: tirx.min(tirx.log(a - 1), a)),
    "library": (["float32"], lambda a: tirx.sqrt(a) + tirx.log(a) + tirx.cos(a)),
    "let": (["float32"], lambda a: tirx.exp(a) + tirx.tanh(a)),
    "int64": (["int64"], lambda a: a * tirx.const(2**40, "int64") - tirx.const(2**62, "int64")),
}


@pytest.mark.parametrize("what", EXPRESSIONS)
def test_an_expression_computes_the_same_bits(what: str, tmp_path: Path) -> None:
    need_tools("host")
    dtypes, of = EXPRESSIONS[what]
    kernel = prepare_kernel(elementwise(*dtypes, of=of), C, what)
    assert differences([kernel], tmp_path) == []


def test_all_halves_load_and_store_as_numpy_does(tmp_path: Path) -> None:
    need_tools("host")
    source = "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n"
    source += "\n".join(helper_definitions({"xe_load_float16", "xe_store_float16"}))
    source += """
void load(const uint16_t *a, float *b, int n) { for (int i = 0; i < n; i++) b[i] = xe_load_float16(a[i]); }
void store(const float *a, uint16_t *b, int n) { for (int i = 0; i < n; i++) b[i] = xe_store_float16(a[i]); }
"""
    (tmp_path / "half.c").write_text(source)
    command = [
        "gcc",
        "-O2",
        "-shared",
        "-fPIC",
        str(tmp_path / "half.c"),
        "-o",
        str(tmp_path / "h.so"),
    ]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(tmp_path / "h.so"))

    def call(name: str, given: np.ndarray, made: np.ndarray) -> np.ndarray:
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (given, made)]
        getattr(library, name)(*pointers, len(given))
        return made

    halves = np.arange(2**16, dtype=np.uint16)
    loaded = call("load", halves, np.zeros(2**16, np.float32))
    np.testing.assert_array_equal(loaded, halves.view(np.float16).astype(np.float32))
    bits = np.random.default_rng(0).integers(0, 2**32, 10**6, dtype=np.uint64).astype(np.uint32)
    edges = loaded.view(np.uint32)[np.isfinite(loaded)]
    floats = np.concatenate([bits, edges, edges + 1, edges + 0x1000, edges + 0xFFF]).view(
        np.float32
    )
    with np.errstate(over="ignore", invalid="ignore"):
        expected = floats.astype(np.float16)
    stored = call("store", floats, np.zeros(len(floats), np.uint16)).view(np.float16)
    np.testing.assert_array_equal(stored, expected)


def test_what_has_no_form_in_c_is_named() -> None:
    func = elementwise("float32", of=lambda a: tirx.call_pure_extern("float32", "device_magic", a))
    kernel = prepare_kernel(func, C, "magic_kernel")
    with pytest.raises(UnsupportedModuleError, match=r"magic_kernel.*device_magic"):
        c_kernel(kernel, "magic")
