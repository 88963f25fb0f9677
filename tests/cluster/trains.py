"""One rank of a run that a test has started: trains a network, and writes what it saw.

``python -m tests.cluster.trains SETTINGS.json``, with a list of `Settings` as JSON: one after the other.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path

import numpy as np

import tvm_xengine as xe
from tvm_xengine.scheduling.platform import Device, Link, Platform

_MIB = 1 << 20
_LATE_S = 0.2
"""Each rank is late for a step once: what the others read must have been written then."""


@dataclass(frozen=True)
class Settings:
    """What to train, and on which devices.

    Attributes
    ----------
    ranks
        Rank of each device; the first one is the home of the state.
    budgets
        In bytes, by device; others have plenty.
    scattered
        Whether ops are pinned to devices by turns, so that many tensors move.
    pin
        Devices of ops by pattern, which take their place.
    solver
        Of the plan.
    replicas
        Samples of each device, over how many the batch is divided, or "auto"; None leaves it whole.
    targets
        Of the devices in turn.
    compares
        Whether the steps are guarded, and compared with a keep-all step on the home device, which takes
        more memory. Else nothing but the step itself makes ranks wait for each other.
    through_memory
        Whether the devices copy between ranks through memory; else there are messages.
    hosts
        Of the devices, in place of `ranks`.
    """

    model: str
    folder: str
    ranks: tuple[int, ...] = (0, 1)
    batch: int = 8
    size: int | None = None
    steps: int = 3
    budgets: dict[str, int] | None = None
    scattered: bool = True
    pin: dict[str, str] | None = None
    solver: str = "auto"
    optimizer: str = "adam"
    replicas: dict[str, int] | int | str | None = None
    targets: tuple[str, ...] = ("llvm -mcpu=native",)
    compares: bool = True
    through_memory: bool = False
    hosts: tuple[str, ...] | None = None

    @property
    def platform(self) -> Platform:
        names = [f"d{k}" for k in range(len(self.ranks))]
        given = self.budgets or {}
        devices = tuple(
            Device(name, target, given.get(name, 512 * _MIB), ("tir",), rank=rank)
            for name, rank, target in zip(names, self.ranks, cycle(self.targets), strict=False)
        )
        if self.hosts is not None:
            devices = tuple(
                replace(device, rank=0, host=host)
                for device, host in zip(devices, self.hosts, strict=True)
            )
        links = tuple(
            Link(a, b, 50.0, 1.0, engine=b if self.through_memory else None)
            for a in names
            for b in names
            if a != b
        )
        return Platform(devices, links)


@dataclass(frozen=True)
class Seen:
    """What a rank saw: losses, a hash of the state, transfers of the plan, samples of each share, bytes."""

    losses: list[float]
    state: str
    identical: bool
    transfers: int
    samples: list[int]
    arena_bytes: dict[str, int]
    planned_bytes: dict[str, int]


def train(settings: Settings, cache: Path) -> Seen:
    """Train as the settings say; losses, and a comparison with keep-all on the home device."""
    import hashlib

    options = {} if settings.size is None else {"size": settings.size}
    training = xe.training_step(
        settings.model, optimizer=settings.optimizer, batch_size=settings.batch, **options
    )
    platform = settings.platform
    lowered = xe.lower(training, platform, cache=cache, pin=settings.pin)
    if settings.scattered and settings.pin is None:
        ops = [op.name for op in lowered.step.extraction.graph.ops]
        names = [device.name for device in platform.devices]
        pin = {op: names[(k // 5) % len(names)] for k, op in enumerate(ops)}
        lowered = xe.lower(training, platform, cache=cache, pin=pin)
    plan = xe.plan(
        xe.make_problem(lowered, "roofline"),
        time_limit_s=4.0,
        solver=settings.solver,
        objective="makespan",
        replicas=settings.replicas,
    )
    step = xe.build(lowered, plan)
    if settings.compares:
        step.guard().compare_with_keep_all()
    random = np.random.default_rng(0)
    losses = []
    for _ in range(settings.steps):
        batch = drawn_batch(step, random)
        if len(losses) % platform.ranks == int(os.environ["RANK"]):
            time.sleep(_LATE_S)
        losses.append(float(step(batch)))
    state = step.state_dict()
    digest = hashlib.sha256(b"".join(np.asarray(state[name]).tobytes() for name in sorted(state)))
    comparison = step.comparison
    assert (comparison is not None) == settings.compares
    return Seen(
        losses,
        digest.hexdigest(),
        comparison is not None and comparison.is_identical,
        sum(1 for one in plan.plan.schedule.steps if type(one).__name__ == "Transfer"),
        [] if (cut := plan.planned.lowered.cut) is None else list(cut.share_samples),
        dict(step.executable.measured_peak_bytes),
        dict(plan.plan.arenas.arena_bytes),
    )


def drawn_batch(step: xe.Step, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Random values of a step's inputs."""
    interface = step.executable.interface
    batch = {}
    for name in step.batch_names:
        given, allowed = interface.given[name], interface.ranges.get(name)
        batch[name] = (
            random.standard_normal(given.shape).astype(given.dtype)
            if "float" in given.dtype
            else random.integers(0, allowed.high if allowed else 2, given.shape)
        )
    return batch


if __name__ == "__main__":
    given = [Settings(**each) for each in json.loads(Path(sys.argv[1]).read_text())]
    folder = Path(given[0].folder)
    seen = [asdict(train(settings, folder / "cache" / "measurements.jsonl")) for settings in given]
    (folder / f"seen_{os.environ['RANK']}.json").write_text(json.dumps(seen))
