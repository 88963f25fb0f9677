"""``tvm-xengine train``: plan a training step, run it beside the keep-everything step, report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from tvm_xengine.codegen.kernel_store import KernelStore
from tvm_xengine.commands.options import Request
from tvm_xengine.commands.prepare import PreparedStep, kernel_store, prepare, show_progress
from tvm_xengine.compiler import build_forward, build_step, plan_keep_everything
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.graph import Role
from tvm_xengine.report.summary import (
    PlanSummary,
    RunSummary,
    as_document,
    summarize_plan,
    write_json,
)
from tvm_xengine.report.tables import print_report
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.runtime.trainer import Comparison, train
from tvm_xengine.training.data import Dataset, load_digits
from tvm_xengine.training.evaluation import evaluation_module


def run_train(request: Request, console: Console) -> None:
    """Plan, train and report; the JSON report holds the same numbers as the table."""
    prepared = prepare(request, console)
    data = _digits_for(prepared)
    store = kernel_store(request)
    with show_progress(console) as track:
        planned = build_step(
            prepared.lowered,
            prepared.plan,
            store=store,
            on_compiled=track("compiling kernels"),
        )
    keep_all = _keep_all_step(prepared, store)
    batches = _batches(prepared, data, request)
    with show_progress(console) as track:
        advance = track("training")
        trace, comparison = train(
            planned,
            prepared.training.initial_state,
            batches,
            request.steps,
            reference=keep_all,
            on_step=lambda done, loss: advance(done, request.steps, f"loss {loss:.4f}"),
        )
    run = RunSummary(
        steps=request.steps,
        loss_first=trace.losses[0],
        loss_last=trace.losses[-1],
        accuracy=test_accuracy(prepared, trace.state, data, store),
        step_us_measured=trace.median_step_us,
        identical_to_keep_all=None if comparison is None else comparison.is_identical,
        max_rel_diff=None if comparison is None else comparison.max_rel_diff,
    )
    plan = _with_measurements(
        summarize_plan(request.model.model, prepared.model.batch_size, prepared.plan),
        planned,
        comparison,
    )
    print_report(console, plan, run)
    if request.output.json is not None:
        write_json(as_document(plan, run), request.output.json)


def test_accuracy(
    prepared: PreparedStep,
    state: Mapping[str, NDArray[np.generic]],
    data: Dataset,
    store: KernelStore | None = None,
) -> float:
    """Share of the test images that the forward function, in inference mode, names rightly."""
    model = prepared.model
    forward = build_forward(
        evaluation_module(model),
        len(model.input_names),
        prepared.plan.problem.platform,
        store=store,
    )
    forward.write({name: state[name] for name in forward.names(Role.PARAMETER)})
    correct = 0
    for images, labels, count in data.test_batches(model.batch_size):
        scores = np.asarray(forward.step({model.input_names[0]: images})["output"])
        correct += int((scores[:count].argmax(axis=-1) == labels[:count]).sum())
    return correct / len(data.test_labels)


def _digits_for(prepared: PreparedStep) -> Dataset:
    shapes = prepared.model.input_shapes
    if len(shapes) != 1 or len(shapes[0]) != 4:
        raise UnsupportedModelError(
            f"{prepared.model.name}: the digits data set feeds one input (batch, channels, height,"
            f" width), the model takes {list(shapes)}"
        )
    _, channels, height, width = shapes[0]
    return load_digits((channels, height, width))


def _keep_all_step(prepared: PreparedStep, store: KernelStore) -> StepExecutable | None:
    """The step that keeps everything on the home device; None where that cannot run it."""
    problem = prepared.plan.problem
    home = problem.platform.home
    if not all(problem.can_run(op.name, home) for op in problem.graph.ops):
        return None
    return build_step(prepared.lowered, plan_keep_everything(problem, home), store=store)


def _batches(
    prepared: PreparedStep, data: Dataset, request: Request
) -> Iterator[Mapping[str, NDArray[np.generic]]]:
    training = prepared.training
    image_name, label_name = training.batch_names
    hyper = {"lr": np.float32(request.learning_rate)}
    settings = {name: np.asarray(hyper[name]) for name in training.hyper_names}
    for images, labels in data.batches(prepared.model.batch_size, seed=request.model.seed):
        yield {image_name: images, label_name: labels, **settings}


def _with_measurements(
    plan: PlanSummary, executable: StepExecutable, comparison: Comparison | None
) -> PlanSummary:
    peaks = executable.measured_peak_bytes
    keep_all = plan.keep_all
    if keep_all is not None and comparison is not None:
        keep_all = replace(keep_all, step_us_measured=comparison.median_reference_step_us)
    return replace(
        plan,
        keep_all=keep_all,
        devices=tuple(
            replace(device, measured_peak_bytes=peaks[device.name]) for device in plan.devices
        ),
    )
