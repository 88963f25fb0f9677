"""Options of training that change the step as a whole, each compared with a loop in PyTorch."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import tvm_xengine as xe
from tests.api.networks import Attention
from tests.conftest import Compile

Rates = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]


def classifier() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.mark.slow
def test_micro_batches_are_one_big_batch_clipped_once(compile_step: Compile) -> None:
    torch.manual_seed(0)
    module = classifier()
    reference = copy.deepcopy(module)
    inputs, labels = torch.randn(12, 4), torch.randint(0, 3, (12,))
    options = {"optimizer": xe.Adam(0.01), "micro_batches": 3, "clip_norm": 0.2}
    step = compile_step(module, inputs[:4], loss="cross_entropy", **options)
    theirs = torch.optim.Adam(reference.parameters(), 0.01)
    for _ in range(4):
        loss = functional.cross_entropy(reference(inputs), labels)
        theirs.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(reference.parameters(), 0.2)
        theirs.step()
        assert float(step(inputs, labels)) == pytest.approx(loss.item(), rel=1e-5)
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(step.state_dict()[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6),
        lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=8),
    ],
    ids=["cosine", "one cycle"],
)
def test_rates_of_a_pytorch_scheduler_are_followed(compile_step: Compile, schedule: Rates) -> None:
    torch.manual_seed(0)
    module = classifier()
    reference = copy.deepcopy(module)
    probe = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.2, momentum=0.9)
    scheduler, rates = schedule(probe), []
    for _ in range(6):
        rates.append(probe.param_groups[0]["lr"])
        probe.step()
        scheduler.step()
    inputs, labels = torch.randn(6, 4), torch.randint(0, 3, (6,))
    step = compile_step(
        module,
        inputs,
        loss="cross_entropy",
        optimizer=xe.SGD(0.2, momentum=0.9),
        lr_schedule=rates.__getitem__,
    )
    theirs = torch.optim.SGD(reference.parameters(), 0.2, momentum=0.9)
    for rate in rates:
        theirs.param_groups[0]["lr"] = rate
        loss = functional.cross_entropy(reference(inputs), labels)
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        assert float(step(inputs, labels)) == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.slow
def test_tied_weights_stay_tied_with_one_optimizer_state(compile_step: Compile) -> None:
    torch.manual_seed(0)
    module = Attention()
    reference = copy.deepcopy(module)
    inputs, labels = torch.randint(0, 11, (6, 4)), torch.randint(0, 11, (6,))
    mine = torch.optim.SGD(module.parameters(), 0.05, momentum=0.9)
    theirs = torch.optim.SGD(reference.parameters(), 0.05, momentum=0.9)
    step = compile_step(module, inputs, loss="cross_entropy", optimizer=mine)
    for _ in range(3):
        loss = functional.cross_entropy(reference(inputs), labels)
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        assert float(step(inputs, labels)) == pytest.approx(loss.item(), rel=1e-5)
    step.load_into(module, mine)
    assert module.head.weight is module.embedding.weight
    torch.testing.assert_close(module.state_dict(), reference.state_dict(), rtol=1e-4, atol=1e-5)
    assert mine.state_dict()["state"].keys() == theirs.state_dict()["state"].keys()
