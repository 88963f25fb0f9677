"""What kernels are defined to compute is what PyTorch computes in float64."""

import numpy as np
import pytest
import torch

import tvm_xengine as xe
from benchmarks.embedded.parity.compare import differences
from benchmarks.embedded.parity.in_torch import OPTIMIZERS, RATE, run_in_torch
from benchmarks.embedded.parity.networks import CASES
from tvm_xengine.aot.c_library import BINARY, UNARY
from tvm_xengine.aot.check.definitions.expressions import FUNCTIONS, _elements
from tvm_xengine.aot.check.definitions.functions import defined_function, in_kernels
from tvm_xengine.training.saved_names import saved_names

STEPS = 3
USUAL = ("missed_edges", "text")
CONSTANTS = 5e-7
"""Constants such as the learning rate are numbers of float32 here, and of float64 in PyTorch."""


@pytest.mark.parametrize(
    "network",
    [pytest.param(n, marks=() if n in USUAL else pytest.mark.slow) for n in CASES],
)
def test_a_step_is_pytorchs_in_float64(network: str) -> None:
    case = CASES[network]
    batches = case.batches(STEPS)
    optimizer = OPTIMIZERS["momentum"][0]
    made = xe.training_step(
        case.module(), torch.from_numpy(batches[0][0]), loss=case.loss, optimizer=optimizer
    )
    training = made.step
    step = defined_function(in_kernels(training.mod, "train_step"), "train_step", np.float64)
    state, losses = dict(training.initial_state), []
    for batch in batches:
        given = dict(zip(training.batch_names, batch, strict=False))
        results, new = step({**state, **given, "lr": np.float32(RATE)})
        state |= new
        losses.append(float(results["loss"]))
    names = saved_names(state, made.source.training.roles, training.slots)
    found = {names[name][0]: value for name, value in state.items()}
    exact = run_in_torch(case, "momentum", batches, torch.float64)
    assert max(differences((np.array(losses), found), exact).values()) < CONSTANTS


def test_windows_of_different_sizes_are_summed() -> None:
    """The loops over a window depend on its place."""
    module = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 2), torch.nn.AdaptiveAvgPool2d((3, 2)), torch.nn.Flatten()
    )
    x = torch.randn(4, 2, 8, 6)
    training = xe.training_step(module, x, loss="cross_entropy", optimizer=xe.SGD(RATE)).step
    step = defined_function(in_kernels(training.mod, "train_step"), "train_step", np.float64)
    labels = torch.tensor([0, 5, 2, 1])
    given = dict(zip(training.batch_names, (x.numpy(), labels.numpy()), strict=True))
    results, new = step({**training.initial_state, **given, "lr": np.asarray(RATE, "float32")})
    exact = module.double()
    loss = torch.nn.functional.cross_entropy(exact(x.double()), labels)
    loss.backward()
    assert float(results["loss"]) == pytest.approx(loss.item(), rel=1e-9)
    for value, parameter in zip(new.values(), exact.parameters(), strict=True):
        updated = parameter.detach() - RATE * parameter.grad
        np.testing.assert_allclose(value.astype(float), updated, atol=CONSTANTS)


def test_every_function_that_c_calls_is_known() -> None:
    assert set(FUNCTIONS) >= {*UNARY, *BINARY}


def test_elements_are_those_at_their_places() -> None:
    """Each dimension alone, two that move along one loop, an edge that is met again, and one place."""
    array = np.arange(4 * 5 * 6).reshape(4, 5, 6)
    i, j, k = np.arange(4).reshape(4, 1, 1), np.arange(3).reshape(1, 3, 1), np.arange(2)
    windows = np.minimum(j + k.reshape(1, 1, 2), 3)
    for places in ((i, windows, np.asarray(5)), (i, i, windows), (i // 2, np.asarray(0), 2 * j)):
        found = _elements(array, places)
        np.testing.assert_array_equal(found, array[places])
    assert _elements(np.asarray(3.0), ()) == 3.0
