"""PyTorch's memory over a training step, and steps of PyTorch that recompute to take less.

The memory is what PyTorch's allocator for the processor has handed out, temporaries inside
operators included, as its profiler records every allocation; what oneDNN takes by itself inside
PyTorch is not seen, which makes PyTorch look better.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

Step = Callable[[], object]
RATE = 0.01
COMPILE_BUDGETS = (0.75, 0.5, 0.25, 0.0)
"""What is tried for ``activation_memory_budget``, in this order, until the memory suffices."""


class TorchStep:
    """Forward, loss, backward and an update with momentum; it returns the loss."""

    def __init__(self, module: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        self.module = module
        self.inputs = inputs
        self.labels = labels
        self.optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.9)

    def __call__(self) -> float:
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.module(self.inputs), self.labels)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def peak_bytes(self) -> int:
        """The most memory that the step takes: state, batch and all it allocates."""
        self()  # makes the momentum, and compiles
        self.optimizer.zero_grad()  # gradients would be freed unseen, as they were allocated
        return self.resident_bytes + max(accumulate(changes_bytes(self)), default=0)

    @property
    def resident_bytes(self) -> int:
        """Parameters, buffers, momentum and batch."""
        state = [v for s in self.optimizer.state.values() for v in s.values()]
        tensors = [*self.module.parameters(), *self.module.buffers(), *state]
        tensors += [self.inputs, self.labels]
        return sum(_storages_bytes(t for t in tensors if isinstance(t, torch.Tensor)))


def changes_bytes(function: Step) -> list[int]:
    """Every allocation (> 0) and release (< 0) of a call, in the order they happen."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        result = function()
    del result
    events = profiled.profiler.kineto_results.events()
    memory = sorted((e.start_ns(), k) for k, e in enumerate(events) if e.name() == "[memory]")
    return [events[k].nbytes() for _, k in memory]


def compiled_within(
    module: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, limit_bytes: int
) -> tuple[TorchStep, float, int]:
    """``torch.compile`` with the largest activation memory budget that keeps to the limit.

    Returns
    -------
    step, budget, peak
        Where none keeps to it, those of the smallest budget.
    """
    for budget in COMPILE_BUDGETS:
        torch.compiler.reset()  # or the code of the last budget would be found again
        with torch._functorch.config.patch(activation_memory_budget=budget):
            step = TorchStep(torch.compile(module), inputs, labels)
            peak_bytes = step.peak_bytes()
        if peak_bytes <= limit_bytes:
            break
    return step, budget, peak_bytes


class CheckpointedStep:
    """A step in which some blocks of the module keep only what they read."""

    def __init__(self, step: TorchStep, blocks: Sequence[nn.Module]) -> None:
        self.step = step
        self.blocks = blocks

    def __call__(self) -> float:
        with checkpointed(self.blocks):
            return self.step()

    def peak_bytes(self) -> int:
        """As :meth:`TorchStep.peak_bytes`."""
        with checkpointed(self.blocks):
            return self.step.peak_bytes()


@contextmanager
def checkpointed(blocks: Iterable[nn.Module]) -> Iterator[None]:
    """Compute what these modules have kept once more in the backward pass."""
    chosen = list(blocks)
    for block in chosen:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    try:
        yield
    finally:
        for block in chosen:
            del block.forward  # the one of its class shows again


def checkpointed_within(
    step: TorchStep, blocks: Sequence[nn.Module], limit_bytes: int
) -> tuple[CheckpointedStep, int]:
    """The fewest blocks, those first that free most bytes per time, that keep to the limit.

    Returns
    -------
    step, peak
        Where not all blocks together keep to it, those of the lowest peak.
    """
    kept = _kept_bytes(step, [])
    freed = [kept - _kept_bytes(step, [block]) for block in blocks]
    times_s = _forward_times_s(step, blocks)
    order = sorted(range(len(blocks)), key=lambda k: -freed[k] / times_s[k])
    best: tuple[CheckpointedStep, int] | None = None
    for count in range(len(blocks) + 1):
        tried = CheckpointedStep(step, [blocks[k] for k in order[:count]])
        peak = tried.peak_bytes()
        if best is None or peak < best[1]:
            best = tried, peak
        if peak <= limit_bytes:
            break
    assert best is not None
    return best


def _kept_bytes(step: TorchStep, blocks: Sequence[nn.Module]) -> int:
    """What is alive between forward and backward pass beyond the state."""
    outputs: list[torch.Tensor] = []
    with checkpointed(blocks):
        return sum(changes_bytes(lambda: outputs.append(step.module(step.inputs))))


def _forward_times_s(step: TorchStep, blocks: Sequence[nn.Module]) -> list[float]:
    """CPU time of each block in the faster of two forward passes."""
    times: dict[nn.Module, list[float]] = {block: [] for block in blocks}
    started: dict[nn.Module, float] = {}

    def before(block: nn.Module, _inputs: object) -> None:
        started[block] = time.process_time()

    def after(block: nn.Module, _inputs: object, _output: object) -> None:
        times[block].append(time.process_time() - started[block])

    hooks = [block.register_forward_pre_hook(before) for block in blocks]
    hooks += [block.register_forward_hook(after) for block in blocks]
    try:
        for _ in range(2):
            step.module(step.inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return [max(min(times[block]), 1e-6) for block in blocks]


def _storages_bytes(tensors: Iterable[torch.Tensor]) -> Iterator[int]:
    """Bytes of each memory block that the tensors lie in."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    yield from storages.values()
