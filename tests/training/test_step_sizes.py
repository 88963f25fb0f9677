"""Training steps of known networks stay small, before and after fusion."""

import pytest
import tvm

from tests.networks.registry import networks
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.relax_ir.signature import TRAIN_STEP
from tvm_xengine.training.build import build_training_step


def _num_ops(mod: tvm.IRModule, *, fuse: bool) -> int:
    lowered = tvm.transform.Sequential([LowerToKernels(TRAIN_STEP, fuse=fuse)])(mod)
    return len(extract_graph(lowered, TRAIN_STEP).graph.ops)


def _step(name: str) -> tvm.IRModule:
    network = networks()[name]
    return build_training_step(network.published(network.full)).mod


@pytest.mark.slow
def test_resnet50_with_its_optimizer_has_few_ops() -> None:
    mod = _step("torchvision resnet50")
    assert _num_ops(mod, fuse=False) <= 650
    assert _num_ops(mod, fuse=True) <= 500


@pytest.mark.slow
def test_gpt2_small_with_its_optimizer_has_few_ops() -> None:
    assert _num_ops(_step("transformers gpt2-small"), fuse=True) <= 900
