"""The same kernel from oneDNN and from generated code, run on the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from tvm_xengine.kernels.device_kernel import DeviceKernel, TensorSpec, prepare_kernel
from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.library.context import KernelContext
from tvm_xengine.kernels.onednn.library import load_onednn
from tvm_xengine.kernels.onednn.operations import describe
from tvm_xengine.kernels.onednn.prepare import prepare_onednn_kernel
from tvm_xengine.kernels.sources import why_not
from tvm_xengine.kernels.store.compile import compile_kernels
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.program.step_program import ArenaView
from tvm_xengine.runtime.storage import Arena
from tvm_xengine.training.emitter import Emitter

NATIVE = resolve_target("llvm -mcpu=native")

needs_onednn = pytest.mark.skipif(
    why_not("onednn", NATIVE) is not None, reason=str(why_not("onednn", NATIVE))
)

PRODUCT = LibraryCall("linear", (), ((16, 16), (16, 16), (16, 16)), threads=1, source="onednn")


def _multiplies() -> bool:
    return why_not("onednn", NATIVE) is None and describe(PRODUCT, load_onednn()) is not None


needs_products = pytest.mark.skipif(
    not _multiplies(),
    reason="oneDNN has no product of matrices for this processor that allocates nothing, as with AVX-512",
)

Body = Callable[[Emitter, list[relax.Var]], relax.Expr]


def kernels_of(
    body: Body, shapes: Sequence[tuple[int, ...]], dtype: str = "float32"
) -> list[tirx.PrimFunc]:
    """The kernels of a function of tensors, in the order they are called."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{k}", relax.TensorType(s, dtype)) for k, s in enumerate(shapes)]
    emitter = Emitter(builder)
    for param in params:
        emitter.reserve(param.name)
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(emitter, params))
        builder.emit_func_output(result)
    mod = tvm.transform.Sequential([LowerToKernels("main")])(builder.get())
    calls = [binding.value for binding in mod["main"].body.blocks[0].bindings]
    return [mod[call.args[0]] for call in calls if call.op.name == "relax.call_tir"]


def kernel_of(
    body: Body, shapes: Sequence[tuple[int, ...]], dtype: str = "float32"
) -> tirx.PrimFunc:
    """The only kernel of a function."""
    (kernel,) = kernels_of(body, shapes, dtype)
    return kernel


def run(kernel: DeviceKernel, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a kernel whose memory is poisoned; it must not write behind its workspace."""
    compiled = compile_kernels([kernel], kernel.target)[kernel.symbol]
    outputs = [
        np.full(s.shape, np.nan if s.dtype == "float32" else -1, s.dtype) for s in kernel.outputs
    ]
    tensors = [tvm.runtime.tensor(array) for array in (*inputs, *outputs)]
    made = tensors[len(inputs) :]
    arena = Arena(kernel.workspace_bytes, tvm.cpu(), guard_bytes=4096)
    arena.poison()
    if kernel.workspace_bytes:
        tensors.append(arena.view(ArenaView("cpu", 0, (kernel.workspace_bytes,), "uint8")))
    context = None if kernel.library is None else KernelContext(kernel.library)
    compiled(*tensors, *([] if context is None else [context.tensor]))
    assert arena.guard_is_intact()
    return [np.asarray(output.numpy()) for output in made]


def _numbers(rng: np.random.Generator, name: str, spec: TensorSpec) -> np.ndarray:
    """Between -1 and 1, spreads above 0: from 1 / deviation a library computes the variance."""
    low = 0.1 if name.startswith(("inv_std", "variance", "running_var")) else -1.0
    return rng.uniform(low, 1, spec.shape).astype(spec.dtype)


def assert_twins_agree(
    func: tirx.PrimFunc,
    *,
    seed: int = 0,
    inputs: Sequence[np.ndarray] | None = None,
    least_scale: float = 1e-3,
) -> DeviceKernel | None:
    """Run a kernel from both sources; the library's, or None where oneDNN leaves it to the next.

    Their difference counts relative to the largest result, or to `least_scale` where all are less.
    """
    library = prepare_onednn_kernel(func, NATIVE, "library")
    if library is None:
        return None
    generated = prepare_kernel(func, NATIVE, "generated")
    if inputs is None:
        names = [param.name for param in func.params]
        rng = np.random.default_rng(seed)
        inputs = [
            _numbers(rng, name, spec) for name, spec in zip(names, generated.inputs, strict=False)
        ]
    pairs = zip(run(generated, inputs), run(library, inputs), strict=True)
    for expected, found in pairs:
        scale = max(np.abs(expected).max(initial=0.0), least_scale)
        assert np.abs(found - expected).max(initial=0.0) <= 1e-5 * scale
    return library
