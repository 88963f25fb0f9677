"""Time kernels on this machine so that other load on it disturbs the result little."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm

from tvm_xengine.codegen.device_kernel import DeviceKernel, TensorSpec
from tvm_xengine.codegen.kernel_store import KernelStore, OnProgress, load_kernels
from tvm_xengine.cost_models.fingerprint import device_fingerprint
from tvm_xengine.cost_models.measurements import Measurement, MeasurementCache
from tvm_xengine.errors import MeasurementError


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes
    ----------
    rounds
        Number of separate moments at which every kernel is timed.
    batch_us
        Length of one timed batch of calls, which hides the clock's resolution.
    round_us
        Time to spend on a kernel in one round; a kernel that runs longer runs once.
    """

    rounds: int = 3
    batch_us: float = 1500.0
    round_us: float = 30_000.0

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds must be >= 1, got {self.rounds}")
        if not 0 < self.batch_us <= self.round_us:
            raise ValueError(
                f"batch_us must be in 0..round_us, got {self.batch_us} of {self.round_us}"
            )


def measure_kernels(
    kernels: Sequence[DeviceKernel],
    cache: MeasurementCache,
    *,
    effort: Effort | None = None,
    on_progress: OnProgress | None = None,
    store: KernelStore | None = None,
    on_compiled: OnProgress | None = None,
) -> dict[str, Measurement]:
    """Return the run time of each kernel, by its symbol, from the cache or measured now.

    Kernels that run on one thread are timed by its CPU time, which other processes lengthen
    little; parallel ones by the wall clock, of which the shortest batch counts. Every kernel is
    timed in several rounds and the rounds go over all kernels in turn, because the noise of
    neighbouring moments is alike. The cache knows every timing at once, so interrupting or
    killing the work loses none, and the next call times only the rounds that are missing.

    Parameters
    ----------
    on_progress
        Called after every timing with the number of timings done, the number of all timings and
        the name of the kernel.
    store, on_compiled
        As in :func:`tvm_xengine.codegen.kernel_store.load_kernels`.

    Raises
    ------
    MeasurementError
        When a kernel cannot be run.
    """
    effort = effort or Effort()
    devices = {str(k.target): device_fingerprint(k.target) for k in kernels}
    found = {
        kernel.symbol: cache.find(kernel.key, devices[str(kernel.target)]) for kernel in kernels
    }
    samples = {symbol: list(known.rounds_us) if known else [] for symbol, known in found.items()}
    missing = {k.symbol: k for k in kernels if len(samples[k.symbol]) < effort.rounds}
    rounds = {symbol: effort.rounds - len(samples[symbol]) for symbol in missing}
    total = sum(rounds.values())
    timings = _rounds(_loaded(missing, store, on_compiled), rounds, effort)
    for done, (kernel, batches_us) in enumerate(timings, start=1):
        samples[kernel.symbol].append(batches_us)
        measured = _summary(kernel, devices[str(kernel.target)], samples[kernel.symbol])
        found[kernel.symbol] = measured
        cache.add(measured)
        if on_progress is not None:
            on_progress(done, total, kernel.name)
    return {symbol: measurement for symbol, measurement in found.items() if measurement}


def _rounds(
    kernels: Sequence[_LoadedKernel], rounds: Mapping[str, int], effort: Effort
) -> Iterator[tuple[DeviceKernel, tuple[float, ...]]]:
    """Time each kernel in `rounds` rounds (by symbol)."""
    for done in range(max(rounds.values(), default=0)):
        for one in kernels:
            if rounds[one.kernel.symbol] > done:
                yield one.kernel, one.time_us(effort)


def _loaded(
    kernels: Mapping[str, DeviceKernel], store: KernelStore | None, on_compiled: OnProgress | None
) -> list[_LoadedKernel]:
    modules = load_kernels(kernels.values(), store, on_compiled)
    return [_LoadedKernel(kernel, modules[symbol][symbol]) for symbol, kernel in kernels.items()]


@dataclass(frozen=True)
class _LoadedKernel:
    """A kernel with its machine code."""

    kernel: DeviceKernel
    function: tvm.runtime.PackedFunc

    def time_us(self, effort: Effort) -> tuple[float, ...]:
        """Mean run time of a call in each of a number of batches of calls."""
        arguments = example_arguments(self.kernel)
        clock = time.perf_counter_ns if uses_threads(self.kernel) else time.thread_time_ns
        try:
            self.function(*arguments)
        except (RuntimeError, ValueError, TypeError) as error:
            raise MeasurementError(f"kernel {self.kernel.name} does not run: {error}") from error
        once_us = _time_us(self.function, arguments, 1, clock)
        if once_us > effort.round_us:
            return (once_us,)
        calls = min(2000, math.ceil(effort.batch_us / max(once_us, 0.1)))
        batches = min(15, max(3, int(effort.round_us / (calls * max(once_us, 0.1)))))
        return tuple(_time_us(self.function, arguments, calls, clock) for _ in range(batches))


def _time_us(
    function: tvm.runtime.PackedFunc,
    arguments: Sequence[tvm.runtime.Tensor],
    calls: int,
    clock: Callable[[], int],
) -> float:
    start_ns = clock()
    for _ in range(calls):
        function(*arguments)
    return max(clock() - start_ns, 1) / (1000 * calls)


def example_arguments(kernel: DeviceKernel) -> list[tvm.runtime.Tensor]:
    """Tensors that a compiled kernel can be called with, in the order it takes them."""
    rng = np.random.default_rng(0)
    inputs = [tvm.runtime.tensor(_some_values(spec, rng)) for spec in kernel.inputs]
    outputs = [tvm.runtime.tensor(np.zeros(spec.shape, spec.dtype)) for spec in kernel.outputs]
    for pair in kernel.inplace:
        outputs[pair.output] = inputs[pair.input]
    workspace_bytes = kernel.workspace_bytes
    workspace = [tvm.runtime.tensor(np.zeros(workspace_bytes, "uint8"))] if workspace_bytes else []
    return [*inputs, *outputs, *workspace]


def _some_values(spec: TensorSpec, rng: np.random.Generator) -> np.ndarray:
    """Values of an ordinary size; zeros for integers, which may be positions in a tensor."""
    if spec.dtype.startswith(("float", "bfloat")):
        return rng.uniform(0.5, 1.5, spec.shape).astype(spec.dtype)
    return np.zeros(spec.shape, spec.dtype)


def uses_threads(kernel: DeviceKernel) -> bool:
    """Whether a kernel runs on several threads in this process.

    The pool of TVM's runtime may be smaller than the target says (``TVM_NUM_THREADS``).
    """
    return kernel.is_parallel and int(tvm.get_global_func("runtime.NumThreads")()) > 1


def _summary(
    kernel: DeviceKernel, device: str, rounds_us: Sequence[tuple[float, ...]]
) -> Measurement:
    threaded = uses_threads(kernel)
    # Whatever else runs only adds to the wall clock; the CPU clock errs in both directions.
    typical = [float(np.percentile(batches, 0 if threaded else 25)) for batches in rounds_us]
    return Measurement(
        kernel=kernel.key,
        device=device,
        name=kernel.name,
        compute_us=statistics.median(typical),
        lo_us=min(typical),
        hi_us=max(typical),
        clock="wall" if threaded else "thread",
        rounds_us=tuple(rounds_us),
    )
