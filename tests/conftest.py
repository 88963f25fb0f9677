"""What is kept for the whole session, so that no test compiles again what another one has."""

from __future__ import annotations

import gc
import inspect
import linecache
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

if TYPE_CHECKING:
    import tvm_xengine as xe

Compile = Callable[..., "xe.Step"]

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the cores: with two threads each, they wait for one another most of the time.
    # Set before anything loads OpenMP.
    for variable in ("OMP_NUM_THREADS", "TVM_NUM_THREADS"):
        os.environ.setdefault(variable, "1")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in the background so, and tests of interrupts would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_READ_FRAMES = 4
"""TVM looks at the line of the third."""


def _nearest_sources(_context: int = 1) -> list[inspect.FrameInfo]:
    """`inspect.stack` without the sources of far callers.

    TVMScript asks for it twice for each function. With sources, the sixty callers that a test has
    take longer than parsing, and took a third of the time in which tests are collected.
    """
    frame: FrameType | None = sys._getframe(1)
    found: list[inspect.FrameInfo] = []
    while frame is not None:
        code, line = frame.f_code, frame.f_lineno
        read = [linecache.getline(code.co_filename, line)] if len(found) < _READ_FRAMES else None
        found.append(inspect.FrameInfo(frame, code.co_filename, line, code.co_name, read, 0))
        frame = frame.f_back
    return found


inspect.stack = _nearest_sources

# Else the constants in our code are drawn too, of those modules alone that a worker has imported so far.
providers.is_local_module_file = lambda _path: False  # type: ignore[attr-defined]

for profile, examples in (("repeatable", 25), ("many", 100)):
    settings.register_profile(
        profile,
        derandomize=True,
        max_examples=examples,
        deadline=None,  # how long an example takes says how busy the machine is
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("repeatable")
"""Draws are the same in every run: what fails on one machine fails on the others. `make test-slow` draws
more, by ``--hypothesis-profile many`` (`tests.strategies.cases`)."""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where measurements and compiled kernels are kept; the workers of a session share it."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    return folder / "cache" / "measurements.jsonl"


@pytest.fixture(scope="session")
def compile_step(cache: Path) -> Compile:
    """`xe.compile` without measuring anything."""
    import tvm_xengine as xe

    return partial(xe.compile, costs="roofline", time_limit_s=2.0, cache=cache)


@pytest.fixture(scope="session", autouse=True)
def _kernels_compiled_in_the_worker() -> Iterator[None]:
    """Workers share the cores: processes that compile for them would take longer to start than they save."""
    with pytest.MonkeyPatch.context() as patch:
        if "PYTEST_XDIST_WORKER" in os.environ:
            patch.setattr("tvm_xengine.kernels.store.kernel_store.usable_cores", lambda: 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def _machine_code_in_half_the_time() -> Iterator[None]:
    """LLVM's second level computes the same bits as the third, whose code is up to 6 % faster."""
    from tvm import IRModule, runtime
    from tvm.target import Target

    from tvm_xengine.kernels.device_kinds import build

    def quick_build(module: IRModule, target: Target) -> runtime.Module:
        is_llvm = target.kind.name == "llvm"
        return build(module, Target({**target.export(), "opt-level": 2}) if is_llvm else target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tvm_xengine.kernels.device_kinds.build", quick_build)
        yield


@pytest.fixture(scope="module", autouse=True)
def _what_stays_is_no_garbage() -> None:
    """The million objects of TVM and PyTorch are not searched for garbage again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _an_interrupt_is_never_lost() -> None:
    """Python drops an exception, a KeyboardInterrupt too, that arrives in a callback of the collector.

    Hypothesis registers one, to leave out the collector's time from its deadlines.
    """
    gc.callbacks.clear()
