"""``python -m benchmarks.training.side_by_side [NETWORK...]``: two devices side by side against one.

Both devices are cores of this processor; nothing else may run. Steps of all kinds take turns.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tvm_xengine as xe
from benchmarks.record import record
from tvm_xengine.cost_models.measure.sentinel import BETWEEN_STEPS_S, Sentinel
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.session.loop.speed import slowdown_ratio
from tvm_xengine.session.plans.replan import MOST_STEPS, Replanning

NETWORKS: Mapping[str, Mapping[str, object]] = {
    "lenet": {},
    "resnet8": {},
    "ds_cnn": {},
    "gpt_nano": {},
    "unet": {"loss": "mse", "batch_size": 4},
    "resnet18": {},
    "mobilenetv2": {},
}
TIGHT = {"lenet", "gpt_nano", "unet", "resnet18", "mobilenetv2"}
"""Those that are also trained in a share of the memory."""
TIGHT_RATIO = 0.7
"""Of what keep-all needs beside the state, on every device: one device alone has to recompute."""
ROUNDS, FEWEST_ROUNDS, MEASURING_S = 25, 5, 10.0
"""Steps of each kind that count: so many, or of long steps as many as take so long."""
LIMIT_S = 8.0
"""Of each plan, so that a network takes at most five minutes."""
_TARGET = "llvm -mcpu=native"


def main(networks: Sequence[str]) -> None:
    """Record a row for each network and budget."""
    for network in networks or NETWORKS:
        for ratio in (None, TIGHT_RATIO) if network in TIGHT else (None,):
            record("side_by_side", _row(network, ratio))


def _row(network: str, ratio: float | None) -> Mapping[str, str | int | float | None]:
    one = xe.Platform((xe.Device("a", _TARGET),))
    threads = xe.Platform((xe.Device("a", f"{_TARGET} -num-cores=2"),))
    two = xe.Platform(
        (xe.Device("a", _TARGET, cores=(0,)), xe.Device("b", _TARGET, cores=(1,))),
        (xe.Link("a", "b"), xe.Link("b", "a")),
    )
    steps = {
        "one": _step(network, ratio, one, "cost"),
        "threads": _step(network, ratio, threads, "cost"),
        "two": _step(network, ratio, two, "makespan"),
    }
    # Threads of a pool look for work for a while after a step, which would take a core from the others.
    speeds_us: list[float] = []
    measured_us = _measured_us({name: steps[name] for name in ("one", "two")}, speeds_us)
    slowed = slowdown_ratio(steps["one"].plan, speeds_us) or 1.0
    measured_us |= _measured_us({"threads": steps["threads"]}, speeds_us)
    predicted_us = {name: step.plan.plan.step_us() for name, step in steps.items()}
    for name in ("one", "two"):
        _replan(steps[name])
    again_us = _measured_us({name: steps[name] for name in ("one", "two")}, speeds_us)
    replanned_us = {name: steps[name].plan.plan.step_us() for name in ("one", "two")}
    return {
        "network": network,
        "ratio": 1.0 if ratio is None else ratio,
        "one_ms": _ms(measured_us["one"]),
        "two_ms": _ms(measured_us["two"]),
        "gain": _gain(measured_us),
        "predicted_gain": _gain(predicted_us),
        "predicted_by_measured_one": round(predicted_us["one"] / measured_us["one"], 2),
        "slowed": round(slowed, 2),
        "predicted_as_slow_by_measured_one": round(
            slowed * predicted_us["one"] / measured_us["one"], 2
        ),
        "predicted_by_measured_two": round(predicted_us["two"] / measured_us["two"], 2),
        "replanned_two_ms": _ms(again_us["two"]),
        "replanned_gain": _gain(again_us),
        "replanned_by_measured_one": round(replanned_us["one"] / again_us["one"], 2),
        "replanned_by_measured_two": round(replanned_us["two"] / again_us["two"], 2),
        "threads_ms": _ms(measured_us["threads"]),
        "copies": steps["two"].plan.plan.schedule.transfers,
    }


def _gain(times_us: Mapping[str, float]) -> float:
    return round(1 - times_us["two"] / times_us["one"], 3)


def _replan(step: xe.Step) -> None:
    """Plan the step again with the times that its calls take, as `fit(..., replan=True)` does."""
    rng, replanning = np.random.default_rng(1), Replanning(step)
    for _ in range(MOST_STEPS):
        step.executable.write(batch_of(step, rng))
        step.executable.run()
        replanning.after_step()
    replanning.stop()


def _step(network: str, ratio: float | None, platform: xe.Platform, objective: str) -> xe.Step:
    return xe.compile(
        network,
        **NETWORKS[network],
        budget=ratio,
        platform=platform,
        objective=objective,
        time_limit_s=LIMIT_S,
    )


def _measured_us(steps: Mapping[str, xe.Step], speeds_us: list[float]) -> Mapping[str, float]:
    """The median time of a step of each kind, by the wall clock, right after one of its own kind.

    The first rounds do not count. Times of the reference workload meanwhile are added to `speeds_us`.
    """
    sentinel = Sentinel(BETWEEN_STEPS_S)
    rng = np.random.default_rng(0)
    times_us: dict[str, list[float]] = {name: [] for name in steps}
    round_us = 2 * sum(step.plan.plan.step_us() for step in steps.values())
    for _ in range(3 + min(ROUNDS, max(FEWEST_ROUNDS, int(1e6 * MEASURING_S / round_us)))):
        for name, step in steps.items():
            batch = batch_of(step, rng)
            for _ in range(2):
                step.executable.write(batch)
                begun_s = time.perf_counter()
                step.executable.run()
                took_us = (time.perf_counter() - begun_s) * 1e6
            times_us[name].append(took_us)
        speeds_us.append(sentinel.time_us())
    return {name: statistics.median(times[3:]) for name, times in times_us.items()}


def batch_of(step: xe.Step, rng: np.random.Generator) -> Mapping[str, NDArray[Any]]:
    views = step.executable.interface.inputs
    return {
        each: (0.01 * rng.random(views[each].shape)).astype(views[each].dtype)
        for each in step.executable.names(Role.BATCH, Role.HYPER)
    }


def _ms(time_us: float) -> float:
    return round(time_us / 1000, 3)


if __name__ == "__main__":
    main(sys.argv[1:])
