"""Every kind of file that this project reads: a sample that is right, and what reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tvm_xengine.cost_models.dataset.dataset import DatasetFolder


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes
    ----------
    file
        Its name.
    write
        Makes a sample.
    read
        What reads it.
    """

    file: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]


def _write_platform(path: Path) -> None:
    from tvm_xengine.scheduling.platform import Device, Link, Platform
    from tvm_xengine.scheduling.platform_file import write_platform

    devices = (Device("cpu", "llvm", 1 << 30), Device("flash", None, 1 << 20, power_w=0.5))
    links = (Link("cpu", "flash", latency_us=3.0, bandwidth_gb_s=2.0), Link("flash", "cpu"))
    write_platform(Platform(devices, links), path)


def _read_platform(path: Path) -> object:
    from tvm_xengine.scheduling.platform_file import read_platform

    return read_platform(path)


def _write_problem(path: Path) -> None:
    from tests.passes.small_step import small_problem, two_cpus
    from tvm_xengine.scheduling.problem import write_problem

    write_problem(small_problem(two_cpus()), path)


def _write_constrained(path: Path) -> None:
    """A problem with ops that are pinned and others that run once."""
    from dataclasses import replace

    from tests.passes.small_step import small_problem, two_cpus
    from tvm_xengine.scheduling.constraints import Constraints
    from tvm_xengine.scheduling.problem import write_problem

    problem = small_problem(two_cpus())
    first, second, *_ = (op.name for op in problem.graph.ops)
    constraints = Constraints({first: "cpu"}, frozenset([second]))
    write_problem(replace(problem, constraints=constraints), path)


def _read_problem(path: Path) -> object:
    from tvm_xengine.scheduling.problem import read_problem
    from tvm_xengine.solvers.result import Limits
    from tvm_xengine.solvers.solve import solve

    return solve(read_problem(path), "greedy", limits=Limits(1.0))


def _write_schedule(path: Path) -> None:
    from tvm_xengine.scheduling.schedule import Compute, Free, Schedule, Transfer, write_schedule

    steps = (Compute("h", "cpu"), Transfer("h", "cpu", "cpu_generic"), Free("h", "cpu"))
    write_schedule(Schedule(steps * 5), path)


def _read_schedule(path: Path) -> object:
    from tvm_xengine.scheduling.schedule import read_schedule

    return read_schedule(path)


def _write_dataset(path: Path) -> None:
    dataset_of_two(path.parent)


def dataset_of_two(folder: Path) -> DatasetFolder:
    """Two measured kernels with the features one and two."""
    from tvm_xengine.cost_models.dataset.dataset import DatasetFolder, KernelRecord
    from tvm_xengine.cost_models.features.table import FEATURE_SET
    from tvm_xengine.cost_models.measure.measurements import Measurement

    made = DatasetFolder(folder)
    for k, source in (("a", "tir"), ("b", "onednn")):
        record = KernelRecord(
            *(k, "d", '{"kind":"llvm"}', f"name {k}", ("lenet", "mlp"), "float32[2]", FEATURE_SET),
            *((1.5, 2.25), 10.0, 20.0, 30.0, 64, source),
        )
        made.add(record, ("one", "two"))
        made.measurements.add(
            Measurement(
                *(k, "d", f"name {k}", 5.0, 4.0, 6.0, "thread", ((5.0, 5.5), (4.0,))),
                *((0.5, 1.0), (100.0, 101.0)),
            )
        )
    return made


def _read_dataset(path: Path) -> object:
    from tvm_xengine.cost_models.dataset.dataset import DatasetFolder

    return DatasetFolder(path.parent).load()


def _write_measurements(path: Path) -> None:
    dataset_of_two(path.parent / "made")
    path.write_bytes((path.parent / "made" / "measurements.jsonl").read_bytes())


def _read_measurements(path: Path) -> object:
    from tvm_xengine.cost_models.measure.measurements import MeasurementCache

    return MeasurementCache(path).kernels()


def _write_parquet(path: Path) -> None:
    from tvm_xengine.cost_models.dataset.parquet import export_parquet

    export_parquet(dataset_of_two(path.parent / "made"), path)


def _read_parquet(path: Path) -> object:
    import shutil

    from tvm_xengine.cost_models.dataset.dataset import DatasetFolder
    from tvm_xengine.cost_models.dataset.parquet import import_parquet

    shutil.rmtree(path.parent / "imported", ignore_errors=True)
    return import_parquet(path, DatasetFolder(path.parent / "imported"))


def _write_cost_model(path: Path) -> None:
    from tests.cost_models.synthetic import synthetic
    from tvm_xengine.cost_models.models.boosted_trees import BoostedTrees
    from tvm_xengine.cost_models.models.model_file import ModelFile, write_model

    predictor = BoostedTrees(members=2, trees=4, learning_rate=0.2, depth=3).fit(synthetic(60))
    write_model(ModelFile(predictor, ("llvm x86_64",), card={"kernels": 60}), path)


def _read_cost_model(path: Path) -> object:
    from tests.cost_models.synthetic import synthetic
    from tvm_xengine.cost_models.models.model_file import read_model

    return read_model(path).predictor.predict(synthetic(5).table)


def _write_onnx(path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    shape = numpy_helper.from_array(np.array([2, 3]), "s")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Reshape", ["r", "s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [weight, shape],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))


def _read_onnx(path: Path) -> object:
    from tvm_xengine.frontends.onnx.read import from_onnx

    return from_onnx(path)


def _write_pt2(path: Path) -> None:
    import torch
    from torch import nn

    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))
    torch.export.save(torch.export.export(module, (torch.zeros(4, 6),)), path)


def _read_pt2(path: Path) -> object:
    from tvm_xengine.frontends.torch.read import from_torch_export

    return from_torch_export(path)


def _write_tuned(path: Path) -> None:
    from tvm_xengine.kernels.store.tuned import TunedSchedule, TunedSchedules

    made = TunedSchedules(path.parent)
    for trials in (1, 2):
        made.add(TunedSchedule(f"k{trials}", "llvm", "kernel", "[]", 2.0, 1.0, trials, "search"))


def _read_tuned(path: Path) -> object:
    from tvm.target import Target

    from tvm_xengine.kernels.store.tuned import TunedSchedules

    return TunedSchedules(path.parent).relatives("kernel", Target("llvm"))


def _write_npz(path: Path) -> None:
    np.savez(path, x=np.ones((10, 3, 2), np.float32), y=np.arange(10))


def _read_npz(path: Path) -> object:
    from tvm_xengine.data.npz import read_npz

    return read_npz(path)


def _write_image(path: Path) -> None:
    from PIL import Image

    pixels = np.arange(12 * 10 * 3, dtype=np.uint8).reshape(12, 10, 3)
    Image.fromarray(pixels).save(path)


def _read_image(path: Path) -> object:
    from tvm_xengine.data.images import read_images

    return read_images(path.parent.parent, (3, 8, 8))


def _write_manifest(path: Path) -> None:
    from tvm_xengine.files.write_directory import write_directory

    package = path.parent.parent / "made"
    write_directory(package, lambda folder: (folder / "step.c").write_text("int x;\n") and None)
    path.write_bytes((package / path.name).read_bytes())
    (path.parent / "step.c").write_text("int x;\n")


def _read_manifest(path: Path) -> object:
    from tvm_xengine.files.write_directory import check_free

    return check_free(path.parent, force=True)


def _write_package_checkpoint(path: Path) -> None:
    from tvm_xengine.aot.package.checkpoint_file import Checkpoint, write_checkpoint

    tensors = {"model/w": np.ones((4, 2), np.float32), "setting/lr": np.array(0.1, np.float32)}
    write_checkpoint(path, Checkpoint(tensors, sequence=3))


def _write_package_plan(path: Path) -> None:
    """What the plan of a package says of its checkpoints."""
    import json

    from tvm_xengine.aot.package.contents import SCHEMA

    kept = {"name": "w", "saved_as": ["model/w"], "dtype": "float32", "shape": [4, 2]}
    frozen = {"model/b": {"dtype": "float32", "shape": [3], "hash": "00d1ce"}}
    document = {
        "schema": SCHEMA,
        "name": "net",
        "origin": "0a0b",
        "frozen_hash": "0c",
        "state": [kept],
        "settings": {"lr": 0.1},
        "frozen": frozen,
    }
    path.write_text(json.dumps(document))


def _read_package_plan(path: Path) -> object:
    """A checkpoint for the package is made of trained tensors, and written."""
    from tvm_xengine.aot.package.checkpoint_file import Checkpoint, write_checkpoint
    from tvm_xengine.aot.package.migrate import migrated, read_package_state

    trained = Checkpoint({"model/w": np.ones((4, 2), np.float32)}, sequence=3)
    made = migrated(trained, read_package_state(path.parent), of_package=False)
    return write_checkpoint(path.parent / "state.xecp", made.checkpoint)


def _read_package_checkpoint(path: Path) -> object:
    from tvm_xengine.aot.package.checkpoint_file import read_checkpoint

    return read_checkpoint(path)


@cache
def _lowered() -> Any:
    import torch
    from torch import nn

    import tvm_xengine as xe

    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))
    training = xe.training_step(module, torch.zeros(4, 6), loss="cross_entropy")
    return xe.lower(training, xe.processor())


def _planned() -> Any:
    import tvm_xengine as xe

    return xe.plan(xe.make_problem(_lowered(), costs="roofline"), solver="greedy")


@cache
def _step() -> Any:
    import tvm_xengine as xe

    return xe.build(_lowered(), _planned())


def _write_plan(path: Path) -> None:
    _planned().save(path)


def _read_plan(path: Path) -> object:
    """What is read runs: a step that a plan leads beyond its arena would end the process."""
    import tvm_xengine as xe

    step = xe.build(_lowered(), xe.StepPlan.load(path, _lowered()))
    return step(np.zeros((4, 6), np.float32), np.zeros(4, np.int64))


def _write_run(path: Path) -> None:
    _step().save(path)


def _read_run(path: Path) -> object:
    return _step().load(path)


def _write_state(path: Path) -> None:
    from tvm_xengine.state.state_file import write_state

    write_state(_step().state_dict(), path)


def _read_state(path: Path) -> object:
    from tvm_xengine.state.state_file import read_state

    return _step().load_state_dict(read_state(path))


KINDS: Mapping[str, Kind] = {
    "platform": Kind("board.toml", _write_platform, _read_platform),
    "problem": Kind("problem.json", _write_problem, _read_problem),
    "problem with constraints": Kind("constrained.json", _write_constrained, _read_problem),
    "schedule": Kind("schedule.json", _write_schedule, _read_schedule),
    "dataset": Kind("made/kernels.jsonl", _write_dataset, _read_dataset),
    "measurements": Kind("measurements.jsonl", _write_measurements, _read_measurements),
    "parquet": Kind("dataset.parquet", _write_parquet, _read_parquet),
    "cost model": Kind("cpu.costmodel", _write_cost_model, _read_cost_model),
    "onnx": Kind("model.onnx", _write_onnx, _read_onnx),
    "pt2": Kind("model.pt2", _write_pt2, _read_pt2),
    "tuned schedules": Kind("schedules.jsonl", _write_tuned, _read_tuned),
    "npz": Kind("data.npz", _write_npz, _read_npz),
    "image": Kind("images/class/image.png", _write_image, _read_image),
    "package's file list": Kind("package/.tvm-xengine-files.json", _write_manifest, _read_manifest),
    "package's checkpoint": Kind("state.xecp", _write_package_checkpoint, _read_package_checkpoint),
    "package's plan": Kind("package/net_plan.json", _write_package_plan, _read_package_plan),
    "plan": Kind("plan.json", _write_plan, _read_plan),
    "run's checkpoint": Kind("run.ckpt", _write_run, _read_run),
    "state, safetensors": Kind("state.safetensors", _write_state, _read_state),
    "state, state_dict": Kind("state.pt", _write_state, _read_state),
    "state, npz": Kind("state.npz", _write_state, _read_state),
}
