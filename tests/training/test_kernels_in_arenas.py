"""The kernels of every gradient rule can be lowered, scheduled and run in arenas."""

import numpy as np
import pytest
from hypothesis import Phase, find, settings
from tvm import relax

from tests.training.cases import FAMILIES
from tests.training.cases.case import Case, DrawCase, case_strategy
from tests.training.running import ReferenceRun
from tvm_xengine.compiler.build import build_step
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.relax import from_relax
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.losses import MEAN_SQUARED_ERROR
from tvm_xengine.training.recipe import Recipe

ONE_DEVICE = Platform(devices=(Device("cpu", "llvm -mcpu=native", kernels=("tir",)),), links=())


def _drawn(draws: list[DrawCase]) -> list[Case]:
    """A case of each function that has operands with a few elements, and that a model may hold."""

    def is_telling(case: Case) -> bool:
        has_few = all(4 <= value.size <= 200 for value in case.operands.values() if value.ndim > 1)
        return has_few and _is_model(case)

    quiet = settings(phases=[Phase.generate], derandomize=True, database=None, max_examples=200)
    return [find(case_strategy(draw), is_telling, settings=quiet) for draw in draws]


def _is_model(case: Case) -> bool:
    """Whether no index is refused: those that a model holds itself count from 0."""
    try:
        _joined({"case": case})
    except UnsupportedModelError:
        return False
    return True


def _joined(cases: dict[str, Case]) -> ForwardModel:
    """A model that returns the results of all cases in one row, and trains what they have gradients for."""
    builder = relax.BlockBuilder()
    values = {
        f"{case}_{name}": value
        for case, one in cases.items()
        for name, value in one.operands.items()
    }
    variables = {
        name: relax.Var(name, relax.TensorType(value.shape, str(value.dtype)))
        for name, value in values.items()
    }
    with builder.function("main", params=list(variables.values())):
        with builder.dataflow():
            results = []
            for case, one in cases.items():
                made = one.operator(*(variables[f"{case}_{name}"] for name in one.operands))
                results.append(relax.op.reshape(builder.emit(made), (-1,)))
            output = builder.emit_output(relax.op.concat(results))
        builder.emit_func_output(output)
    trainable = {
        f"{case}_{name}"
        for case, one in cases.items()
        for name, value in one.operands.items()
        if value.dtype.kind == "f" and name not in one.fixed
    }
    return from_relax(builder.get(), values, trainable=trainable)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_in_arenas_is_that_of_the_virtual_machine(family: str) -> None:
    cases = {
        f"{name.replace('.', '_')}_{k}": case
        for name, draws in FAMILIES[family].items()
        if name != "nn.dropout"
        for k, case in enumerate(_drawn(draws))
    }
    model = _joined(cases)
    training = build_step_by_recipe(model, Recipe(loss=MEAN_SQUARED_ERROR))
    (labels,) = training.batch_names
    shape = training.function.params[0].ty.shape
    target = np.random.default_rng(1).standard_normal([int(extent) for extent in shape])
    reference = ReferenceRun(training)
    expected = reference(target)["loss"]

    lowered = lower_step(training.mod, ONE_DEVICE)
    costs = {kernel.symbol: OpCost(1.0) for kernel in lowered.kernels.values()}
    problem = make_problem(lowered, lambda _: costs)
    executable = build_step(lowered, plan_keep_all(problem, "cpu"))
    executable.write(training.initial_state)
    results = executable.step({labels: target, "lr": np.float32(0.1)})
    np.testing.assert_allclose(results["loss"], expected, rtol=1e-9)
    state = executable.read_state()
    for name in training.updated_names:
        np.testing.assert_allclose(
            state[name], reference.state[name], rtol=1e-9, atol=1e-9, err_msg=name
        )
