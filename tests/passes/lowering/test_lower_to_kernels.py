from __future__ import annotations

import numpy as np
import pytest
from tvm import ir, relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tests.vm import computed
from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.relax_ir.dataflow import returned_fields
from tvm_xengine.relax_ir.kernel_attributes import INPLACE_ATTR
from tvm_xengine.relax_ir.signature import CONSTANTS_ATTR


@I.ir_module
class Step:
    @T.prim_func(private=True, s_tir=True)
    def momentum(
        p: T.Buffer((4,), "float32"),
        v: T.Buffer((4,), "float32"),
        g: T.Buffer((4,), "float32"),
        new_v: T.Buffer((4,), "float32"),
        new_p: T.Buffer((4,), "float32"),
    ):
        T.func_attr({"tirx.noalias": True, "tvm_xengine.inplace": [0, 1, 1, 0]})
        for i in range(4):
            with T.sblock("update"):
                vi = T.axis.spatial(4, i)
                new_v[vi] = v[vi] * T.float32(0.5) + g[vi]
                new_p[vi] = p[vi] - new_v[vi]

    @R.function
    def train_step(
        p: R.Tensor((4,), "float32"),
        v: R.Tensor((4,), "float32"),
        x: R.Tensor((2, 4, 3, 3), "float32"),
    ):
        R.func_attr({"tvm_xengine.marker": 7})
        cls = Step
        with R.dataflow():
            biased = R.add(x, R.reshape(p, (1, 4, 1, 1)))
            act = R.nn.relu(biased)
            flat = R.flatten(act)
            row = R.expand_dims(flat, 0)
            back = R.squeeze(row)
            g = R.mean(act, [0, 2, 3])
            kept = R.where(R.less(act, R.const(0.3)), act, R.const(0.5))
            scaled = R.multiply(kept, R.const(np.arange(3, dtype="float32")))
            updated = R.call_tir(
                cls.momentum,
                (p, v, g),
                out_ty=[R.Tensor((4,), "float32"), R.Tensor((4,), "float32")],
            )
            new_v = updated[0]
            new_p = updated[1]
            alias = new_p
            R.output(back, scaled, new_v, alias)
        return (back, scaled, new_v, alias)


def bindings(mod):
    (block,) = mod["train_step"].body.blocks
    return block.bindings


def run(mod, *args):
    func = mod["train_step"]
    constants = func.attrs.get(CONSTANTS_ATTR, ())
    return computed(mod, [*args, *(each.numpy() for each in constants)], "train_step")


@pytest.fixture
def arguments():
    rng = np.random.default_rng(0)
    shapes = ((4,), (4,), (2, 4, 3, 3))
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


@pytest.mark.parametrize("fuse", [True, False])
def test_every_binding_is_a_kernel_call_a_view_or_a_tuple_access(fuse):
    for binding in bindings(LowerToKernels(fuse=fuse)(Step)):
        value = binding.value
        if isinstance(value, relax.TupleGetItem):
            continue
        assert value.op.name in ("relax.call_tir", "relax.reshape")
        tensors = value.args[1].fields if value.op.name == "relax.call_tir" else value.args[:1]
        assert all(isinstance(tensor, ir.Var) for tensor in tensors)


@pytest.mark.parametrize("fuse", [True, False])
def test_lowering_keeps_the_numbers(fuse, arguments):
    lowered = run(LowerToKernels(fuse=fuse)(Step), *arguments)
    for got, want in zip(lowered, run(Step, *arguments), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_operators_that_move_no_bytes_become_views():
    views = [b.value for b in bindings(LowerToKernels()(Step)) if is_reshape(b.value)]
    assert len(views) == 4


def is_reshape(value):
    return isinstance(value, ir.Call) and value.op.name == "relax.reshape"


def test_fusion_makes_fewer_kernels():
    count = {fuse: len(bindings(LowerToKernels(fuse=fuse)(Step))) for fuse in (True, False)}
    assert count[True] < count[False]


def test_inplace_kernel_keeps_its_attribute_and_stays_alone():
    lowered = LowerToKernels()(Step)
    assert list(lowered["momentum"].attrs[INPLACE_ATTR]) == [0, 1, 1, 0]


def test_function_attributes_survive():
    assert LowerToKernels()(Step)["train_step"].attrs["tvm_xengine.marker"] == 7


def test_tensor_constants_become_parameters_and_scalars_do_not():
    func = LowerToKernels()(Step)["train_step"]
    (constant,) = func.attrs[CONSTANTS_ATTR]
    np.testing.assert_array_equal(constant.numpy(), np.arange(3, dtype="float32"))
    assert len(func.params) == 4


def test_names_of_bindings_are_unique_and_telling():
    names = [binding.var.name for binding in bindings(LowerToKernels()(Step))]
    assert len(set(names)) == len(names)
    assert not [name for name in names if name.startswith(("lv", "gv"))]


def test_equal_calls_stay_two_calls():
    @I.ir_module
    class Twice:
        @R.function
        def train_step(x: R.Tensor((4,), "float32"), w: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.matmul(x, w)
                R.output(a, b)
            return (a, b)

    assert len(bindings(LowerToKernels()(Twice))) == 2


def test_operator_without_kernel_is_named():
    @I.ir_module
    class NoKernel:
        @R.function
        def train_step(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                odd = R.unique(x)
                R.output(odd)
            return odd

    with pytest.raises(
        (UnsupportedModuleError, RuntimeError), match=r"odd is computed by .*unique"
    ):
        LowerToKernels()(NoKernel)


def test_a_kernel_of_many_ops_has_a_name_that_a_line_holds() -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("train_step", [x]):
        with builder.dataflow():
            value = x
            for _ in range(20):
                value = builder.emit(relax.op.negative(relax.op.add(value, value)))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    lowered = LowerToKernels()(builder.get())
    names = [b.var.name for b in lowered["train_step"].body.blocks[0].bindings]
    assert names and all(len(name) <= 52 for name in names)
    assert any(name.endswith("_etc") for name in names)


def test_a_constant_that_is_returned_becomes_a_parameter() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    with builder.function("train_step", params=[x]):
        with builder.dataflow():
            doubled = builder.emit(relax.op.add(x, x), "doubled")
            fixed = builder.emit(relax.op.zeros((), "float32"), "fixed")
            one = builder.emit(relax.const(np.arange(3, dtype="float32")), "one")
            result = builder.emit_output(relax.Tuple([doubled, fixed, one]))
        builder.emit_func_output(result)
    func = LowerToKernels()(builder.get())["train_step"]
    (constant,) = (func.attrs or {}).get(CONSTANTS_ATTR, ())
    assert constant.numpy().tolist() == [0.0, 1.0, 2.0]
    made = returned_fields(func)
    assert made[2].same_as(func.params[1])


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize(
    ("begin", "end", "step"),
    [(0, 10, 1), (0, 4, 1), (3, 10, 1), (2, 9, 1), (1, 10, 4), (0, 10, 3), (-4, -1, 1)],
)
def test_a_slice_is_written_without_a_read_outside(
    begin: int, end: int, step: int, fuse: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = np.arange(20, dtype="float32").reshape(2, 10)
    expected = whole.copy()
    part = -np.ones_like(expected[:, begin:end:step])
    expected[:, begin:end:step] = part
    builder = relax.BlockBuilder()
    x, y = (
        relax.Var(n, relax.TensorType(a.shape, "float32")) for n, a in (("x", whole), ("y", part))
    )
    with builder.function("train_step", params=[x, y]):
        with builder.dataflow():
            made = builder.emit(relax.op.slice_scatter(x, y, begin, end, step, 1))
            result = builder.emit_output(relax.Tuple([builder.emit(relax.op.add(made, made))]))
        builder.emit_func_output(result)
    capfd.readouterr()
    lowered = LowerToKernels(fuse=fuse)(builder.get())
    assert capfd.readouterr().err == ""  # TVM's kernel warns of its reads
    np.testing.assert_array_equal(run(lowered, whole, part)[0], 2 * expected)
