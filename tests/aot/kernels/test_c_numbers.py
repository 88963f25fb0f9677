"""At NaN, infinities, zeros and ties kernels in C compute what LLVM's code computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.aot.examples import need_tools
from tests.aot.kernels.test_c_kernel import C, differences
from tests.databases.step import as_step
from tests.databases.test_torch_ties import KINDS, ROWS
from tests.databases.torch_judge import judge
from tests.databases.torch_samples import Sample
from tests.databases.verdict import Status
from tests.databases.vjp import FUNCTION, Evaluation, evaluate
from tvm_xengine.aot.plan.kernels import Optimize, lower_for_target
from tvm_xengine.frontends.model import Array, ForwardModel
from tvm_xengine.scheduling.platform import Device, Platform

ODD = (nan, inf, -inf, 0.0, -0.0, 1.0, 2.0, 2.0, -1.0, 0.5)


def odd(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers that kernels treat in ways of their own, and of which many are equal."""
    return np.asarray(random.choice(ODD, size=shape))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_in_c_treat_odd_numbers_as_those_of_llvm(kind: str, tmp_path: Path) -> None:
    need_tools("host")
    checked: list[str] = []
    wrong: list[str] = []

    def run(model: ForwardModel, inputs: Sequence[Array], above: Mapping[int, Array]) -> Evaluation:
        platform = Platform((Device("cpu", "c"),), alignment_bytes=8)
        step = as_step(model, inputs, above)
        lowered = lower_for_target(step.mod, platform, C, Optimize.SPEED, FUNCTION)
        kernels = list({kernel.symbol: kernel for kernel in lowered.kernels.values()}.values())
        folder = tmp_path / str(len(checked))
        folder.mkdir()
        checked.extend(kernel.name for kernel in kernels)
        wrong.extend(differences(kernels, folder, odd))
        return evaluate(model, inputs, above)

    row = ROWS["ties"]
    rows = torch.tensor([row, row[::-1]])
    samples = [Sample(function, ((rows,), {})) for function in KINDS[kind].values()]
    verdicts = judge("rows", samples, run)
    assert all(status is not Status.CRASHED for status, _ in verdicts), verdicts
    assert len(checked) > len(samples) // 2
    assert not wrong
