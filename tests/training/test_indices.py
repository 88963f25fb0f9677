"""Indices that point outside a table give NaN; nothing is read or written outside."""

import numpy as np
import pytest
from tvm import relax

from tests.training.running import ReferenceRun
from tvm_xengine.frontends.relax import from_relax
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.losses import MEAN_SQUARED_ERROR
from tvm_xengine.training.recipe import Recipe

TABLE = np.arange(12, dtype="float32").reshape(4, 3)


@pytest.fixture(scope="module")
def run() -> ReferenceRun:
    """An embedding of three indices."""
    builder = relax.BlockBuilder()
    indices = relax.Var("indices", relax.TensorType((3,), "int64"))
    table = relax.Var("table", relax.TensorType((4, 3), "float32"))
    with builder.function("main", params=[indices, table]):
        with builder.dataflow():
            output = builder.emit_output(relax.op.take(table, indices, 0))
        builder.emit_func_output(output)
    model = from_relax(builder.get(), {"table": TABLE})
    return ReferenceRun(build_step_by_recipe(model, Recipe(loss=MEAN_SQUARED_ERROR)))


@pytest.mark.parametrize("index", [4, -5, 2**40, -(2**40)])
def test_an_index_outside_the_table_makes_the_loss_nan(run: ReferenceRun, index: int) -> None:
    run.state = dict(run.step.initial_state)
    loss = run(np.array([0, index, 3]), np.zeros((3, 3), "float32"))["loss"]
    assert np.isnan(loss)
    gradient = run.gradients()["table"]
    # The row of the bad index has no place in the table; the others have theirs.
    np.testing.assert_allclose(gradient[[0, 3]], 2 * TABLE[[0, 3]] / 9, rtol=1e-6)
    assert (gradient[1:3] == 0).all()


def test_negative_indices_count_from_the_end(run: ReferenceRun) -> None:
    run.state = dict(run.step.initial_state)
    loss = run(np.array([0, -1, -4]), np.zeros((3, 3), "float32"))["loss"]
    picked = TABLE[[0, -1, -4]]
    assert loss == pytest.approx(np.square(picked).mean(), rel=1e-6)
