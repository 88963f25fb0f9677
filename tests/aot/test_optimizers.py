"""Every optimizer, with its options, and clipping: exported C does what PyTorch does."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.aot.examples import need_tools, tiny_mlp
from tests.aot.test_package import Session
from tvm_xengine.aot.export import export_step
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.plan.regions import parse_regions
from tvm_xengine.training.adam import Adam, Adamax, AdamW, NAdam, RAdam
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.losses import CrossEntropy
from tvm_xengine.training.optimizers import SGD, Adadelta, Adagrad, RMSprop
from tvm_xengine.training.recipe import Recipe

Parameters = Iterable[torch.nn.Parameter]
CASES: dict[str, tuple[Recipe, Callable[[Parameters], torch.optim.Optimizer]]] = {
    "decay": (
        Recipe(optimizer=SGD(weight_decay=0.1)),
        lambda p: torch.optim.SGD(p, 0.05, weight_decay=0.1),
    ),
    "dampened": (
        Recipe(optimizer=SGD(momentum=0.9, dampening=0.5)),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, dampening=0.5),
    ),
    "nesterov": (
        Recipe(optimizer=SGD(momentum=0.9, nesterov=True, maximize=True)),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True, maximize=True),
    ),
    "amsgrad": (
        Recipe(optimizer=Adam(amsgrad=True, weight_decay=0.1, betas=(0.8, 0.95))),
        lambda p: torch.optim.Adam(p, 0.05, (0.8, 0.95), weight_decay=0.1, amsgrad=True),
    ),
    "adamw": (Recipe(optimizer=AdamW()), lambda p: torch.optim.AdamW(p, 0.05)),
    "rmsprop": (
        Recipe(optimizer=RMSprop(momentum=0.5, centered=True, weight_decay=0.1)),
        lambda p: torch.optim.RMSprop(p, 0.05, momentum=0.5, centered=True, weight_decay=0.1),
    ),
    "adagrad": (
        Recipe(optimizer=Adagrad(lr_decay=0.1, initial_accumulator_value=0.2)),
        lambda p: torch.optim.Adagrad(p, 0.05, lr_decay=0.1, initial_accumulator_value=0.2),
    ),
    "nadam": (
        Recipe(optimizer=NAdam(weight_decay=0.1, decoupled_weight_decay=True)),
        lambda p: torch.optim.NAdam(p, 0.05, weight_decay=0.1, decoupled_weight_decay=True),
    ),
    "radam": (
        Recipe(optimizer=RAdam(betas=(0.8, 0.9))),
        lambda p: torch.optim.RAdam(p, 0.05, (0.8, 0.9)),
    ),
    "adamax": (Recipe(optimizer=Adamax()), lambda p: torch.optim.Adamax(p, 0.05)),
    "adadelta": (
        Recipe(optimizer=Adadelta(weight_decay=0.1)),
        lambda p: torch.optim.Adadelta(p, 0.05, weight_decay=0.1),
    ),
    "clip_norm": (
        Recipe(optimizer=SGD(), max_gradient_norm=0.3),
        lambda p: torch.optim.SGD(p, 0.05),
    ),
    "clip_value": (
        Recipe(optimizer=Adam(), max_gradient_value=0.01),
        lambda p: torch.optim.Adam(p, 0.05),
    ),
    "smoothing": (
        Recipe(loss=CrossEntropy(label_smoothing=0.1, class_weights=(1.0, 2.0, 0.5, 1.0))),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_exported_training_is_that_of_pytorch(case: str, tmp_path: Path) -> None:
    need_tools("host")
    recipe, make = CASES[case]
    model = tiny_mlp()
    options = ExportOptions("host", parse_regions("sram=64KiB"), learning_rate=0.05)
    training = build_step_by_recipe(model, recipe)
    report = export_step(model, training, options, tmp_path / "out")
    session = Session(report, tmp_path)
    assert session.init() == session.call("state_reset") == 0
    network = torch.nn.Sequential(torch.nn.Linear(16, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4))
    for name, parameter in zip(model.parameters, network.parameters(), strict=True):
        parameter.data = torch.tensor(np.array(model.parameters[name]))
    optimizer, random = make(network.parameters()), np.random.default_rng(0)
    loss = recipe.loss
    assert isinstance(loss, CrossEntropy)
    weights = None if loss.class_weights is None else torch.tensor(loss.class_weights)
    judge = torch.nn.CrossEntropyLoss(weights, label_smoothing=loss.label_smoothing)
    for _ in range(5):
        x = random.normal(size=(2, 16)).astype(np.float32)
        labels = random.integers(0, 4, 2)
        found = np.zeros(1, np.float32)
        assert session.call("train_step", x, labels, found, None) == 0
        optimizer.zero_grad()
        expected = judge(network(torch.tensor(x)), torch.tensor(labels))
        expected.backward()
        if recipe.max_gradient_value is not None:
            torch.nn.utils.clip_grad_value_(network.parameters(), recipe.max_gradient_value)
        if recipe.max_gradient_norm is not None:
            torch.nn.utils.clip_grad_norm_(network.parameters(), recipe.max_gradient_norm)
        optimizer.step()
        assert found[0] == pytest.approx(expected.item(), rel=1e-4, abs=1e-6)
    for name, parameter in zip(model.parameters, network.parameters(), strict=True):
        expected_value = parameter.detach().numpy()
        np.testing.assert_allclose(session.state(name), expected_value, rtol=1e-3, atol=1e-5)
