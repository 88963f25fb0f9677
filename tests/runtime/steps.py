"""Training steps of several networks on several platforms, compiled for tests of the executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import tvm_xengine as xe
from tests.api.networks import Attention, Convolutional, recurrent

_TARGET = "llvm -mcpu=native"


def _cpu(name: str) -> xe.Device:
    return xe.Device(name, _TARGET, kernels=("tir",))


def _linked(*pairs: tuple[str, str]) -> tuple[xe.Link, ...]:
    both = (*pairs, *((b, a) for a, b in pairs))
    return tuple(xe.Link(a, b, 1.0, 10.0) for a, b in both)


def platform(name: str, folder: Path) -> xe.Platform:
    """One processor, two, one with a file in which the state lives, or two with a file."""
    disk = xe.Device("disk", None, folder=str(folder))
    match name:
        case "one":
            return xe.Platform((xe.Device("a", _TARGET),))
        case "two":
            return xe.Platform((_cpu("a"), _cpu("b")), _linked(("a", "b")))
        case "file":
            return xe.Platform((_cpu("a"), disk), _linked(("a", "disk")), home="disk")
        case "three":
            links = _linked(("a", "b"), ("a", "disk"), ("b", "disk"))
            return xe.Platform((_cpu("a"), _cpu("b"), disk), links, home="disk")
    raise ValueError(name)


PLATFORMS = ("one", "two", "file", "three")


def _mlp() -> Mapping[str, Any]:
    return {"model": "mlp", "optimizer": xe.SGD(0.05, momentum=0.9)}


def _batch_norms() -> Mapping[str, Any]:
    """A step takes three micro-batches."""
    return {
        "model": Convolutional(),
        "example_inputs": torch.zeros(4, 1, 6, 6),
        "micro_batches": 3,
        "loss": "cross_entropy",
    }


def _dropout() -> Mapping[str, Any]:
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 5))
    optimizer = xe.Adam(0.01)
    return {
        "model": model,
        "example_inputs": torch.zeros(8, 12),
        "optimizer": optimizer,
        "loss": "cross_entropy",
    }


def _bfloat16() -> Mapping[str, Any]:
    inputs = torch.zeros(4, 1, 6, 6)
    return {
        "model": Convolutional(),
        "example_inputs": inputs,
        "precision": "bfloat16",
        "loss": "cross_entropy",
    }


def _float16() -> Mapping[str, Any]:
    """The scale of the loss is state, too."""
    return {**_bfloat16(), "precision": "float16"}


def _attention() -> Mapping[str, Any]:
    return {
        "model": Attention(),
        "example_inputs": torch.zeros(4, 7, dtype=torch.int64),
        "loss": "cross_entropy",
    }


def _recurrent() -> Mapping[str, Any]:
    inputs = torch.zeros(4, 5, 3)
    return {"model": recurrent(), "example_inputs": inputs, "loss": "cross_entropy"}


def _lenet() -> Mapping[str, Any]:
    return {"model": "lenet"}


NETWORKS: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "mlp": _mlp,
    "batch norms in micro-batches": _batch_norms,
    "dropout and Adam": _dropout,
    "bfloat16": _bfloat16,
    "float16": _float16,
    "attention": _attention,
    "recurrent": _recurrent,
    "lenet": _lenet,
}


_RATIO = 0.6
"""Of the budgets: with less, some of the networks are not planned within seconds."""
_RATIOS = {("recurrent", "file"): 0.8}


def compiled(network: str, on: str, folder: Path, cache: Path) -> xe.Step:
    """The step, under a budget; where there are several devices, they and their links overlap."""
    ratio = _RATIOS.get((network, on), _RATIO)
    torch.manual_seed(0)
    return xe.compile(
        platform=platform(on, folder),
        objective="cost" if on == "one" else "makespan",
        budget=None if on == "one" else ratio,
        costs="roofline",
        time_limit_s=2.0,
        cache=cache,
        **NETWORKS[network](),
    )


def batches(step: xe.Step, seed: int = 0) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Random batches without end."""
    rng = np.random.default_rng(seed)
    interface = step.executable.interface
    while True:
        batch = {}
        for name in step.batch_names:
            view = interface.inputs[name]
            allowed = interface.ranges.get(name)
            if allowed is None:
                batch[name] = rng.random(view.shape).astype(view.dtype)
            else:
                batch[name] = rng.integers(allowed.low, allowed.high + 1, view.shape)
        yield batch


def state_bytes(step: xe.Step) -> dict[str, bytes]:
    """Everything that outlives a step."""
    return {name: np.asarray(value).tobytes() for name, value in step.saved_state().items()}
