"""Schedulers of PyTorch give a compiled step the rates that they give in PyTorch."""

import copy
import warnings
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

import tvm_xengine as xe
from tests.conftest import Compile
from tvm_xengine.model.lr_schedules import as_schedule

Make = Callable[[torch.optim.Optimizer], LRScheduler]

SCHEDULERS: dict[str, Make] = {
    "step": lambda o: lr_scheduler.StepLR(o, 3, 0.5),
    "multi step": lambda o: lr_scheduler.MultiStepLR(o, [2, 5]),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 6),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.3, total_steps=9, cycle_momentum=False),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.4, 2, cycle_momentum=False),
    "warm-up first": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, 1.0, 3), lr_scheduler.ExponentialLR(o, 0.8)], [3]
    ),
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.5, 2), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
}


def sgd(**options: float) -> torch.optim.SGD:
    return torch.optim.SGD([nn.Parameter(torch.zeros(3))], 0.2, momentum=0.9, **options)


def rates_in_pytorch(make: Make, steps: int) -> list[float]:
    optimizer = sgd()
    scheduler, rates = make(optimizer), []
    for _ in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_rates_are_those_of_a_loop_in_pytorch(name: str) -> None:
    optimizer = sgd()
    scheduler = SCHEDULERS[name](optimizer)
    before = copy.deepcopy((optimizer.state_dict(), repr(scheduler.state_dict())))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule = as_schedule(scheduler)
        assert schedule is not None
        found = [schedule(steps) for steps in (8, *range(8))]
    expected = rates_in_pytorch(SCHEDULERS[name], 9)
    assert found == [expected[8], *expected[:8]]
    assert (optimizer.state_dict(), repr(scheduler.state_dict())) == before


def test_a_step_follows_a_scheduler_and_finds_its_place_after_a_checkpoint(
    compile_step: Compile, tmp_path: object
) -> None:
    torch.manual_seed(0)
    module, x = nn.Linear(4, 3), torch.randn(6, 4)
    labels = torch.randint(0, 3, (6,))

    def new() -> xe.Step:
        optimizer = torch.optim.SGD(module.parameters(), 0.2, momentum=0.9)
        rates = SCHEDULERS["warm-up first"](optimizer)
        return compile_step(module, x, loss="cross_entropy", optimizer=optimizer, lr_schedule=rates)

    step, reference = new(), copy.deepcopy(module)
    theirs = torch.optim.SGD(reference.parameters(), 0.2, momentum=0.9)
    scheduler = SCHEDULERS["warm-up first"](theirs)
    expected = []
    for _ in range(8):
        loss = nn.functional.cross_entropy(reference(x), labels)
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        scheduler.step()
        expected.append(loss.item())
    losses = [float(step(x, labels)) for _ in range(4)]
    path = f"{tmp_path}/run.ckpt"
    step.save(path)
    other = new()
    other.load(path)
    losses += [float(other(x, labels)) for _ in range(4)]
    assert losses == pytest.approx(expected, rel=1e-5)


def test_groups_keep_the_ratio_of_rates_that_a_warm_up_begins_at_zero(
    compile_step: Compile,
) -> None:
    torch.manual_seed(0)
    x, labels = torch.randn(6, 4), torch.tensor([0, 2, 1, 1, 2, 0])
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    theirs = copy.deepcopy(module)

    def made(one: nn.Sequential) -> tuple[torch.optim.Optimizer, LRScheduler]:
        groups = [{"params": one[0].parameters(), "lr": 0.05}, {"params": one[2].parameters()}]
        optimizer = torch.optim.SGD(groups, 0.2)
        return optimizer, lr_scheduler.LambdaLR(optimizer, lambda step: step / 3)

    optimizer, rates = made(module)
    step = compile_step(module, x, loss="cross_entropy", optimizer=optimizer, lr_schedule=rates)
    optimizer, scheduler = made(theirs)
    for _ in range(4):
        loss = nn.functional.cross_entropy(theirs(x), labels)
        assert float(step(x, labels)) == pytest.approx(loss.item(), rel=1e-5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()


def test_what_is_not_known_beforehand_is_refused(compile_step: Compile) -> None:
    def refused(make: Make, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            compile_step(nn.Linear(4, 3), torch.zeros(2, 4), lr_schedule=make(sgd()))

    def stepped(optimizer: torch.optim.Optimizer) -> LRScheduler:
        scheduler = lr_scheduler.ExponentialLR(optimizer, 0.9)
        optimizer.step()
        scheduler.step()
        return scheduler

    refused(lambda o: lr_scheduler.ReduceLROnPlateau(o), "needs a metric.*step.lr")  # type: ignore[arg-type,return-value]
    refused(stepped, "not stepped, got ExponentialLR after 1")
    with pytest.raises(TypeError, match=r"scheduler of torch\.optim, for lr_schedule, got 0\.1"):
        compile_step(nn.Linear(4, 3), torch.zeros(2, 4), lr_schedule=0.1)


def test_a_scheduler_that_does_more_than_scale_the_rate_is_refused() -> None:
    cycle, optimizer = partial(lr_scheduler.OneCycleLR, max_lr=0.3, total_steps=9), sgd()
    constant = lr_scheduler.ConstantLR(optimizer)
    for one in (cycle(sgd()), lr_scheduler.ChainedScheduler([constant, cycle(optimizer)])):
        with pytest.raises(ValueError, match="cycle_momentum=False"):
            as_schedule(one)
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": lr} for lr in (0.1, 0.2)]
    apart = torch.optim.SGD(groups)
    falling = as_schedule(lr_scheduler.LambdaLR(apart, [lambda _k: 1.0, lambda k: 0.5**k]))
    assert falling is not None and falling(0) == 0.1
    with pytest.raises(ValueError, match="by different factors"):
        falling(1)
    together = as_schedule(lr_scheduler.ExponentialLR(torch.optim.SGD(groups), 0.5))
    assert together is not None and together(2) == pytest.approx(0.025)
