"""``python -m benchmarks.costs.unseen_networks FOLDER``: time the kernels of networks that no model knows.

Four of PyTorch's at 64 x 64 pixels, and four designs of other kinds, on this processor with its library. The
folder is a dataset for ``tvm-xengine costs judge --on networks``; what is there is not timed again.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import tvm

from tests.networks.models.torchvision_models import torchvision_models
from tvm_xengine.cost_models.corpus.designs.catalogue import build_design
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder
from tvm_xengine.cost_models.dataset.sources import KernelSources, add_kernel
from tvm_xengine.cost_models.measure.measure import measure_kernels
from tvm_xengine.cost_models.measure.this_machine import device_fingerprint
from tvm_xengine.cost_models.measure.timers import IsolatedTimer, passing_libraries
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.torch.read import from_torch_export
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.sources import prepare_from
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.relax_ir.kernel_calls import kernels_called
from tvm_xengine.relax_ir.signature import TRAIN_STEP
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.optimizers import SGD

EFFORT = Effort(rounds=2, extra_rounds=2)
TARGET = resolve_target("llvm -mcpu=native")


def _vision(name: str) -> ForwardModel:
    """A network of torchvision, without what it draws at random."""
    torch.manual_seed(0)
    module = getattr(torchvision_models(), name)(num_classes=100).train()
    for part in module.modules():
        if type(part).__name__ in ("Dropout", "StochasticDepth"):
            part.p = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, (torch.randn(2, 3, 64, 64),))
    return from_torch_export(program, name=name)


def _design(name: str) -> ForwardModel:
    return build_design(name, batch_size=8, num_classes=10, seed=0)


NETWORKS: Mapping[str, Callable[[], ForwardModel]] = {
    **{name: partial(_design, name) for name in ("bert", "gru", "llama", "wavenet")},
    **{
        name: partial(_vision, name)
        for name in ("convnext_tiny", "mobilenet_v3_small", "efficientnet_b0", "densenet121")
    },
}


def _kernels(forward: ForwardModel) -> list[DeviceKernel]:
    training = build_training_step(forward, optimizer=SGD(momentum=0.9))
    lowered = tvm.transform.Sequential([LowerToKernels(TRAIN_STEP)])(training.mod)
    kernels = []
    for name in kernels_called(lowered[TRAIN_STEP]):
        with suppress(InvalidPlatformError):
            kernels.append(prepare_from(("onednn", "tir"), lowered[name], TARGET, name))
    return kernels


def main(path: Path) -> None:
    """Time all of them into a dataset."""
    folder, device = DatasetFolder(path), device_fingerprint(TARGET)
    sources = KernelSources(path)
    for name, build in NETWORKS.items():
        kernels = _kernels(build())
        for kernel in kernels:
            sources.add(kernel, device)
            add_kernel(folder, kernel, device, (name,))
        with TemporaryDirectory() as scratch:
            timer = IsolatedTimer(passing_libraries(Path(scratch)))
            measure_kernels(kernels, folder.measurements, effort=EFFORT, timer=timer)
        sys.stdout.write(f"{name}: {len(kernels)} kernels\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
