"""One call from a module to a step that trains as PyTorch does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import tvm_xengine as xe
from tests.api.networks import Convolutional, TwoBranches, perceptron
from tests.conftest import Compile
from tvm_xengine.cost_models.features.table import FeatureTable
from tvm_xengine.cost_models.models.model import Prediction, point_prediction
from tvm_xengine.errors import NoScheduleError, UnsupportedModelError
from tvm_xengine.scheduling.problem import CostSource


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(6, 1, 6, 6), torch.randint(0, 5, (6,))) for _ in range(count)]


def test_a_module_trains_predicts_and_returns_its_state(compile_step: Compile) -> None:
    torch.manual_seed(0)
    module = Convolutional()
    reference = Convolutional()
    reference.load_state_dict(module.state_dict())
    step = compile_step(
        module, torch.randn(6, 1, 6, 6), loss="cross_entropy", optimizer=xe.SGD(0.05, momentum=0.9)
    )
    optimizer = torch.optim.SGD(reference.parameters(), 0.05, momentum=0.9)
    for images, labels in batches(4):
        loss = step(images, labels)
        expected = functional.cross_entropy(reference(images), labels)
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        assert loss == pytest.approx(expected.item(), rel=1e-5)
    state = step.state_dict()
    assert list(state) == list(reference.state_dict())
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-6)
    images, _ = batches(1)[0]
    torch.testing.assert_close(step.eval()(images), reference.eval()(images), rtol=1e-4, atol=1e-5)
    step.load_into(module)
    torch.testing.assert_close(module.eval()(images), step(images), rtol=1e-4, atol=1e-5)


def test_a_loss_written_in_pytorch_sees_all_inputs_and_outputs(compile_step: Compile) -> None:
    torch.manual_seed(0)
    module = TwoBranches()

    def loss(outputs: dict[str, torch.Tensor], targets: torch.Tensor) -> torch.Tensor:
        main = functional.cross_entropy(outputs["main"], targets, label_smoothing=0.1)
        return main + 0.3 * functional.cross_entropy(outputs["aux"], targets)

    left, right, targets = torch.randn(4, 4), torch.randn(4, 3), torch.randint(0, 2, (4,))
    step = compile_step(module, (left, right), loss=loss, example_targets=targets, optimizer="adam")
    optimizer = torch.optim.Adam(module.parameters())
    for _ in range(3):
        found = step(left=left, right=right, targets=targets)
        expected = loss(module(left, right), targets)
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        assert found == pytest.approx(expected.item(), rel=1e-5)
    outputs = step.predict(left, right)
    assert set(outputs) == {"main", "aux"}
    torch.testing.assert_close(outputs["aux"], module(left, right)["aux"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("budget", [0, 1, np.int64(2)])
def test_a_whole_number_that_holds_no_tensor_was_meant_as_a_ratio(budget: int) -> None:
    with pytest.raises(ValueError, match=rf"a ratio is a float: budget={int(budget)}\.0"):
        xe.compile("lenet", budget=budget)


def test_a_budget_holds_and_one_that_cannot_is_refused(compile_step: Compile) -> None:
    step = compile_step("mlp", loss="cross_entropy", batch_size=4, budget=1.0)
    peak = step.executable.measured_peak_bytes["cpu"]
    assert peak <= step.plan.plan.problem.platform.devices[0].budget_bytes
    with pytest.raises(NoScheduleError, match="infeasible"):
        compile_step("mlp", loss="cross_entropy", batch_size=4, budget="20KiB")


@pytest.mark.parametrize("outputs", [1, 6])
def test_no_loss_is_guessed_for_numbers_or_autoencoders(outputs: int) -> None:
    module = nn.Linear(6, outputs)
    with pytest.raises(UnsupportedModelError, match="mse"):
        xe.training_step(module, torch.randn(4, 6))


def test_cross_entropy_over_one_class_is_refused_with_advice() -> None:
    with pytest.raises(UnsupportedModelError, match="bce_with_logits"):
        xe.training_step(nn.Linear(6, 1), torch.randn(4, 6), loss="cross_entropy")


@pytest.mark.parametrize(
    ("layer", "loss", "is_told"),
    [
        (nn.Softmax(1), "cross_entropy", True),
        (nn.Sigmoid(), "bce_with_logits", True),
        (nn.LogSoftmax(1), "cross_entropy", False),
        (nn.Softmax(1), "mse", False),
    ],
)
def test_probabilities_for_a_loss_of_scores_are_told(
    layer: nn.Module, loss: str, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    xe.training_step(nn.Sequential(nn.Linear(6, 3), layer), torch.randn(4, 6), loss=loss)
    assert (f"the loss {loss} takes scores" in caplog.text) == is_told


@pytest.mark.parametrize(
    ("layers", "loss", "is_told"),
    [
        ([nn.Linear(6, 3)], "bce", True),
        ([nn.Linear(6, 3, bias=False)], nn.BCELoss(), True),
        ([nn.Linear(6, 3)], "nll", True),
        ([nn.Linear(6, 3)], nn.KLDivLoss(reduction="batchmean"), True),
        ([nn.Linear(6, 3), nn.Sigmoid()], "bce", False),
        ([nn.Linear(6, 3), nn.LogSoftmax(1)], nn.NLLLoss(), False),
        ([nn.Linear(6, 3)], "bce_with_logits", False),
        ([nn.Linear(6, 3)], "cross_entropy", False),
    ],
)
@pytest.mark.parametrize("is_file", [False, True])
def test_scores_for_a_loss_of_probabilities_are_told(
    layers: list[nn.Module],
    loss: str | nn.Module,
    is_told: bool,
    is_file: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    module, rows = nn.Sequential(*layers), torch.randn(4, 6)
    if is_file:
        xe.training_step(torch.export.export(module, (rows,)), loss=loss)
    else:
        xe.training_step(module, rows, loss=loss)
    assert ("which makes scores, and the loss" in caplog.text) == is_told


def test_the_report_says_what_is_trained_and_what_is_frozen() -> None:
    training = xe.training_step(perceptron(), torch.randn(4, 6))
    text = training.report()
    assert "loss: CrossEntropy" in text
    assert "frozen: 0.weight (requires_grad is False), 0.bias (requires_grad is False)" in text
    assert "trained: 2.weight, 2.bias, 4.weight, 4.bias" in text


def test_the_report_names_the_loss_that_was_given_and_no_limit_that_was_not() -> None:
    step = xe.compile(
        nn.Linear(3, 2), torch.rand(4, 3), loss=functional.cross_entropy, costs="roofline"
    )
    lines = step.report().splitlines()
    assert "loss: cross_entropy" in lines
    assert sum(line.startswith("cpu: ") and line.endswith(", no limit") for line in lines) == 1


def test_a_plan_of_many_tensors_is_reported_in_short_lines(compile_step: Compile) -> None:
    module = nn.Sequential(*[nn.Linear(4, 4) for _ in range(20)])
    step = compile_step(module, torch.randn(2, 4), loss="cross_entropy")
    assert step.report().splitlines()[-1].endswith("3.weight, 3.bias and 32 more")
    assert "19.bias" in step.training.report()


def test_a_plan_is_saved_and_built_again_for_its_own_model_only(
    compile_step: Compile, cache, tmp_path
) -> None:
    step = compile_step("mlp", loss="cross_entropy", batch_size=4, budget=1.0)
    step.plan.save(tmp_path / "plan.json")
    lowered = xe.lower(xe.training_step("mlp", batch_size=4), cache=cache)
    plan = xe.StepPlan.load(tmp_path / "plan.json", lowered)
    assert plan.plan.schedule == step.plan.plan.schedule
    assert plan.plan.arenas.arena_bytes == step.plan.plan.arenas.arena_bytes
    other = xe.lower(xe.training_step("mlp", batch_size=5), cache=cache)
    with pytest.raises(xe.XEngineError, match="plan of another step"):
        xe.StepPlan.load(tmp_path / "plan.json", other)


@pytest.mark.parametrize(
    ("model", "arguments", "told"),
    [
        (perceptron, {"inputs": torch.randn(4, 6)}, "Sequential does not take inputs"),
        (perceptron, {"batch_size": 4}, "Sequential does not take batch_size"),
        (perceptron, {"optimiser": "adam"}, "did you mean optimizer?"),
        (perceptron, {"budgets": "1MiB"}, "did you mean budget?"),
        (dict, {"example_inputs": torch.randn(4, 6)}, "type dict is not"),
        (lambda: "lenet", {"batch": 4}, "batch"),
        (lambda: "lenet", {"example_inputs": torch.randn(4, 6)}, "for a PyTorch module"),
        (lambda: xe.load_model("mlp"), {"size": 8}, "Source does not take size"),
    ],
)
def test_an_argument_that_a_model_does_not_take_is_refused(
    model: Callable[[], object], arguments: dict[str, object], told: str
) -> None:
    with pytest.raises(TypeError, match=told):
        xe.training_step(model(), **arguments)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"budget": "lots"}, "budget: expected a size"),
        ({"budget": {"cpu": "much"}}, "budget: expected a size"),
        ({"budget": -0.5}, "budget ratio of at least 0"),
        ({"objective": "speed"}, "unknown objective 'speed'"),
        ({"solver": "astr"}, "expected a solver among"),
        ({"costs": "guessed"}, "unknown costs 'guessed'"),
        ({"time_limit_s": -1.0}, "time_limit_s must be > 0"),
    ],
)
def test_what_planning_would_refuse_is_refused_before_the_model_is_read(
    arguments: dict[str, object], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        xe.compile("no_such_network.onnx", **arguments)


def test_the_class_of_an_optimizer_is_not_taken_for_one() -> None:
    with pytest.raises(TypeError, match=r"got the class Adam; give an instance: Adam\(\.\.\.\)"):
        xe.training_step("mlp", optimizer=xe.Adam)


def test_a_report_is_a_page(compile_step: Compile, tmp_path) -> None:
    step = compile_step("mlp", loss="cross_entropy", batch_size=4)
    with pytest.raises(ValueError, match=r"ends in \.html"):
        step.plan.write_report(tmp_path / "page.txt")


def test_a_missing_argument_is_one_error_and_not_two() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument") as refused:
        xe.lower()
    assert refused.value.__context__ is None


class _Scores(nn.Module):
    """A layer for models that compute a loss of its scores."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 5)


def test_a_model_with_labels_among_its_inputs_is_given_them_by_that_name(
    compile_step: Compile,
) -> None:
    class WithLoss(_Scores):
        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
            scores = self.fc(x)
            return scores if labels is None else functional.cross_entropy(scores, labels)

    module = WithLoss()
    batch = {"x": torch.randn(4, 6), "labels": torch.tensor([0, 1, 2, 3])}
    expected = module(**batch).item()
    step = compile_step(module, batch)
    assert step(batch) == pytest.approx(expected, rel=1e-5)
    xe.fit(step, [batch], epochs=1)
    assert step.steps_taken == 2


def test_a_loss_that_a_model_returns_by_name_need_not_be_its_first_output(
    compile_step: Compile,
) -> None:
    class WithLoss(_Scores):
        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            scores = self.fc(x)
            return {"scores": scores, "loss": functional.cross_entropy(scores, labels)}

    module = WithLoss()
    x, labels = torch.randn(4, 6), torch.tensor([0, 1, 2, 3])
    expected = module(x, labels)["loss"].item()
    assert compile_step(module, (x, labels))(x, labels) == pytest.approx(expected, rel=1e-5)


class PerByte:
    """A cost model of somebody else: time is bytes moved."""

    def predict(self, table: FeatureTable) -> Prediction:
        return point_prediction(1.0 + table.moved_bytes, 0.5)


def test_a_step_is_planned_with_the_times_of_a_cost_model_of_ones_own() -> None:
    problem = xe.make_problem(xe.lower(xe.training_step("mlp")), costs=PerByte()).problem
    costs = [cost for there in problem.costs.values() for cost in there.values()]
    assert {cost.source for cost in costs} == {CostSource.PREDICTED}
    assert all(cost.compute_us == round(cost.compute_us) > 1 for cost in costs)


@pytest.mark.parametrize("costs", [4, None])
def test_what_is_no_source_of_costs_is_refused(costs: Any) -> None:
    with pytest.raises(TypeError, match=r"predict\(table\)"):
        xe.make_problem(xe.lower(xe.training_step("mlp")), costs=costs)
