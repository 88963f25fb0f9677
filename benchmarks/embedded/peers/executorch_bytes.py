"""What ExecuTorch plans for forward and backward: ``python -m benchmarks.embedded.peers.executorch_bytes``.

Needs ``executorch``, which is no dependency of this project. Prints the bytes that `compare` holds.
"""

from __future__ import annotations

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
from torch import Tensor, nn
from torch.export import export
from torch.export.experimental import _export_forward_backward
from torch.nn import functional as F

from benchmarks.embedded.peers.networks import PEERS, Peer


class Step(nn.Module):
    """A network with its loss."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self.network = peer.make()
        self.is_regression = peer.classes is None

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        output = self.network(x)
        loss = F.mse_loss if self.is_regression else F.cross_entropy
        return loss(output, target)


def planned_bytes(peer: Peer, *, plans_arguments: bool) -> int:
    """The buffers of the program; with its inputs and outputs if asked for."""
    batch = tuple(torch.from_numpy(array) for array in peer.batch())
    joint = _export_forward_backward(export(Step(peer), batch, strict=True))
    planning = MemoryPlanningPass(
        alloc_graph_input=plans_arguments, alloc_graph_output=plans_arguments
    )
    program = to_edge(joint).to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    return int(sum(program.executorch_program.execution_plan[0].non_const_buffer_sizes))


if __name__ == "__main__":
    for name, peer in PEERS.items():
        sizes = [planned_bytes(peer, plans_arguments=planned) for planned in (True, False)]
        print(f"{name}: {sizes[0]} with inputs and outputs, {sizes[1]} without")
