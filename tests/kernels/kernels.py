"""Small kernels, and running a prepared kernel on numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import te, tirx

from tvm_xengine.kernels.device_kernel import DeviceKernel, TensorSpec, prepare_kernel
from tvm_xengine.kernels.store.compile import compile_kernels
from tvm_xengine.kernels.targets import resolve_target

BASELINE = "llvm -mcpu=x86-64"
NATIVE = "llvm -mcpu=native"


def scale_and_shift(elements: int, name: str = "x") -> tirx.PrimFunc:
    x = te.placeholder((elements,), "float32", name=name)
    y = te.compute((elements,), lambda i: x[i] * 2.0 + 1.0, name=f"{name}_scaled")
    return te.create_prim_func([x, y])


def centred_twice(rows: int, columns: int) -> tirx.PrimFunc:
    """x - mean(x), where the mean is a reduction over all rows: an intermediate must be kept."""
    x = te.placeholder((rows, columns), "float32", name="x")
    k = te.reduce_axis((0, rows), name="k")
    total = te.compute((columns,), lambda j: te.sum(x[k, j], axis=k), name="total")
    y = te.compute((rows, columns), lambda i, j: x[i, j] - total[j] / rows, name="y")
    return te.create_prim_func([x, y])


def matmul(m: int, n: int, k: int) -> tirx.PrimFunc:
    a = te.placeholder((m, k), "float32", name="a")
    b = te.placeholder((k, n), "float32", name="b")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    return te.create_prim_func([a, b, c])


def momentum(elements: int) -> tirx.PrimFunc:
    """v = v / 2 + g over v, then p = p - v over p, which reads the new v."""
    p, v, g = (te.placeholder((elements,), "float32", name=name) for name in "pvg")
    new_v = te.compute((elements,), lambda i: v[i] * 0.5 + g[i], name="new_v")
    new_p = te.compute((elements,), lambda i: p[i] - new_v[i], name="new_p")
    func = te.create_prim_func([p, v, g, new_p, new_v])
    return func.with_attr("tvm_xengine.inplace", [0, 0, 1, 1])


def reversed_copy(elements: int) -> tirx.PrimFunc:
    """Read from the other end: writing over the input would destroy what is still to be read."""
    x = te.placeholder((elements,), "float32", name="x")
    y = te.compute((elements,), lambda i: x[elements - 1 - i], name="y")
    return te.create_prim_func([x, y]).with_attr("tvm_xengine.inplace", [0, 0])


def long_kernel(description: str = BASELINE, stores: int = 6_000) -> DeviceKernel:
    """Straight-line code that the compiler needs seconds for."""
    target = resolve_target(description)
    x, y = (tirx.decl_buffer((stores,), "float32", name=name) for name in "xy")
    body = tirx.SeqStmt([tirx.BufferStore(y, x[n] * (n + 0.5), [n]) for n in range(stores)])
    func = tirx.PrimFunc([x, y], body).with_attr("global_symbol", "kernel_long")
    bound = tirx.transform.BindTarget(target.with_host(target))
    func = bound(tvm.IRModule({"kernel_long": func.with_attr("tirx.noalias", True)}))["kernel_long"]
    spec = TensorSpec((stores,), "float32")
    return DeviceKernel(func, "kernel_long", "long", "long", target, (spec,), (spec,), 0, (), False)


def run_kernel(func: tirx.PrimFunc, description: str, *inputs: np.ndarray) -> list[np.ndarray]:
    """Outputs of a kernel compiled for a target; its memory is poisoned with NaN first."""
    target = resolve_target(description)
    kernel = prepare_kernel(func, target)
    compiled = compile_kernels([kernel], target)[kernel.symbol]
    given = [tvm.runtime.tensor(array) for array in inputs]
    made = [tvm.runtime.tensor(poison(spec.shape, spec.dtype)) for spec in kernel.outputs]
    for pair in kernel.inplace:
        made[pair.output] = given[pair.input]
    scratch = [tvm.runtime.tensor(np.full(kernel.workspace_bytes, 0xFF, "uint8"))]
    compiled(*given, *made, *(scratch if kernel.workspace_bytes else []))
    return [tensor.numpy() for tensor in made]


def run_unscheduled(func: tirx.PrimFunc, description: str, *inputs: np.ndarray) -> list[np.ndarray]:
    """Outputs of a kernel as TVM compiles it without any of our passes."""
    target = resolve_target(description)
    compiled = tvm.compile(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), target)
    outputs = func.params[len(inputs) :]
    made = [
        tvm.runtime.tensor(poison([int(e) for e in out.ty.shape], str(out.ty.dtype.dtype)))
        for out in outputs
    ]
    compiled["main"](*(tvm.runtime.tensor(array) for array in inputs), *made)
    return [tensor.numpy() for tensor in made]


def poison(shape: Sequence[int], dtype: str) -> np.ndarray:
    """Numbers that no kernel makes."""
    return np.full(shape, np.nan if dtype.startswith("float") else 77, dtype)
