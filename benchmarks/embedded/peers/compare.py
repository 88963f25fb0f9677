"""Exported C beside other projects: ``python -m benchmarks.embedded.peers.compare [NETWORK ...]``.

Memory, code, stack, instructions and energy of a training step, in `benchmarks/results/peers.jsonl`; the
table is written anew. Needs the compiler and the emulator of a Cortex-M7. What other projects take was
measured or published as each entry says.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import torch

import tvm_xengine as xe
from benchmarks import record, tables
from benchmarks.embedded.parity.run_c import run_in_c
from benchmarks.embedded.peers.networks import PEERS

_UJ_PER_INSTRUCTION = 11e3 / 64e6
"""11 mW at 64 MHz (POET's Cortex-M4F), an instruction in each cycle."""


@dataclass(frozen=True)
class Known:
    """What another project takes for a step of a network.

    Attributes
    ----------
    bytes_with, bytes_without
        Of memory, with and without inputs and outputs of the step.
    source
        Where the figures are from.
    """

    network: str
    project: str
    source: str
    bytes_with: int | None = None
    bytes_without: int | None = None
    code_bytes: int | None = None


_EXECUTORCH = "ExecuTorch 1.5.1"
_PLANNED = "`executorch_bytes`, run apart; optimizer, kernels' temporaries and runtime come on top"
OTHERS = (
    Known("perceptron 16-12-4", _EXECUTORCH, _PLANNED, 2_880, 1_632),
    Known("perceptron 16-32-10", _EXECUTORCH, _PLANNED, 10_992, 7_168),
    Known("LeNet", _EXECUTORCH, _PLANNED, 824_048, 526_848),
    Known("attention", _EXECUTORCH, _PLANNED, 24_656, 15_536),
    Known("Deep-AE", _EXECUTORCH, _PLANNED, 2_659_920, 1_068_096),
    Known(
        "perceptron 16-32-10",
        "AIfES 2.2",
        "built for a Cortex-M4, one sample at a time, without its input",
        bytes_without=9_520,
        code_bytes=8_192,
    ),
    Known(
        "MCUNet 49 KB, 128 x 128, int8, sparse update",
        "tinyengine",
        "PEAK_MEM of its code generator; its paper (arXiv 2206.15472) says below 256 KB",
        bytes_with=189_800,
    ),
    Known(
        "Deep-AE",
        "TrainDeeploy",
        "published (arXiv 2603.09511): up to 13.4 FLOP per cycle of 0.8 MFLOP, on eight RISC-V cores with an"
        " accelerator",
    ),
    Known(
        "compact convolutional transformer, 0.28 M parameters",
        "TrainDeeploy",
        "published (arXiv 2603.09511): up to 4.6 FLOP per cycle of 71 to 126 MFLOP, 11 images a second; LoRA"
        " takes 23 % less dynamic memory",
    ),
)


def ours(network: str) -> dict[str, record.Cell]:
    """The row of a network, with SGD and everything kept."""
    peer = PEERS[network]
    torch.manual_seed(0)
    batch = peer.batch()
    example = torch.from_numpy(batch[0])
    training = xe.training_step(peer.make(), example, loss=peer.loss, optimizer=xe.SGD(0.01))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = xe.export_for_target(
            training,
            folder / "package",
            target="cortex-m7",
            regions={"sram": "3MiB"},
            entries=("train_step",),
            time_limit_s=10.0,
        )
        counted = run_in_c(report, "cortex-m7", [batch], folder, counts=True).instructions
    assert report.code is not None
    arena = sum(report.package.regions.values())
    return {
        "network": network,
        "project": "this",
        "with_io_bytes": arena + sum(array.nbytes for array in batch) + 4,  # the loss
        "without_io_bytes": arena,
        "code_bytes": report.code.text_bytes,
        "stack_bytes": report.code.stack_bytes,
        "instructions": counted,
        "energy_uj": counted * _UJ_PER_INSTRUCTION,
        "source": "Cortex-M7 under QEMU",
    }


def _theirs(known: Known) -> dict[str, record.Cell]:
    return {
        "network": known.network,
        "project": known.project,
        "with_io_bytes": known.bytes_with,
        "without_io_bytes": known.bytes_without,
        "code_bytes": known.code_bytes,
        "stack_bytes": None,
        "instructions": None,
        "energy_uj": None,
        "source": known.source,
    }


def main(networks: Collection[str]) -> None:
    """Measure ours, add what is known of others, and write the table."""
    table = tables.called("peers")
    for network in networks:
        record.record("peers", ours(network))
        tables.write(table)
    for known in OTHERS:
        if known.network in networks or known.network not in PEERS:
            record.record_known("peers", _theirs(known))
    tables.write(table)


if __name__ == "__main__":
    main(sys.argv[1:] or PEERS)
