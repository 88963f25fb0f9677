"""A step over several processes computes what one process computes, in planned memory."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import tvm_xengine as xe
from tests.cluster.trains import Seen, Settings, drawn_batch
from tvm_xengine.cluster.launch import run_processes
from tvm_xengine.errors import NoScheduleError


def _seen_by_ranks(*trainings: Settings, hosts: tuple[str, ...] = ()) -> list[list[Seen]]:
    """For each training what each rank saw; `hosts` are those that they stand for."""
    folder = Path(trainings[0].folder)
    file = folder / "settings.json"
    file.write_text(json.dumps([asdict(settings) for settings in trainings]))
    ranks = 1 + max(trainings[0].ranks)
    command = ["-m", "tests.cluster.trains", str(file)]
    assert run_processes(command, ranks, hosts=hosts, timeout_s=60) is None
    found = [json.loads((folder / f"seen_{rank}.json").read_text()) for rank in range(ranks)]
    return [[Seen(**of_rank[k]) for of_rank in found] for k in range(len(trainings))]


def _check(seen: list[Seen]) -> None:
    first = seen[0]
    assert first.transfers
    # The reference runs in one process; with the same kernels it agrees bit by bit.
    assert first.identical
    assert first.arena_bytes == first.planned_bytes
    assert all(other == first for other in seen[1:])


def test_two_ranks_take_the_steps_of_one(tmp_path: Path) -> None:
    settings = Settings("mlp", str(tmp_path), pin={"fc2*": "d1"}, solver="keep-all")
    others = replace(settings, compares=False, through_memory=True)
    # The host of the first device runs the second rank.
    with_messages, through_memory = _seen_by_ranks(
        settings, replace(others, hosts=("alpha", "beta")), hosts=("beta", "alpha")
    )
    _check(with_messages)
    for seen in through_memory:
        assert seen.transfers
        assert (seen.losses, seen.state) == (with_messages[0].losses, with_messages[0].state)
        assert seen.arena_bytes == seen.planned_bytes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "size", "ranks"),
    [
        ("lenet", None, (0, 1)),
        ("resnet8", None, (0, 1, 2)),
        ("ds_cnn", None, (0, 1)),
        ("gpt_nano", 8, (0, 1, 1)),
        ("mobilenetv2", 32, (0, 1)),
        ("mlp", None, (1, 0)),
        ("lenet", None, (0, 1, 2, 3)),
    ],
)
def test_networks_over_ranks(
    model: str, size: int | None, ranks: tuple[int, ...], tmp_path: Path
) -> None:
    (seen,) = _seen_by_ranks(Settings(model, str(tmp_path), ranks=ranks, batch=4, size=size))
    _check(seen)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "ranks", "replicas", "budgets"),
    [
        ("lenet", (0, 1), {"d0": 5, "d1": 3}, {"d1": 500_000}),
        ("resnet8", (0, 1), 2, {}),
        ("mlp", (0, 1, 2), 3, {}),
        ("mlp", (0, 1, 2, 3), 4, {}),
    ],
)
def test_replicas_over_ranks_lose_as_one_process_does(
    model: str,
    ranks: tuple[int, ...],
    replicas: dict[str, int] | int,
    budgets: dict[str, int],
    tmp_path: Path,
) -> None:
    settings = Settings(
        model, str(tmp_path), ranks=ranks, scattered=False, replicas=replicas, budgets=budgets
    )
    (seen,) = _seen_by_ranks(settings)
    _check(seen)
    assert all(seen[0].arena_bytes[device] <= most for device, most in budgets.items())
    np.testing.assert_allclose(seen[0].losses, _losses_alone(settings), rtol=1e-4)


@pytest.mark.slow
def test_a_slower_rank_gets_fewer_samples(tmp_path: Path) -> None:
    settings = Settings(
        *("lenet", str(tmp_path)), batch=64, scattered=False, replicas="auto",
        targets=("llvm -mcpu=native -num-cores=1", "llvm -mcpu=x86-64 -num-cores=1"),
    )  # fmt: skip
    (seen,) = _seen_by_ranks(settings)
    assert all(other == seen[0] for other in seen[1:])
    fast, slow = seen[0].samples
    assert fast > slow > 0
    np.testing.assert_allclose(seen[0].losses, _losses_alone(settings), rtol=1e-4)


@pytest.mark.slow
def test_an_unequal_pair_trains_what_neither_can_alone(tmp_path: Path) -> None:
    """State and a gradient of the largest layer need more than either has; slices do not make them less."""
    settings = Settings(
        *("mlp", str(tmp_path)), batch=16, scattered=False, optimizer="sgd", steps=2,
        budgets={"d0": 190_000, "d1": 95_000}, through_memory=True, compares=False,
    )  # fmt: skip
    alone = settings.platform.only(["d0"])
    with pytest.raises(NoScheduleError):
        xe.compile("mlp", batch_size=16, optimizer="sgd", costs="roofline", platform=alone)
    (seen,) = _seen_by_ranks(settings)
    assert all(other == seen[0] for other in seen[1:])
    assert settings.budgets is not None
    assert all(seen[0].arena_bytes[name] <= most for name, most in settings.budgets.items())
    np.testing.assert_allclose(seen[0].losses, _losses_alone(settings), rtol=1e-5)


_CATCHES = """
import os, sys
import tvm_xengine as xe
from tests.cluster.trains import Settings

platform = Settings("mlp", "", budgets={{"d0": 1 << 12, "d1": 1 << 12}}).platform
lowered = xe.lower(xe.training_step("mlp", batch_size=2), platform)
try:
    xe.plan(xe.make_problem(lowered, "roofline"), time_limit_s=2)
except xe.XEngineError as error:
    open(os.path.join({folder!r}, os.environ["RANK"]), "w").write(str(error))
    lowered.step.ranks.meet()  # the others are told before a process ends
    sys.exit(3)
"""


@pytest.mark.slow
def test_a_plan_that_fails_ends_all_ranks_with_its_reason(tmp_path: Path) -> None:
    program = _CATCHES.format(folder=str(tmp_path))
    failed = run_processes(["-c", program], 2, timeout_s=60)
    assert failed is not None
    assert (failed.code, failed.lost) == (3, ())
    said = [(tmp_path / str(rank)).read_text() for rank in range(2)]
    assert said[1] == f"rank 0 has failed: {said[0]}"


def _losses_alone(settings: Settings) -> list[float]:
    """Of the same steps on one device."""
    alone = xe.compile(
        settings.model, batch_size=settings.batch, optimizer=settings.optimizer, costs="roofline",
        solver="keep-all",
    )  # fmt: skip
    random = np.random.default_rng(0)
    return [float(alone(drawn_batch(alone, random))) for _ in range(settings.steps)]
