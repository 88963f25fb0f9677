"""Steps that train in turns take the steps that each takes alone, and all keep their checkpoints."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tvm_xengine as xe
from tests.runtime.steps import batches, state_bytes
from tests.session.together.pairs import apart, planned
from tvm_xengine.errors import NotFiniteError
from tvm_xengine.state.checkpoint import read_checkpoint


@pytest.fixture(scope="module")
def plans(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> xe.PlansTogether:
    networks = {"left": "mlp", "right": "dropout and Adam"}
    return planned(networks, "one", tmp_path_factory.mktemp("disk"), cache)


def _batches(step: xe.Step, count: int = 7) -> list[dict[str, Any]]:
    return [batch for batch, _ in zip(batches(step), range(count), strict=False)]


def test_turns_go_by_shares_and_each_trains_as_alone(plans: xe.PlansTogether) -> None:
    steps, alone = xe.build_together(plans), apart(plans)
    seen: list[str] = []

    def noting(name: str) -> Callable[[xe.FitProgress], None]:
        return lambda progress: None if progress.validation else seen.append(name)

    found = xe.fit_together(
        {
            "left": xe.Workload(
                steps["left"], _batches(steps["left"]), share=2, on_progress=noting("l")
            ),
            "right": xe.Workload(
                steps["right"], _batches(steps["right"], 3), epochs=2, on_progress=noting("r")
            ),
        }
    )
    assert "".join(seen) == "llrllrllrlrrr"
    assert found["left"] == xe.fit(alone["left"], _batches(alone["left"]))
    assert found["right"] == xe.fit(alone["right"], _batches(alone["right"], 3), epochs=2)
    assert {n: state_bytes(s) for n, s in steps.items()} == {
        n: state_bytes(s) for n, s in alone.items()
    }


class _Shuffling:
    """Batches in an order that the global generators of PyTorch and numpy draw."""

    def __init__(self, step: xe.Step) -> None:
        self.batches = _batches(step)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number in torch.randperm(len(self.batches)).tolist():
            np.random.permutation(3)  # noqa: NPY002  (what users' code does)
            yield self.batches[number]


def test_each_has_the_state_of_the_global_generators_to_itself(plans: xe.PlansTogether) -> None:
    steps, alone = xe.build_together(plans), apart(plans)
    expected = {}
    for name, step in alone.items():
        torch.manual_seed(5)
        expected[name] = xe.fit(step, _Shuffling(step), epochs=3).losses
    torch.manual_seed(5)
    found = xe.fit_together(
        {n: xe.Workload(s, _Shuffling(s), epochs=3, share=2) for n, s in steps.items()}
    )
    assert {name: result.losses for name, result in found.items()} == expected


@pytest.mark.parametrize("at", ["left", "right"])
def test_an_interrupt_writes_the_checkpoints_of_all_which_resume(
    at: str, plans: xe.PlansTogether, tmp_path: Path
) -> None:
    def interrupt(progress: xe.FitProgress) -> None:
        if progress.step == 3:
            raise KeyboardInterrupt

    def run(**options: Any) -> dict[str, xe.FitResult]:
        steps = xe.build_together(plans)
        return xe.fit_together(
            {
                name: xe.Workload(
                    step,
                    _batches(step),
                    checkpoint=xe.CheckpointOptions(tmp_path / f"{name}.ckpt", resume=True),
                    **options.get(name, {}),
                )
                for name, step in steps.items()
            }
        )

    with pytest.raises(KeyboardInterrupt):
        run(**{at: {"on_progress": interrupt}})
    taken = {
        name: read_checkpoint(tmp_path / f"{name}.ckpt")[1].steps_taken for name in plans.plans
    }
    assert taken == {"left": 3, "right": 3 if at == "right" else 2}
    rest = run()
    for name, step in apart(plans).items():
        assert rest[name].losses == xe.fit(step, _batches(step)).losses[taken[name] :]


def test_where_one_fails_the_other_keeps_what_it_has(
    plans: xe.PlansTogether, tmp_path: Path
) -> None:
    steps = xe.build_together(plans)
    bad = _batches(steps["right"])
    name = next(name for name, value in bad[0].items() if value.dtype.kind == "f")
    bad[2] = {**bad[2], name: np.full_like(bad[2][name], np.nan)}
    path = tmp_path / "left.ckpt"
    with pytest.raises(NotFiniteError):
        xe.fit_together(
            {
                "left": xe.Workload(steps["left"], _batches(steps["left"]), checkpoint=path),
                "right": xe.Workload(steps["right"], bad),
            }
        )
    assert read_checkpoint(path)[1].steps_taken == 3
    assert steps["right"].steps_taken == 2


def test_a_share_of_nothing_is_refused(plans: xe.PlansTogether) -> None:
    step = apart(plans)["left"]
    with pytest.raises(ValueError, match="share must be >= 1, got 0"):
        xe.Workload(step, [], share=0)
