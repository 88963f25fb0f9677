"""Extracts training graphs of real networks with this project's own pipeline.

Run as ``python -m benchmarks.solvers.extract_training_graphs [NAME...]``; writes one file for each
network to ``benchmarks/solvers/graphs``. Nothing is compiled or measured: a file holds the graph, and
for each kernel its floating point operations and the workspace that it needs on a CPU.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import torch
import tvm
from tvm.s_tir.analysis import estimate_tir_flops

from benchmarks.solvers.torch_networks import NETWORKS
from tvm_xengine.frontends import zoo
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.torch.read import from_torch_export
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.lower.explicit_workspace import workspace_bytes
from tvm_xengine.kernels.lower.pipeline import lower_to_explicit_memory
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.relax_ir.signature import TRAIN_STEP
from tvm_xengine.training.build import build_training_step

FOLDER = Path(__file__).parent / "graphs"
_ZOO = {"lenet": 64, "mlp": 64}
"""Zoo networks, and the batch sizes to take."""
_AS_WRITTEN = ("unet",)
"""Networks with fused kernels whose loops take minutes to schedule for a CPU."""


def main(names: list[str]) -> None:
    """Extract the networks of these names, by default all."""
    for name in names or [*_ZOO, *NETWORKS]:
        document = extract(name, _model(name))
        text = json.dumps(document, separators=(",", ":"))
        FOLDER.mkdir(exist_ok=True)
        path = FOLDER / f"{name}.json.gz"
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
        print(f"{name}: {len(document['ops'])} ops, {path.stat().st_size / 1024:.0f} KiB")


def _model(name: str) -> ForwardModel:
    if name in _ZOO:
        return zoo.build(name, batch_size=_ZOO[name])
    network = NETWORKS[name]
    torch.manual_seed(0)
    module = network.build().train()
    program = torch.export.export(module, (torch.zeros(network.input_shape),))
    return from_torch_export(program, name=name)


def extract(name: str, model: ForwardModel) -> dict[str, list[object]]:
    """The training graph of `model`: tensors, ops, outputs, and what each kernel does.

    Names are shortened to positions, which keeps the files small.
    """
    training = build_training_step(model)
    lowered = tvm.transform.Sequential([LowerToKernels(TRAIN_STEP)])(training.mod)
    extraction = extract_graph(lowered, TRAIN_STEP, alignment_bytes=64)
    graph = extraction.graph
    short = {tensor.name: f"t{k}" for k, tensor in enumerate(graph.tensors)}
    kernels = list(dict.fromkeys(extraction.kernels.values()))
    number = {kernel: k for k, kernel in enumerate(kernels)}
    return {
        "tensors": [
            [t.size_bytes, t.role.value, t.alias_of and short[t.alias_of]] for t in graph.tensors
        ],
        "ops": [
            [
                number[extraction.kernels[op.name]],
                [short[t] for t in op.inputs],
                [short[t] for t in op.outputs],
                [[short[a], short[b]] for a, b in op.updates],
                op.recomputable,
            ]
            for op in graph.ops
        ],
        "outputs": [short[t] for t in graph.outputs],
        "kernels": [
            [
                kernel,
                _flops(lowered[kernel]),
                _workspace_bytes(lowered[kernel], is_scheduled=name not in _AS_WRITTEN),
            ]
            for kernel in kernels
        ],
    }


def _flops(kernel: tvm.tirx.PrimFunc) -> float:
    return float(estimate_tir_flops(tvm.IRModule({"main": kernel})))


def _workspace_bytes(kernel: tvm.tirx.PrimFunc, *, is_scheduled: bool) -> int:
    target = tvm.target.Target("llvm")
    if is_scheduled:
        return prepare_kernel(kernel, target).workspace_bytes
    module = tvm.IRModule({"kernel": kernel.with_attr("global_symbol", "kernel")})
    return workspace_bytes(lower_to_explicit_memory(target)(module)["kernel"])


if __name__ == "__main__":
    main(sys.argv[1:])
