"""Optimizers of PyTorch do in a step what they do in PyTorch, or it is said what they do not."""

import copy
from collections.abc import Callable
from pathlib import Path
from types import new_class

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import ExponentialLR, LRScheduler

import tvm_xengine as xe
from tests.api.torch.in_pytorch import train
from tests.conftest import Compile
from tests.shares import share

ROWS, LABELS = torch.randn(6, 4), torch.tensor([0, 2, 1, 1, 2, 0])


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def decoupled(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam that decays as AdamW, and coupled for its second group."""
    first, *others = parameters
    return torch.optim.Adam(
        [{"params": [first], "decoupled_weight_decay": True}, {"params": others}],
        0.01,
        weight_decay=0.3,
    )


def test_adam_may_decay_as_adamw(compile_step: Compile) -> None:
    mine, theirs = network(), network()
    optimizer = decoupled([*mine.parameters()])
    step = compile_step(mine, ROWS, loss="cross_entropy", optimizer=optimizer)
    expected = train(theirs, decoupled([*theirs.parameters()]), [(ROWS, LABELS)] * 4)
    assert [float(step(ROWS, LABELS)) for _ in range(4)] == pytest.approx(expected, rel=1e-5)
    step.load_into(mine, optimizer)
    for ours, reference in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["NAdam", "RAdam", "Adamax", "Adadelta"])
def test_training_goes_on_in_pytorch_and_comes_back(kind: str, compile_step: Compile) -> None:
    make = getattr(torch.optim, kind)
    mine, theirs = network(), network()
    optimizer = make(mine.parameters(), 0.02)
    step = compile_step(mine, ROWS, loss="cross_entropy", optimizer=optimizer)
    found = [float(step(ROWS, LABELS)) for _ in range(3)]
    step.load_into(mine, optimizer)
    found += train(mine, optimizer, [(ROWS, LABELS)] * 4)
    step.load_from(mine, optimizer)
    found += [float(step(ROWS, LABELS)) for _ in range(3)]
    expected = train(theirs, make(theirs.parameters(), 0.02), [(ROWS, LABELS)] * 10)
    assert found == pytest.approx(expected, rel=1e-5)


OF_GROUPS: tuple[tuple[str, dict[str, object]], ...] = (
    ("NAdam", {"weight_decay": 0.3, "decoupled_weight_decay": True}),
    ("RAdam", {"betas": (0.5, 0.7), "maximize": True}),
    ("Adamax", {"weight_decay": 0.3, "eps": 0.1}),
    ("Adadelta", {"rho": 0.0}),
)


@pytest.mark.parametrize(("kind", "options"), share(OF_GROUPS, OF_GROUPS[3:]))
def test_groups_follow_a_scheduler_and_go_on_from_a_checkpoint(
    kind: str, options: dict[str, object], compile_step: Compile, tmp_path: Path
) -> None:
    rows = ROWS * torch.tensor([1.0, 1.0, 0.0, 1.0])  # weights of the third have no gradient

    def made() -> tuple[nn.Sequential, torch.optim.Optimizer, LRScheduler]:
        module = network()
        first, _, last = module
        groups = [{"params": first.parameters(), "lr": 0.01, "weight_decay": 0.1}]
        groups += [{"params": last.parameters()}]
        optimizer = getattr(torch.optim, kind)(groups, 0.03, **options)
        return module, optimizer, ExponentialLR(optimizer, 0.8)

    found = []
    for _ in range(2):
        module, optimizer, rates = made()
        step = compile_step(
            module, rows, loss="cross_entropy", optimizer=optimizer, lr_schedule=rates
        )
        if found:
            step.load(tmp_path / "run.ckpt")
        found += [float(step(rows, LABELS)) for _ in range(4)]
        step.save(tmp_path / "run.ckpt")
    step.load_into(module, optimizer)
    theirs, optimizer, rates = made()
    expected = []
    for _ in range(8):
        expected += train(theirs, optimizer, [(rows, LABELS)])
        rates.step()
    assert found == pytest.approx(expected, rel=1e-5)
    for ours, reference in zip(module.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-5, atol=1e-6)


def test_momenta_of_other_options_are_refused(compile_step: Compile) -> None:
    module = network()
    optimizer = torch.optim.NAdam(module.parameters(), 0.02, betas=(0.5, 0.9))
    train(module, optimizer, [(ROWS, LABELS)] * 2)
    step = compile_step(network(), ROWS, loss="cross_entropy", optimizer="nadam")
    with pytest.raises(xe.XEngineError, match=r"momenta of 0\.06"):
        step.load_from(module, optimizer)


@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.AdamW])
def test_a_class_with_the_name_of_one_of_pytorchs_is_another_one(base: type) -> None:
    module = network()
    namesake = new_class(base.__name__, (base,))
    with pytest.raises(xe.XEngineError, match=rf"no counterpart of \w+[\w.]*\.{base.__name__};"):
        xe.training_step(module, ROWS, optimizer=namesake(module.parameters(), lr=0.1))


def hooked(optimizer: torch.optim.Optimizer) -> None:
    optimizer.register_step_post_hook(lambda *_: None)


def taken(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        for one in group["params"]:
            one.grad = torch.ones_like(one)
    optimizer.step()


@pytest.mark.parametrize(
    ("do", "said"), [(hooked, "hooks on the steps"), (taken, "step.load_from(module, optimizer)")]
)
def test_what_an_optimizer_brings_and_a_step_leaves_is_told(
    do: Callable[[torch.optim.Optimizer], None], said: str
) -> None:
    module = network()
    optimizer = torch.optim.Adam(module.parameters(), 0.01)
    assert not xe.training_step(module, ROWS, loss="mse", optimizer=optimizer).notes
    do(optimizer)
    (note,) = xe.training_step(module, ROWS, loss="mse", optimizer=optimizer).notes
    assert said in note


def test_parameters_that_took_other_numbers_of_steps_are_refused_where_steps_count(
    compile_step: Compile,
) -> None:
    module = network()
    for make, counts in ((torch.optim.Adam, True), (torch.optim.RMSprop, False)):
        optimizer = make(module.parameters(), 0.01)
        for one in [*module.parameters()][:2]:
            one.grad = torch.ones_like(one)
        optimizer.step()
        step = compile_step(
            copy.deepcopy(module), ROWS, loss="mse", optimizer=make.__name__.lower()
        )
        if counts:
            with pytest.raises(xe.XEngineError, match=r"1 steps with 0.bias and 0 with 2.bias"):
                step.load_from(module, optimizer)
        else:
            step.load_from(module, optimizer)
        module.zero_grad()


def test_a_new_optimizer_begins_anew(compile_step: Compile) -> None:
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    step = compile_step(module, ROWS, loss="cross_entropy", optimizer=optimizer)
    first = [float(step(ROWS, LABELS)) for _ in range(3)]
    step.load_from(module, optimizer)
    assert [float(step(ROWS, LABELS)) for _ in range(3)] == first
    assert first[0] == pytest.approx(functional.cross_entropy(network()(ROWS), LABELS).item())


class Weighted(nn.Module):
    """A cross-entropy that learns how much it weighs, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.spread = nn.Parameter(torch.zeros(2))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return (
            functional.cross_entropy(outputs, labels) * (-self.spread[0]).exp() + self.spread.sum()
        )


@pytest.mark.parametrize("groups", [True, False])
def test_parameters_of_a_loss_are_trained_saved_and_given_back(
    compile_step: Compile, tmp_path: Path, groups: bool
) -> None:
    """As proxies of classes and learned weights of tasks are."""

    def made() -> tuple[nn.Module, nn.Module, torch.optim.Optimizer]:
        module, loss = network(), Weighted()
        of_module, of_loss = [*module.parameters()], [*loss.parameters()]
        held = (
            [{"params": of_module}, {"params": of_loss, "lr": 0.02}]
            if groups
            else [*of_module, *of_loss]
        )
        return module, loss, torch.optim.SGD(held, 0.1, momentum=0.9)

    module, loss, optimizer = made()
    expected = []
    for _ in range(4):
        value = loss(module(ROWS), LABELS)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        expected.append(value.item())

    mine, own, its = made()
    step = compile_step(mine, ROWS, loss=own, optimizer=its, example_targets=LABELS)
    losses = [float(step(ROWS, LABELS)) for _ in range(2)]
    step.save(tmp_path / "run.ckpt")
    step.step(ROWS, LABELS)
    step.load(tmp_path / "run.ckpt")
    losses.append(float(step(ROWS, LABELS)))
    step.load_into(mine, its, own)
    step.load_from(mine, its, own)
    losses.append(float(step(ROWS, LABELS)))
    step.load_into(mine, its, own)

    assert losses == pytest.approx(expected, rel=1e-5)
    for ours, theirs in ((mine, module), (own, loss)):
        for name, value in theirs.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(its.state.values(), optimizer.state.values(), strict=True):
        torch.testing.assert_close(ours["momentum_buffer"], theirs["momentum_buffer"])


def test_a_stranger_in_an_optimizer_is_refused() -> None:
    module = network()
    optimizer = torch.optim.SGD([*module.parameters(), nn.Parameter(torch.ones(3))], 0.1)
    with pytest.raises(xe.XEngineError, match=r"shape \(3,\) that is no parameter of the module"):
        xe.training_step(module, ROWS, loss="mse", optimizer=optimizer)


def test_a_module_with_a_part_called_loss_keeps_its_names() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.loss = nn.Linear(4, 3), Weighted()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) * self.loss.spread.sum()

    with pytest.raises(xe.XEngineError, match=r"both have a tensor called loss\.spread"):
        xe.training_step(Both(), ROWS, loss=Weighted(), example_targets=LABELS)
