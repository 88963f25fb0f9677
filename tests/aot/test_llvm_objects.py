"""Kernels as object files: what LLVM and GCC's routines do not agree about is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tvm import te, tirx
from tvm.target import Target

from tvm_xengine.aot.emit_c.llvm_object import write_object
from tvm_xengine.aot.plan.kernels import Backend, code_target
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.errors import ExportError
from tvm_xengine.kernels.device_kernel import DeviceKernel, prepare_kernel

Of = Callable[[tirx.Expr], tirx.Expr]


def target_of(name: str) -> Target:
    return code_target(embedded_target(name), Backend.LLVM)


def elementwise(dtype: str, of: Of, target: Target) -> DeviceKernel:
    x = te.placeholder((8,), dtype, name="x")
    made = te.compute((8,), lambda i: of(x(i)), name="made")
    func = te.create_prim_func([x, made], index_dtype_override="int64")
    return prepare_kernel(func, target, "scaled")


DOUBLES: dict[str, tuple[str, Of]] = {
    "tensors": ("float64", lambda x: x * tirx.const(3.0, "float64")),
    "intermediate values": (
        "float32",
        lambda x: (x.astype("float64") * tirx.const(1 / 3, "float64")).astype("float32"),
    ),
}


@pytest.mark.parametrize("what", DOUBLES)
@pytest.mark.parametrize("name", ["cortex-m4", "cortex-m7"])
def test_float64_is_refused_where_there_is_a_floating_point_unit(
    name: str, what: str, tmp_path: Path
) -> None:
    target = target_of(name)
    kernel = elementwise(*DOUBLES[what], target)
    with pytest.raises(ExportError, match=r"kernel net_scaled computes in float64.*backend c"):
        write_object({"net_scaled": kernel}, target, tmp_path / "net.o")
    assert not (tmp_path / "net.o").exists()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("cortex-m4", "float32"),
        ("cortex-m0", "float64"),
        ("cortex-m3", "float64"),
        ("aarch64", "float64"),
    ],
)
def test_what_both_agree_about_is_compiled(name: str, dtype: str, tmp_path: Path) -> None:
    target = target_of(name)
    kernel = elementwise(dtype, lambda x: x * tirx.const(3.0, dtype), target)
    write_object({"net_scaled": kernel}, target, tmp_path / "net.o")
    assert (tmp_path / "net.o").read_bytes()[:4] == b"\x7fELF"
