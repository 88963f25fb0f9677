"""Training that goes from PyTorch to a compiled step and back is training in PyTorch."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import tvm_xengine as xe
from tests.api.networks import Attention, Convolutional, perceptron, recurrent
from tests.api.torch.in_pytorch import Batch, train
from tests.conftest import Compile
from tests.shares import share

NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor], int]] = {
    "perceptron": (perceptron, lambda: torch.randn(6, 6), 5),
    "convolutional": (Convolutional, lambda: torch.randn(6, 1, 6, 6), 5),
    "attention": (Attention, lambda: torch.randint(0, 11, (6, 4)), 11),
    "recurrent": (recurrent, lambda: torch.randn(6, 4, 3), 5),
    "plain": (lambda: nn.Linear(6, 3), lambda: torch.randn(6, 6), 3),
}
OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "momentum": lambda module: torch.optim.SGD(module.parameters(), 0.05, momentum=0.9),
    "adam": lambda module: torch.optim.Adam(module.parameters(), 0.002),
    "adamw": lambda module: torch.optim.AdamW(module.parameters(), 0.002, amsgrad=True),
}
SMALL = {"perceptron", "plain"}
STEPS = 50
"""Steps of a compiled step, and then as many in PyTorch."""

ROUNDING = 1e-6
"""Gradients smaller than this share of the largest one are rounding errors of a gradient of 0, such
as that of a bias in front of a batch norm. Adam follows their signs, so they are not compared."""


def compared(module: nn.Module, batch: Batch) -> dict[str, torch.Tensor]:
    """The elements of each tensor that are trained by more than rounding errors of a gradient of 0.

    The statistics of a norm move with a bias in front of it, so they count where all others do.
    """
    functional.cross_entropy(module(batch[0]), batch[1]).backward()
    gradients = {n: p.grad.abs() for n, p in module.named_parameters() if p.grad is not None}
    least = ROUNDING * max(gradient.max() for gradient in gradients.values())
    found = {name: gradient > least for name, gradient in gradients.items()}
    if all(mask.any() for mask in found.values()):
        found |= {n: torch.ones_like(b, dtype=torch.bool) for n, b in module.named_buffers()}
    return found


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    "network",
    share(NETWORKS, SMALL),
)
def test_there_and_back_is_as_if_pytorch_had_taken_every_step(
    compile_step: Compile, network: str, optimizer: str
) -> None:
    make, inputs, classes = NETWORKS[network]
    torch.manual_seed(0)
    module, reference, probe = make(), make(), make()
    reference.load_state_dict(module.state_dict())
    batches = [(inputs(), torch.randint(0, classes, (6,))) for _ in range(2 * STEPS)]
    expected = train(reference, OPTIMIZERS[optimizer](reference), batches)

    mine = OPTIMIZERS[optimizer](module)
    step = compile_step(module, batches[0][0], loss="cross_entropy", optimizer=mine)
    step.load_from(module, mine)
    losses = [float(step(x, labels)) for x, labels in batches[:STEPS]]
    step.load_into(module, mine)
    losses += train(module, mine, batches[STEPS:])

    assert losses == pytest.approx(expected, rel=1e-5, abs=1e-6)
    state = module.state_dict()
    for name, mask in compared(probe, batches[0]).items():
        expected_value = reference.state_dict()[name][mask]
        torch.testing.assert_close(state[name][mask], expected_value, rtol=1e-4, atol=1e-5)
    found, wanted = module(batches[0][0]), reference(batches[0][0])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_training_that_began_in_pytorch_goes_on_here(compile_step: Compile) -> None:
    torch.manual_seed(0)
    module, reference = perceptron(), perceptron()
    reference.load_state_dict(module.state_dict())
    batches = [(torch.randn(6, 6), torch.randint(0, 5, (6,))) for _ in range(20)]
    expected = train(reference, OPTIMIZERS["adam"](reference), batches)
    mine = OPTIMIZERS["adam"](module)
    losses = train(module, mine, batches[:10])
    step = compile_step(module, batches[0][0], loss="cross_entropy", optimizer=mine)
    step.load_from(module, mine)
    losses += [float(step(x, labels)) for x, labels in batches[10:]]
    assert losses == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(step.state_dict()["unused"], perceptron().state_dict()["unused"])


def test_groups_of_parameters_have_their_own_options_and_rates(compile_step: Compile) -> None:
    torch.manual_seed(0)
    module, reference = perceptron(), perceptron()
    reference.load_state_dict(module.state_dict())
    biases = [p for n, p in reference.named_parameters() if n.endswith("bias")]
    weights = [p for n, p in reference.named_parameters() if n.endswith("weight")]
    theirs = torch.optim.SGD(
        [{"params": weights}, {"params": biases, "lr": 0.2, "weight_decay": 0.0}],
        lr=0.1,
        weight_decay=0.05,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(theirs, lambda step: 0.8**step)
    step = compile_step(
        module,
        torch.randn(4, 6),
        loss=nn.CrossEntropyLoss(label_smoothing=0.1),
        optimizer=xe.SGD(0.1, weight_decay=0.05),
        groups={"*.bias": xe.SGD(0.2)},
        lr_schedule=lambda step: 0.1 * 0.8**step,
        clip_value=0.05,
    )
    for _ in range(4):
        x, labels = torch.randn(4, 6), torch.randint(0, 5, (4,))
        loss = functional.cross_entropy(reference(x), labels, label_smoothing=0.1)
        theirs.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(reference.parameters(), 0.05)
        theirs.step()
        schedule.step()
        assert step(x, labels) == pytest.approx(loss.item(), rel=1e-5)
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(step.state_dict()[name], value, rtol=1e-5, atol=1e-6)


def test_a_group_without_parameters_is_refused() -> None:
    with pytest.raises(xe.XEngineError, match=r"'head\.\*' matches no parameter"):
        xe.training_step(perceptron(), torch.randn(4, 6), groups={"head.*": xe.SGD()})


class _NormTwice(nn.Module):
    """One batch norm for two layers, as heads with shared weights have."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(4, 4)
        self.norm, self.last = nn.BatchNorm1d(4), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.norm(self.first(x)).relu()
        return self.last(self.norm(self.second(hidden)))


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 3])
def test_each_call_of_a_norm_counts(compile_step: Compile, parts: int) -> None:
    """Twice per batch, and in every micro-batch; here under a budget that recomputes."""
    torch.manual_seed(4)
    module = _NormTwice()
    step = compile_step(
        module,
        torch.zeros(8, 6),
        loss="cross_entropy",
        optimizer=xe.SGD(0.1),
        micro_batches=parts,
        budget=0.7,
    )
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(4):
        x, labels = torch.randn(8 * parts, 6), torch.randint(0, 4, (8 * parts,))
        step(x, labels)
        optimizer.zero_grad()
        for part, wanted in zip(x.chunk(parts), labels.chunk(parts), strict=True):
            (functional.cross_entropy(module(part), wanted) / parts).backward()
        optimizer.step()
    found = step.state_dict()
    assert found["norm.num_batches_tracked"] == 8 * parts
    assert found["last.num_batches_tracked"] == 4 * parts
    for name, value in module.state_dict().items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


def test_an_optimizer_that_holds_parameters_in_another_order_gets_its_own_state(
    compile_step: Compile,
) -> None:
    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))

    def optimizer(module: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(list(module.parameters())[::-1], 0.01)

    torch.manual_seed(0)
    module, reference = network(), network()
    reference.load_state_dict(module.state_dict())
    batches = [(torch.randn(6, 6), torch.randint(0, 6, (6,))) for _ in range(15)]
    expected = train(reference, optimizer(reference), batches)
    mine = optimizer(module)
    losses = train(module, mine, batches[:5])
    step = compile_step(module, batches[0][0], loss="cross_entropy", optimizer=mine)
    step.load_from(module, mine)
    losses += [float(step(x, labels)) for x, labels in batches[5:10]]
    step.load_into(module, mine)
    losses += train(module, mine, batches[10:])
    assert losses == pytest.approx(expected, rel=1e-5)

    torch.optim.lr_scheduler.OneCycleLR(mine, max_lr=0.1, total_steps=9, cycle_momentum=False)
    kept = {name: mine.param_groups[0][name] for name in ("initial_lr", "max_lr")}
    step.load_into(module, mine)
    assert kept.items() <= mine.param_groups[0].items()


def test_an_optimizer_of_other_parameters_is_refused(compile_step: Compile) -> None:
    module = nn.Linear(6, 3)
    step = compile_step(module, torch.randn(6, 6), loss="cross_entropy", optimizer="sgd")
    for wrong, words in (
        (torch.optim.SGD(nn.Linear(6, 3).parameters(), 0.1), "no parameter of the module"),
        (torch.optim.SGD([module.weight], 0.1), "does not hold bias"),
    ):
        with pytest.raises(xe.XEngineError, match=words):
            step.load_into(module, wrong)


def test_a_step_is_not_copied(compile_step: Compile) -> None:
    step = compile_step(nn.Linear(6, 3), torch.randn(6, 6), loss="cross_entropy")
    with pytest.raises(TypeError, match="state_dict"):
        copy.deepcopy(step)


def test_the_state_of_an_exported_program_is_that_of_its_module() -> None:
    module = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).train()
    module.register_buffer("idle", torch.arange(3.0))
    program = torch.export.export(module, (torch.randn(5, 6),))
    lowered = xe.lower(xe.training_step(program, loss="cross_entropy"))
    plan = xe.plan(xe.make_problem(lowered, costs="roofline"), time_limit_s=5)
    step = xe.build(lowered, plan)
    for _ in range(2):
        step.step(torch.randn(5, 6), torch.arange(5) % 3)
    state = {name: torch.as_tensor(np.asarray(one)) for name, one in step.state_dict().items()}
    assert state.keys() == module.state_dict().keys()
    assert int(state["1.num_batches_tracked"]) == 2
    module.load_state_dict(state)
    step.load_state_dict(state)


def test_constants_inside_a_program_are_no_state() -> None:
    class Masked(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.scores = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mask = torch.ones(4, 4, dtype=torch.bool).tril()
            return torch.where(mask, self.scores(x), -1.0)

    program = torch.export.export(Masked().train(), (torch.randn(3, 4, 4),))
    lowered = xe.lower(xe.training_step(program, loss="mse"))
    plan = xe.plan(xe.make_problem(lowered, costs="roofline"), time_limit_s=5)
    assert xe.build(lowered, plan).state_dict().keys() == {"scores.weight", "scores.bias"}
