"""Time one compiled kernel, in batches of calls."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from numpy.typing import NDArray

from tvm_xengine.checks.regular_file import memory_bytes
from tvm_xengine.cost_models.features.hardware import ASSUMED_CACHES_BYTES
from tvm_xengine.cost_models.measure.caches import COLD, HOT, MEMORY, STATES
from tvm_xengine.cost_models.measure.queued import queued_us
from tvm_xengine.cost_models.measure.this_machine import data_caches_bytes, last_cache_bytes
from tvm_xengine.errors import MeasurementError
from tvm_xengine.kernels.device_kernel import DeviceKernel, TensorSpec
from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.library.context import KernelContext
from tvm_xengine.kernels.targets import core_count, is_gpu
from tvm_xengine.kernels.threads.handed_around import HandedAround
from tvm_xengine.kernels.threads.pool import thread_pool_size
from tvm_xengine.kernels.threads.running import may_spin, while_kernels_run
from tvm_xengine.relax_ir.kernel_attributes import InplacePair

_AROUND_ZERO = ("mean", "running_mean", "beta", "bias")
_POSITIVE = ("inv_std", "gamma", "var", "running_var", "scale")
"""First letters of the names of a norm's vectors; with others the signs behind it would all be alike."""

_EVICTED_SHARE = 0.5
"""Of the second level cache that is overwritten between two cold calls. A step leaves some of a kernel's
tensors there, those that were just made, and not the others. Of 0, 1/8, 1/2, 1 and 2 caches, 1/2 came
nearest to the times in the step: the sums over LeNet, ResNet-8, DS-CNN and gpt_nano were 0.90 to 1.02 of
it (docs/cost_models.md)."""

_EVICTED_LAST_SHARE = 0.75
"""The same of the last level for steps that do not fit it. Of 1/2, 3/4, 1, 3/2 and 2 of them, 3/4 came
nearest to the times of single kernels in six steps of 36 to 110 MiB; sums are 0.84 to 1.19 of the step,
where half of the second level leaves 0.70 to 0.95 (docs/cost_models.md)."""

_COLD_CALLS = {COLD: 15, MEMORY: 5}
"""Of a round at most; each evicts first, which takes about as long as a middling kernel, or as ten."""


_LEAST_CALLS = 3
"""Of a round, however long they take together; a single one where it takes longer than a round alone."""

_WAITED_SHARE = 0.05
"""Of a call, which its threads may wait for a core: the noise of calls that nothing disturbs."""


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes
    ----------
    rounds
        Number of separate rounds in which every kernel is timed.
    batch_us
        Length of one timed batch of calls, which hides the clock's resolution.
    round_us
        Time to spend on a kernel in one round; a kernel that runs longer runs once.
    hang_s
        A kernel that is timed in a process of its own and takes longer is given up.
    extra_rounds
        So many more at most for a kernel, until `rounds` of them were calm (`calm_rounds`).
    caches
        One of `STATES`. Kernels of a GPU are timed hot whatever is asked for.
    """

    rounds: int = 3
    batch_us: float = 1500.0
    round_us: float = 30_000.0
    hang_s: float = 120.0
    extra_rounds: int = 0
    caches: str = COLD

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds must be >= 1, got {self.rounds}")
        if self.caches not in STATES:
            raise ValueError(f"caches must be one of {', '.join(STATES)}, got {self.caches!r}")
        if self.extra_rounds < 0:
            raise ValueError(f"extra_rounds must be >= 0, got {self.extra_rounds}")
        if not 0 < self.batch_us <= self.round_us:
            raise ValueError(
                f"batch_us must be in 0..round_us, got {self.batch_us} of {self.round_us}"
            )


@dataclass(frozen=True)
class KernelCall:
    """How a compiled kernel is called; it travels to other processes and machines.

    Attributes
    ----------
    is_threaded
        Timed by the wall clock, because its work is done on several threads.
    is_among_threads
        Whether other kernels of its device run on several threads, which made its tensors.
    library
        What a library computes in it.
    device
        Kind of the device that it runs on, as ``tvm.device`` names it.
    input_names
        Names of the inputs, which say what kind of values they have.
    """

    symbol: str
    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    workspace_bytes: int
    inplace: tuple[InplacePair, ...]
    is_threaded: bool
    library: LibraryCall | None = None
    device: str = "cpu"
    input_names: tuple[str, ...] = ()
    is_among_threads: bool = False


def call_of(kernel: DeviceKernel) -> KernelCall:
    """How `kernel` is called in this process."""
    return KernelCall(
        kernel.symbol,
        kernel.name,
        kernel.inputs,
        kernel.outputs,
        kernel.workspace_bytes,
        kernel.inplace,
        uses_threads(kernel),
        kernel.library,
        kernel.target.kind.name if is_gpu(kernel.target) else "cpu",
        tuple(str(parameter.name) for parameter in kernel.func.params[: len(kernel.inputs)]),
        not is_gpu(kernel.target) and core_count(kernel.target) > 1 and thread_pool_size() > 1,
    )


def uses_threads(kernel: DeviceKernel) -> bool:
    """Whether a kernel runs on other threads than the one that calls it.

    The pool of TVM's runtime may be smaller than the target says (``TVM_NUM_THREADS``).
    """
    if is_gpu(kernel.target):
        return True
    return kernel.is_parallel and thread_pool_size() > 1


def time_kernel_us(
    call: KernelCall, module: tvm.runtime.Module, effort: Effort
) -> tuple[float, ...]:
    """Mean run time of a call in each of a number of batches of calls, or of single cold calls.

    Parameters
    ----------
    module
        Holds the compiled kernel.

    Raises
    ------
    MeasurementError
        When the kernel does not run.
    """
    device = tvm.device(call.device, 0)
    arguments = example_arguments(call, device)
    around = HandedAround(arguments if call.is_among_threads else ())
    if call.library is not None:
        context = KernelContext(call.library)
        arguments.append(context.tensor)
    function = module[call.symbol]
    parallel = call.is_threaded or call.is_among_threads
    with while_kernels_run(spin=may_spin([module]), parallel=parallel):
        if effort.caches != HOT and call.device == "cpu":
            return _cold_calls_us(call, function, arguments, effort, around)
        return _batches_us(call, function, arguments, effort, device)


def _batches_us(
    call: KernelCall,
    function: tvm.runtime.PackedFunc,
    arguments: Sequence[tvm.runtime.Tensor],
    effort: Effort,
    device: tvm.runtime.Device,
) -> tuple[float, ...]:
    clock = time.perf_counter_ns if call.is_threaded else time.thread_time_ns
    _try_once(call, function, arguments)
    once_us = _batch_us(function, arguments, 1, clock, device)
    if once_us > effort.round_us:
        return (once_us,)
    calls = min(2000, math.ceil(effort.batch_us / max(once_us, 0.1)))
    batches = min(15, max(3, int(effort.round_us / (calls * max(once_us, 0.1)))))
    return tuple(_batch_us(function, arguments, calls, clock, device) for _ in range(batches))


def _try_once(
    call: KernelCall, function: tvm.runtime.PackedFunc, arguments: Sequence[tvm.runtime.Tensor]
) -> None:
    try:
        function(*arguments)
    except (RuntimeError, ValueError, TypeError) as error:
        raise MeasurementError(f"kernel {call.name} does not run: {error}") from error


def _cold_calls_us(
    call: KernelCall,
    function: tvm.runtime.PackedFunc,
    arguments: Sequence[tvm.runtime.Tensor],
    effort: Effort,
    around: HandedAround,
) -> tuple[float, ...]:
    """Times of single calls behind other work, which has taken its part of the caches.

    Calls whose threads waited for a core count only where there are no others: a barrier of a team waits as
    long as its last thread, often for milliseconds.
    """
    other = _other_memory(effort.caches)
    echo = tvm.get_global_func("testing.echo")
    times_us: list[float] = []
    disturbed_us: list[float] = []
    most = _COLD_CALLS[effort.caches]
    _try_once(call, function, arguments)
    while (
        max(len(times_us), len(disturbed_us)) < most
        and (len(times_us) < _LEAST_CALLS or sum(times_us) < effort.round_us)
        and sum(disturbed_us) < effort.round_us
    ):
        around.hand_around()
        other += 1.0
        echo(echo(0))  # brings back what calls from Python need
        queued_before_us = queued_us() if call.is_threaded else 0.0
        took_us = _cold_call_us(function, arguments, is_threaded=call.is_threaded)
        waited_us = queued_us() - queued_before_us if call.is_threaded else 0.0
        (disturbed_us if waited_us > _WAITED_SHARE * took_us else times_us).append(took_us)
        if times_us and times_us[0] > effort.round_us:
            break
    missing = _LEAST_CALLS - len(times_us)
    return (*times_us, *sorted(disturbed_us)[: max(0, missing)])


def _cold_call_us(
    function: tvm.runtime.PackedFunc,
    arguments: Sequence[tvm.runtime.Tensor],
    *,
    is_threaded: bool,
) -> float:
    """The wall clock's time, or where something else has run meanwhile the thread's.

    Reading the thread's clock takes as long as a short kernel.
    """
    thread_ns, wall_ns = time.thread_time_ns(), time.perf_counter_ns()
    function(*arguments)
    wall_ns = time.perf_counter_ns() - wall_ns
    thread_ns = time.thread_time_ns() - thread_ns
    return max(wall_ns if is_threaded else min(wall_ns, thread_ns), 1) / 1000


def _other_memory(caches: str) -> NDArray[np.float64]:
    """What is written between two calls that are not hot."""
    if caches == MEMORY:
        return np.zeros(int(_EVICTED_LAST_SHARE * last_cache_bytes()) // 8)
    second = data_caches_bytes()[1] or ASSUMED_CACHES_BYTES[1]
    return np.zeros(int(_EVICTED_SHARE * second) // 8)


def _batch_us(
    function: tvm.runtime.PackedFunc,
    arguments: Sequence[tvm.runtime.Tensor],
    calls: int,
    clock: Callable[[], int],
    device: tvm.runtime.Device,
) -> float:
    device.sync()
    start_ns = clock()
    for _ in range(calls):
        function(*arguments)
    device.sync()
    return max(clock() - start_ns, 1) / (1000 * calls)


def example_arguments(
    call: KernelCall, device: tvm.runtime.Device | None = None
) -> list[tvm.runtime.Tensor]:
    """Tensors that a compiled kernel can be called with, in the order it takes them.

    The context of a library's kernel is not among them.
    """
    _require_memory(call)
    rng = np.random.default_rng(0)
    names = call.input_names or ("",) * len(call.inputs)
    inputs = [
        tvm.runtime.tensor(_some_values(spec, name, rng), device)
        for spec, name in zip(call.inputs, names, strict=True)
    ]
    outputs = [
        tvm.runtime.tensor(np.zeros(spec.shape, spec.dtype), device) for spec in call.outputs
    ]
    for pair in call.inplace:
        outputs[pair.output] = inputs[pair.input]
    workspace = []
    if call.workspace_bytes:
        workspace = [tvm.runtime.tensor(np.zeros(call.workspace_bytes, "uint8"), device)]
    return [*inputs, *outputs, *workspace]


def _require_memory(call: KernelCall) -> None:
    """Refuse a kernel whose tensors this machine cannot hold, which nothing could be measured with."""
    needed_bytes = call.workspace_bytes + sum(
        spec.size_bytes for spec in (*call.inputs, *call.outputs)
    )
    if needed_bytes > (held_bytes := memory_bytes()):
        raise MeasurementError(
            f"a kernel has tensors of {needed_bytes} bytes, and this machine has {held_bytes} bytes of"
            " memory; take a smaller batch"
        )


def _some_values(spec: TensorSpec, name: str, rng: np.random.Generator) -> np.ndarray:
    """Values as in a network: branches on them go both ways, which takes up to 8 times as long.

    Zeros for integers, which may be positions in a tensor.
    """
    if not spec.dtype.startswith(("float", "bfloat")):
        return np.zeros(spec.shape, spec.dtype)
    if name.startswith(_AROUND_ZERO):
        return np.zeros(spec.shape, spec.dtype)
    if name.startswith(_POSITIVE):
        return rng.uniform(0.9, 1.1, spec.shape).astype(spec.dtype)
    return rng.standard_normal(spec.shape).astype(spec.dtype)
