"""``python -m benchmarks.training.side_by_side [NETWORK...]``: two devices side by side against one.

Both devices are cores of this processor; nothing else may run. Steps of all kinds take turns.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence

import numpy as np

import tvm_xengine as xe
from benchmarks.record import record
from tvm_xengine.scheduling.graph import Role

NETWORKS: Mapping[str, Mapping[str, object]] = {
    "lenet": {},
    "resnet8": {},
    "ds_cnn": {},
    "gpt_nano": {},
    "unet": {"loss": "mse", "batch_size": 4},
    "resnet18": {},
}
ROUNDS = 15
LIMIT_S = 30.0
_TARGET = "llvm -mcpu=native"


def main(networks: Sequence[str]) -> None:
    """Record a row for each network."""
    for network in networks or NETWORKS:
        record("side_by_side", _row(network))


def _row(network: str) -> Mapping[str, str | int | float | None]:
    training = xe.training_step(network, **NETWORKS[network])
    one = xe.Platform((xe.Device("a", _TARGET),))
    threads = xe.Platform((xe.Device("a", f"{_TARGET} -num-cores=2"),))
    two = xe.Platform(
        (xe.Device("a", _TARGET, cores=(0,)), xe.Device("b", _TARGET, cores=(1,))),
        (xe.Link("a", "b"), xe.Link("b", "a")),
    )
    steps = {
        "one": _step(training, one, "cost"),
        "threads": _step(training, threads, "cost"),
        "two": _step(training, two, "makespan"),
    }
    measured_us = _measured_us(steps)
    simulation = {name: step.plan.plan.simulation for name, step in steps.items()}
    predicted_us = {
        "one": simulation["one"].cost_us,
        "threads": simulation["threads"].cost_us,
        "two": simulation["two"].makespan_us,
    }
    return {
        "network": network,
        "one_ms": _ms(measured_us["one"]),
        "two_ms": _ms(measured_us["two"]),
        "gain": round(1 - measured_us["two"] / measured_us["one"], 3),
        "predicted_gain": round(1 - predicted_us["two"] / predicted_us["one"], 3),
        "predicted_by_measured_one": round(predicted_us["one"] / measured_us["one"], 2),
        "predicted_by_measured_two": round(predicted_us["two"] / measured_us["two"], 2),
        "threads_ms": _ms(measured_us["threads"]),
        "copies": steps["two"].plan.plan.schedule.transfers,
    }


def _step(training: xe.Training, platform: xe.Platform, objective: str) -> xe.Step:
    lowered = xe.lower(training, platform)
    problem = xe.make_problem(lowered)
    return xe.build(lowered, xe.plan(problem, objective=objective, time_limit_s=LIMIT_S))


def _measured_us(steps: Mapping[str, xe.Step]) -> Mapping[str, float]:
    """The median time of a step of each kind, by the wall clock; the first rounds do not count."""
    rng = np.random.default_rng(0)
    times_us: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS + 3):
        for name, step in steps.items():
            executable = step.executable
            views = executable.interface.inputs
            batch = {
                each: (0.01 * rng.random(views[each].shape)).astype(views[each].dtype)
                for each in executable.names(Role.BATCH, Role.HYPER)
            }
            executable.write(batch)
            begun_s = time.perf_counter()
            executable.run()
            times_us[name].append((time.perf_counter() - begun_s) * 1e6)
    return {name: statistics.median(times[3:]) for name, times in times_us.items()}


def _ms(time_us: float) -> float:
    return round(time_us / 1000, 3)


if __name__ == "__main__":
    main(sys.argv[1:])
