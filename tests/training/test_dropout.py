"""Dropout is a function of seed, step and op, and nothing else."""

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import relax

from tests.shares import share
from tests.training.autograd import exported
from tests.training.running import ReferenceRun
from tests.vm import computed, reference_vm
from tvm_xengine.compiler.build import build_step
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.kernels.te.randomness import dropout
from tvm_xengine.relax_ir.forward_ops import read_forward_ops
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost
from tvm_xengine.training.build import build_step_by_recipe, build_training_step
from tvm_xengine.training.emitter import Emitter
from tvm_xengine.training.forward.evaluation import evaluation_module
from tvm_xengine.training.gradients.elements.randomness import DROPOUT
from tvm_xengine.training.losses import MEAN_SQUARED_ERROR
from tvm_xengine.training.recipe import Recipe


class WithDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64, 64))
        self.first, self.second = nn.Dropout(0.25), nn.Dropout(0.25)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x) * self.weight)


def _masks(*keys: tuple[int, int, int], rate: float = 0.25) -> list[np.ndarray]:
    """What dropout makes of ones, for each (seed, step, op)."""
    builder = relax.BlockBuilder()
    emitter = Emitter(builder)
    x = relax.Var("x", relax.TensorType((64, 100), "float32"))
    seed, step = (relax.Var(n, relax.TensorType((), "int32")) for n in ("seed", "step"))
    with builder.function("main", params=[x, seed, step]):
        with builder.dataflow():
            made = [
                emitter.call(dropout, [x, seed, step], "y", rate=rate, op=op) for _, _, op in keys
            ]
            output = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(output)
    main = reference_vm(builder.get())["main"]
    ones = np.ones((64, 100), "float32")
    return [
        main(*(tvm.runtime.tensor(v) for v in (ones, np.int32(seed), np.int32(step))))[k].numpy()
        for k, (seed, step, _) in enumerate(keys)
    ]


def _hash(word: np.ndarray) -> np.ndarray:
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        word = (word ^ (word >> np.uint32(shift))) * np.uint32(factor)
    return word


def _dropped(size: int, rate: float, seed: int, step: int, op: int) -> np.ndarray:
    """Which elements dropout makes zero."""
    with np.errstate(over="ignore"):
        salt = np.uint32((op * 0x85EBCA6B + 0x27D4EB2F) % 2**32)
        word = _hash(_hash(np.array(seed, "uint32")) ^ np.uint32(step))
        key = _hash(word ^ salt)
        random = _hash(_hash(np.arange(size, dtype="uint32")) ^ key)
    return random.astype("float32") * np.float32(2.0**-32) < np.float32(rate)


def test_mask_is_the_hash_of_the_key_and_the_position() -> None:
    (mask,) = _masks((12345, 678, 9))
    np.testing.assert_array_equal(mask.ravel() == 0, _dropped(6400, 0.25, 12345, 678, 9))


def test_equal_keys_give_equal_masks_and_others_independent_ones() -> None:
    first, again, *others = _masks((1, 2, 3), (1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4))
    np.testing.assert_array_equal(first, again)
    for other in others:
        both = ((first == 0) & (other == 0)).mean()
        assert both == pytest.approx(0.25**2, abs=0.015)


def test_share_of_zeros_is_the_rate_and_the_mean_stays() -> None:
    (mask,) = _masks((7, 0, 0), rate=0.3)
    assert (mask == 0).mean() == pytest.approx(0.3, abs=0.02)
    assert mask.mean() == pytest.approx(1, abs=0.03)
    assert set(np.unique(mask)) == {np.float32(0), np.float32(1 / 0.7)}


def test_backward_uses_the_mask_of_the_forward() -> None:
    x = torch.ones(64, 64)
    model = exported(WithDropout().train(), x)
    run = ReferenceRun(build_step_by_recipe(model, Recipe(loss=MEAN_SQUARED_ERROR), seed=3))
    target = np.zeros((64, 64), "float32")
    loss = run(x.numpy(), target, lr=0.0)["loss"]
    gradient = run.gradients()["weight"]
    # y = m w with m in {0, 1 / 0.75, 1 / 0.75^2 ...} and w = 1: loss = mean(y^2), dw = 2 m y / n.
    output = np.sqrt(gradient * gradient.size / 2)
    assert loss == pytest.approx(np.square(output).mean(), rel=1e-4)
    assert (gradient == 0).mean() == pytest.approx(1 - 0.75**2, abs=0.05)


def test_masks_change_from_step_to_step_and_with_the_seed() -> None:
    x = torch.ones(64, 64)
    model = exported(WithDropout().train(), x)
    target = np.zeros((64, 64), "float32")
    recipe = Recipe(loss=MEAN_SQUARED_ERROR)
    run = ReferenceRun(build_step_by_recipe(model, recipe, seed=3))
    losses = [run(x.numpy(), target, lr=0.0)["loss"] for _ in range(2)]
    run.state = {**run.step.initial_state, "seed": np.array(4, "int32")}
    losses.append(run(x.numpy(), target, lr=0.0)["loss"])
    assert len(set(losses)) == 3


def test_evaluation_drops_nothing() -> None:
    x = torch.randn(64, 64)
    model = exported(WithDropout().train(), x)
    (made,) = computed(evaluation_module(model), [x.numpy(), *model.state.values()])
    np.testing.assert_array_equal(made, x.numpy())


def test_state_has_a_seed_only_when_something_is_drawn() -> None:
    plain = build_training_step(exported(nn.Linear(3, 2), torch.randn(4, 3)))
    assert {"seed", "step"}.isdisjoint(plain.state_names)


class Drops(nn.Module):
    """Dropouts with known masks, where PyTorch is to compute them.

    Parameters
    ----------
    ops
        Number of each dropout in the model; None leaves them to ``torch.export``.
    """

    def __init__(self, ops: list[int] | None) -> None:
        super().__init__()
        self.ops = None if ops is None else iter(ops)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.ops is None:
            return nn.functional.dropout(x, 0.25)
        dropped = _dropped(x.numel(), 0.25, seed=3, step=0, op=next(self.ops)).reshape(x.shape)
        return torch.where(torch.from_numpy(dropped), 0, x / 0.75)


CHAINS = {
    "two": lambda x, w, drop: drop(drop(x)) * w,
    "three behind a product": lambda x, w, drop: drop(drop(drop(x @ w))),
    "two before a product": lambda x, w, drop: drop(drop(x * w)) @ w,
    "two in a condition": lambda x, w, drop: nn.functional.leaky_relu(drop(drop(x @ w))),
    "two in a polynomial": lambda x, w, drop: nn.functional.gelu(drop(drop(x * w))),
    "in a sum": lambda x, w, drop: (drop(torch.ones(24, *x.shape)) * 0.1).sum(0) * (x @ w),
    "around attention": lambda x, w, drop: drop(drop(drop(drop((x @ w).softmax(-1)) @ x))),
}


class Chain(nn.Module):
    def __init__(self, name: str, size: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.chain = CHAINS[name]
        self.weight = nn.Parameter(torch.randn(size, size))
        self.drop = Drops(None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.chain(x, self.weight, self.drop)


@pytest.mark.parametrize("size", share((1, 7, 20), (7,)))
@pytest.mark.parametrize("chain", CHAINS)
def test_dropouts_in_a_row_compute_in_one_kernel_what_pytorch_does(
    chain: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.randn(size, size)
    module = Chain(chain, size).train()
    target = torch.randn_like(module(x))
    model = exported(module, x)
    training = build_step_by_recipe(model, Recipe(loss=MEAN_SQUARED_ERROR), seed=3)
    platform = Platform((Device("cpu", "llvm -mcpu=native", kernels=("tir",)),))
    lowered = lower_step(training.mod, platform)
    assert "schedule failed" not in caplog.text
    costs = {kernel.symbol: OpCost(1.0) for kernel in lowered.kernels.values()}
    executable = build_step(lowered, plan_keep_all(make_problem(lowered, lambda _: costs), "cpu"))
    executable.write(training.initial_state)
    batch = dict(zip(training.batch_names, (x.numpy(), target.numpy()), strict=True))
    results = executable.step({**batch, "lr": np.float32(0)})

    module.drop = Drops(
        [k for k, op in enumerate(read_forward_ops(model.main).ops) if op.op == DROPOUT]
    )
    expected = nn.functional.mse_loss(module(x), target)
    expected.backward()
    assert float(results["loss"]) == pytest.approx(expected.item(), rel=1e-5)
    wanted = module.weight.grad.numpy()
    found = executable.read_state()["weight_velocity"]
    np.testing.assert_allclose(found, wanted, atol=1e-5 * max(np.abs(wanted).max(), 1e-9), rtol=0)
