"""Steps that compile fast: costs from rooflines, kernels kept for the whole session."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import tvm_xengine as xe

Compile = Callable[..., xe.Step]


@pytest.fixture(scope="session")
def compile_step(cache: Path) -> Compile:
    """`xe.compile` without measuring anything."""
    return partial(xe.compile, costs="roofline", time_limit_s=2.0, cache=cache)
