from __future__ import annotations

import tvm
from tvm import relax, tirx

from tvm_xengine.kernels.library.parts import kernel_parts
from tvm_xengine.kernels.library.rest import without_parts
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.relax_ir.kernel_attributes import kernel_hash

IMAGE, FILTER, COLUMN = (1, 3, 8, 8), (4, 3, 3, 3), (1, 4, 1, 1)


def lowered(*, layout: str = "NCHW", relu: bool = True) -> tirx.PrimFunc:
    """The kernel of a convolution, its bias and perhaps a relu."""
    image, weight, column = IMAGE, FILTER, COLUMN
    if layout == "NHWC":
        image, weight, column = (1, 8, 8, 3), (4, 3, 3, 3), (1, 1, 1, 4)
    builder = relax.BlockBuilder()
    x, w, b = (
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in (("x", image), ("w", weight), ("b", column))
    )
    with builder.function("main", [x, w, b]):
        with builder.dataflow():
            made = builder.emit(
                relax.op.nn.conv2d(x, w, data_layout=layout, kernel_layout="OIHW", padding=1)
            )
            made = builder.emit(relax.op.add(made, b))
            made = builder.emit_output(relax.op.nn.relu(made) if relu else made)
        builder.emit_func_output(made)
    mod = tvm.transform.Sequential([LowerToKernels("main")])(builder.get())
    (kernel,) = (func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc))
    return kernel


def test_a_fused_kernel_remembers_what_it_was_made_of() -> None:
    made_of = kernel_parts(lowered())
    assert made_of is not None
    assert [part.name for part in made_of.parts] == ["convolution", "add", "relu"]
    assert [part.inputs for part in made_of.parts] == [(0, 1), (3, 2), (4,)]
    assert dict(made_of.parts[0].options) == {
        "dilation": (1, 1),
        "groups": 1,
        "padding": (1, 1, 1, 1),
        "strides": (1, 1),
    }


def test_a_convolution_of_another_layout_is_not_named() -> None:
    made_of = kernel_parts(lowered(layout="NHWC"))
    assert made_of is not None
    assert [part.name for part in made_of.parts] == ["", "add", "relu"]


def test_the_rest_of_a_kernel_reads_what_was_taken_out_of_it() -> None:
    made_of = kernel_parts(lowered())
    assert made_of is not None
    rest = without_parts(made_of, taken=frozenset({0}))
    assert rest is not None and rest.reads == (3, 2)
    assert len(rest.func.params) == 3
    assert without_parts(made_of, taken=frozenset({0, 1, 2})) is None


def test_the_parts_do_not_change_what_a_kernel_is() -> None:
    kernel = lowered()
    assert kernel_hash(kernel) == kernel_hash(kernel.without_attr("tvm_xengine.parts"))
    assert kernel_hash(kernel) != kernel_hash(lowered(relu=False))
