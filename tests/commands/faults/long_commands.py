"""Commands that run long enough to be interrupted, with what each needs in its folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.cost_models.synthetic import synthetic
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder, KernelRecord
from tvm_xengine.cost_models.measure.measurements import Measurement

LLVM = '{"kind":"llvm","mtriple":"x86_64-linux-gnu"}'


@dataclass(frozen=True)
class LongCommand:
    """A command and the name of the files that it needs.

    Attributes
    ----------
    arguments
        Paths are relative to the working folder.
    needs
        Names of `_MAKERS`.
    """

    arguments: tuple[str, ...]
    needs: tuple[str, ...] = field(default=())

    def prepare(self, folder: Path) -> None:
        """Write what it needs into its working folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in self.needs:
            shutil.copytree(_made(name).name, folder, dirs_exist_ok=True)


def write_dataset(folder: Path, kernels: int, family: str = "") -> None:
    """A dataset of made-up kernels on two devices, every other one of a family where it is given."""
    made = DatasetFolder(folder)
    for slowdown in (1.0, 3.0):
        data = synthetic(kernels, seed=int(slowdown), slowdown=slowdown, families=3)
        for k, kernel in enumerate(data.kernels):
            families = (family,) if family and k % 2 else data.families[k]
            row = KernelRecord(
                *(
                    kernel,
                    data.devices[k],
                    LLVM,
                    data.names[k],
                    families,
                    "",
                ),
                *(data.table.feature_set, tuple(data.table.values[k])),
                *(data.table.work[k], data.table.flops[k], data.table.moved_bytes[k], 0),
            )
            made.add(row, data.table.names)
            time_us = float(data.time_us[k])
            made.measurements.add(
                Measurement(
                    *(kernel, data.devices[k], data.names[k], time_us, time_us, time_us * 1.03),
                    *("thread", ((time_us,), (time_us * 1.03,))),
                )
            )


def _write_large_dataset(folder: Path) -> None:
    write_dataset(folder / "kernels", kernels=1500)


def _write_problem(folder: Path) -> None:
    from tvm_xengine.__main__ import main

    problem = str(folder / "problem.json")
    saved = ("plan", "resnet8", "--costs", "roofline", "--solver", "greedy", "--quiet")
    assert main([*saved, "--save-problem", problem]) == 0


def _write_plan(folder: Path) -> None:
    from tvm_xengine.__main__ import main

    plan = str(folder / "plan.json")
    made = ("plan", "resnet8", "--costs", "roofline", "--solver", "greedy", "--quiet")
    assert main([*made, "--budget-ratio", "0.6", "--save-plan", plan]) == 0


def _write_state(folder: Path) -> None:
    from tvm_xengine.__main__ import main

    state = str(folder / "trained.npz")
    made = ("train", "resnet8", "--steps", "1", "--costs", "roofline", "--solver", "greedy")
    assert main([*made, "--quiet", "--save", state]) == 0


def _write_two_ranks(folder: Path) -> None:
    (folder / "two.toml").write_text(TWO_RANKS, encoding="utf-8")


TWO_RANKS = """
[[device]]
name = "first"
budget = "8MiB"
target = "llvm"

[[device]]
name = "second"
budget = "8MiB"
target = "llvm"
rank = 1

[[link]]
src = "first"
dst = "second"
both_ways = true
latency_us = 40.0
bandwidth_gb_s = 3.0
"""

_MAKERS = {
    "dataset": _write_large_dataset,
    "problem": _write_problem,
    "plan": _write_plan,
    "state": _write_state,
    "two ranks": _write_two_ranks,
}


@cache
def _made(name: str) -> TemporaryDirectory[str]:
    """A folder that is removed with the process."""
    folder = TemporaryDirectory()
    _MAKERS[name](Path(folder.name))
    return folder


LONG_COMMANDS: Mapping[str, LongCommand] = {
    "plan": LongCommand(("plan", "resnet8", "--budget-ratio", "0.5", "--json", "report.json")),
    "plan, measured": LongCommand(
        ("plan", "resnet8", "--costs", "measured", "--cache", "measurements.jsonl")
    ),
    "pareto": LongCommand(("pareto", "resnet8", "--json", "front.json")),
    "solve": LongCommand(
        ("solve", "problem.json", "--budget-ratio", "0.3", "--save-schedule", "schedule.json"),
        needs=("problem",),
    ),
    "train": LongCommand(
        (
            *("train", "lenet", "--steps", "100000", "--budget-ratio", "0.9"),
            *("--checkpoint", "run.ckpt", "--checkpoint-every", "5", "--save", "state.npz"),
        )
    ),
    "train of two": LongCommand(
        (
            *("train", "lenet", "mlp", "--steps", "100000", "--costs", "roofline"),
            *("--time-limit", "4", "--checkpoint", "run.ckpt", "--save", "state.npz"),
        )
    ),
    "train of two ranks": LongCommand(
        (
            *("launch", "train", "lenet", "--platform", "two.toml", "--steps", "100000"),
            *("--checkpoint", "run.ckpt", "--checkpoint-every", "5", "--save", "state.npz"),
        ),
        needs=("two ranks",),
    ),
    "eval": LongCommand(
        ("eval", "resnet8", "--state", "trained.npz", "--json", "report.json"), needs=("state",)
    ),
    "estimate": LongCommand(
        ("estimate", "resnet8", "--largest-batch", "64MiB", "--json", "memory.json")
    ),
    "explain": LongCommand(
        ("explain", "plan.json", "--solve-again", "10", "--report", "plan.html"), needs=("plan",)
    ),
    "export": LongCommand(
        ("export", "resnet8", "-o", "package", "--arena-bytes", "8MiB", "--target", "host")
    ),
    "tune": LongCommand(
        ("tune", "resnet8", "--database", "tuned", "--cache", "measurements.jsonl")
    ),
    "costs collect": LongCommand(
        ("costs", "collect", "--dataset", "collected", "--kernels", "500")
    ),
    "costs measure": LongCommand(("costs", "measure", "resnet8", "--cache", "measurements.jsonl")),
    "costs calibrate": LongCommand(("costs", "calibrate", "-o", "machine.json")),
    "costs train": LongCommand(
        ("costs", "train", "--dataset", "kernels", "-o", "my.costmodel"), needs=("dataset",)
    ),
    "costs eval": LongCommand(
        ("costs", "eval", "--dataset", "kernels", "--json", "judged.json"), needs=("dataset",)
    ),
    "costs transfer": LongCommand(
        ("costs", "transfer", "--dataset", "kernels", "--json", "judged.json"), needs=("dataset",)
    ),
}


_SMALLEST = {"resnet8": "mlp", "lenet": "mlp"}

_AT_ONCE: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("plan", "pareto"), ("--costs", "roofline")),
    **dict.fromkeys(("train", "train of two ranks"), ("--costs", "roofline", "--solver", "greedy")),
}
"""Options with which nothing is measured, and what follows the search begins within seconds."""

QUICK_COMMANDS: Mapping[str, LongCommand] = {
    name: command  # what it needs is of the larger network
    if "state" in command.needs
    else LongCommand(
        (*(_SMALLEST.get(each, each) for each in command.arguments), *_AT_ONCE.get(name, ())),
        command.needs,
    )
    for name, command in LONG_COMMANDS.items()
}
"""The same on the smallest network, so that their last phases come within seconds."""
