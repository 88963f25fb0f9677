import pytest
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tests.passes.small_step import SmallStep
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.frontends import zoo
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.training.adam import Adam
from tvm_xengine.training.build import build_training_step


def test_every_call_becomes_an_op_with_its_tensors() -> None:
    extraction = extract_graph(SmallStep)
    graph = extraction.graph
    assert [op.name for op in graph.ops] == ["h", "both", "y", "g", "w_new"]
    assert graph.op["both"].outputs == ("both.0", "both.1")
    assert extraction.kernels["y"] == extraction.kernels["g"] == "add_flat"
    assert graph.op["y"].kernel == graph.op["g"].kernel != graph.op["h"].kernel
    assert graph.outputs == ("y",)


def test_a_reshape_is_a_view_that_keeps_its_base() -> None:
    graph = extract_graph(SmallStep).graph
    assert graph.tensor["flat_two"].alias_of == "both.0"
    assert graph.reads["y"] == ("both.0", "w")
    assert graph.consumers["both.1"] == ("g",)


def test_roles_sizes_and_updates_come_from_the_function() -> None:
    graph = extract_graph(SmallStep, alignment_bytes=256).graph
    assert {t.name: t.role for t in graph.tensors if t.role.is_resident} == {
        "x": Role.BATCH,
        "lr": Role.HYPER,
        "w": Role.PARAMETER,
    }
    assert graph.tensor["lr"].size_bytes == 256
    assert graph.op["w_new"].updates == (("w_new", "w"),)
    assert not graph.op["w_new"].recomputable
    assert graph.tensor["h"].shape == (4, 8)


def test_an_update_comes_as_early_as_its_readers_allow() -> None:
    """The parameter's update stands last in the function, but only `a` reads the old value."""

    @I.ir_module
    class Late:
        @T.prim_func(private=True)
        def copy(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
            for i in range(4):
                y[i] = x[i]

        @T.prim_func(private=True)
        def update(
            w: T.Buffer((4,), "float32"), g: T.Buffer((4,), "float32"), o: T.Buffer((4,), "float32")
        ):
            T.func_attr({"tvm_xengine.inplace": [0, 0]})
            for i in range(4):
                o[i] = w[i] - g[i]

        @R.function
        def train_step(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
            R.func_attr(
                {
                    "tvm_xengine.roles": ["batch", "parameter"],
                    "tvm_xengine.num_results": 1,
                    "tvm_xengine.updates": [1],
                }
            )
            cls = Late
            with R.dataflow():
                g = R.call_tir(cls.copy, (x,), out_ty=R.Tensor((4,), "float32"))
                a = R.call_tir(cls.copy, (w,), out_ty=R.Tensor((4,), "float32"))
                b = R.call_tir(cls.copy, (a,), out_ty=R.Tensor((4,), "float32"))
                c = R.call_tir(cls.copy, (b,), out_ty=R.Tensor((4,), "float32"))
                w_new = R.call_tir(cls.update, (w, g), out_ty=R.Tensor((4,), "float32"))
                out = (c, w_new)
                R.output(out)
            return out

    assert [op.name for op in extract_graph(Late).graph.ops] == ["g", "a", "w_new", "b", "c"]


def test_a_step_counter_is_advanced_after_every_update_that_reads_it() -> None:
    training = build_training_step(zoo.build("mlp", batch_size=2), optimizer=Adam())
    step = lower_step(training.mod, Platform((Device("cpu", "llvm"),)))
    ops = step.extraction.graph.ops
    readers = [at for at, op in enumerate(ops) if "step" in op.inputs]
    advance = next(at for at, op in enumerate(ops) if "step" in dict(op.updates).values())
    assert len(readers) > 1
    assert advance == readers[-1]


def test_a_module_without_the_function_is_refused() -> None:
    with pytest.raises(UnsupportedModuleError, match="expected a Relax function 'main'"):
        extract_graph(SmallStep, "main")


def test_a_high_level_operator_is_refused_by_name() -> None:
    @I.ir_module
    class HighLevel:
        @R.function
        def train_step(x: R.Tensor((4,), "float32")):
            R.func_attr({"tvm_xengine.roles": ["batch"], "tvm_xengine.updates": []})
            with R.dataflow():
                y = R.nn.relu(x)
                R.output(y)
            return y

    with pytest.raises(UnsupportedModuleError, match="LowerToKernels"):
        extract_graph(HighLevel)


def test_a_symbolic_shape_is_refused() -> None:
    @I.ir_module
    class Symbolic:
        @R.function
        def train_step(x: R.Tensor(("n",), "float32")):
            R.func_attr({"tvm_xengine.roles": ["batch"], "tvm_xengine.updates": []})
            with R.dataflow():
                y = R.nn.relu(x)
                R.output(y)
            return y

    with pytest.raises(UnsupportedModuleError, match="symbolic"):
        extract_graph(Symbolic)


def test_a_function_without_roles_is_refused() -> None:
    bare = SmallStep.clone()
    bare["train_step"] = SmallStep["train_step"].without_attr("tvm_xengine.roles")
    with pytest.raises(UnsupportedModuleError, match=r"tvm_xengine\.roles"):
        extract_graph(bare)


def test_a_new_state_that_may_not_overwrite_the_old_one_is_refused() -> None:
    mod = SmallStep.clone()
    mod["descend"] = SmallStep["descend"].without_attr("tvm_xengine.inplace")
    with pytest.raises(UnsupportedModuleError, match="does not declare"):
        extract_graph(mod)
