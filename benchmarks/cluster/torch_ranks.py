"""PyTorch's own training over two processes: data parallelism, and a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from benchmarks.cluster.networks import Case
from benchmarks.training.torch_memory import RATE, changes_bytes

MICRO_BATCHES = 4
Batch = tuple[torch.Tensor, torch.Tensor]
Step = Callable[[torch.Tensor, torch.Tensor], float]
"""Trains on a whole batch, of which a process takes its part; the loss of the whole batch."""


def one_process(case: Case) -> Step:
    """Training in one process."""
    module = case.module()
    optimizer = _momentum(module)

    def step(inputs: torch.Tensor, labels: torch.Tensor) -> float:
        optimizer.zero_grad()
        loss = cross_entropy(module(inputs), labels)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def data_parallel(case: Case) -> Step:
    """Half of each batch in each of two processes, gradients averaged in buckets."""
    rank, module = dist.get_rank(), case.module()
    divided = DistributedDataParallel(module, gradient_as_bucket_view=True)
    optimizer = _momentum(module)

    def step(inputs: torch.Tensor, labels: torch.Tensor) -> float:
        optimizer.zero_grad()
        loss = cross_entropy(divided(inputs.chunk(2)[rank]), labels.chunk(2)[rank])
        loss.backward()
        optimizer.step()
        mean = loss.detach() / 2
        dist.all_reduce(mean)
        return float(mean)

    return step


def pipeline(case: Case) -> Step:
    """The layers before the cut in the first process, the others in the second; GPipe."""
    rank, module = dist.get_rank(), case.module()
    mine = module[: case.cut] if rank == 0 else module[case.cut :]
    stage = PipelineStage(mine, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, MICRO_BATCHES, loss_fn=cross_entropy)
    optimizer = _momentum(mine)

    def step(inputs: torch.Tensor, labels: torch.Tensor) -> float:
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=labels, losses=losses)
        optimizer.step()
        mean = torch.stack(losses).mean().detach() if losses else torch.zeros(())
        dist.broadcast(mean, 1)
        return float(mean)

    return step


def peak_bytes(make: Callable[[Case], Step], case: Case, batches: Sequence[Batch]) -> int:
    """The most that this process's allocator hands out for making a step and training with it.

    Batches are not part of it, and neither is what gloo takes by itself, which makes PyTorch look better.
    """

    def run() -> None:
        step = make(case)
        for inputs, labels in batches:
            step(inputs, labels)

    return max(accumulate(changes_bytes(run)), default=0)


def _momentum(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.9)
