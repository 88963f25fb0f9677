"""``tvm-xengine train``: plan a training step, run it beside the keep-everything step, report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from tvm_xengine.commands.options import Request
from tvm_xengine.commands.prepare import PreparedStep, prepare, summarize
from tvm_xengine.commands.progress import show_progress
from tvm_xengine.compile.build import build_step
from tvm_xengine.compile.forward import build_forward
from tvm_xengine.compile.plan import plan_keep_all
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.kernels.store.kernel_store import KernelStore
from tvm_xengine.relax_ir.types import static_shape
from tvm_xengine.report.summary import (
    PlanSummary,
    RunSummary,
    as_document,
    write_json,
)
from tvm_xengine.report.tables import print_report
from tvm_xengine.runtime.data import (
    Dataset,
    load_digit_masks,
    load_digit_tokens,
    load_digits,
)
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.runtime.trainer import Comparison, train
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.training.evaluation import evaluation_module


def run_train(request: Request, console: Console) -> None:
    """Plan, train and report; the JSON report holds the same numbers as the table."""
    with show_progress(console) as reporter:
        prepared = prepare(request, reporter)
        data = _digits_for(prepared)
        store = prepared.stores.kernels
        planned = build_step(
            prepared.planned.lowered,
            prepared.planned.plan,
            store=store,
            on_compiled=reporter.stage("compiling kernels"),
        )
    keep_all = _keep_all_step(prepared, store)
    batches = _batches(prepared, data, request)
    with show_progress(console) as reporter:
        advance = reporter.stage("training")
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
        summarize(request, prepared),
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
    """Share of the test labels that the forward function, in inference mode, names rightly."""
    model = prepared.model
    forward = build_forward(
        evaluation_module(model),
        len(model.input_names),
        prepared.planned.plan.problem.platform,
        store=store,
    )
    forward.write({name: state[name] for name in forward.names(Role.PARAMETER)})
    hits: list[NDArray[np.bool_]] = []
    for images, labels, count in data.test_batches(model.batch_size):
        scores = np.asarray(forward.step({model.input_names[0]: images})["output"])
        named = scores.argmax(axis=1).reshape(labels.shape)
        hits.append((named == labels)[:count])
    return float(np.concatenate(hits).mean())


def _digits_for(prepared: PreparedStep) -> Dataset:
    """The digits in the form that the model's input and labels have."""
    model, training = prepared.model, prepared.training
    types = {param.name: param.ty for param in training.function.params}
    if len(model.input_names) == 1:
        shape = model.input_shapes[0]
        labels = static_shape(types[training.batch_names[-1]])
        reads_tokens = "int" in str(types[model.input_names[0]].dtype)
        match len(shape), reads_tokens:
            case 4, False if len(labels) == 1:
                return load_digits((shape[1], shape[2], shape[3]))
            case 4, False if labels == (shape[0], *shape[2:]):
                return load_digit_masks((shape[1], shape[2], shape[3]))
            case 2, True if prod(labels) == prod(shape):
                return load_digit_tokens(shape[1])
    raise UnsupportedModelError(
        f"{model.name}: the digits data set feeds one input, images (batch, channels, height, width)"
        " with a class for each image or pixel, or tokens (batch, length) with a class for each;"
        f" the model takes {list(model.input_shapes)} and"
        f" {[str(types[name]) for name in training.batch_names[len(model.input_names) :]]}"
    )


def _keep_all_step(prepared: PreparedStep, store: KernelStore) -> StepExecutable | None:
    """The step that keeps everything on the home device; None where that cannot run it."""
    problem = prepared.planned.plan.problem
    home = problem.platform.home
    if not all(problem.can_run(op.name, home) for op in problem.graph.ops):
        return None
    return build_step(prepared.planned.lowered, plan_keep_all(problem, home), store=store)


def _batches(
    prepared: PreparedStep, data: Dataset, request: Request
) -> Iterator[Mapping[str, NDArray[np.generic]]]:
    training = prepared.training
    image_name, label_name = training.batch_names
    hyper = {"lr": np.float32(request.learning_rate)}
    settings = {name: np.asarray(hyper[name]) for name in training.hyper_names}
    types = {param.name: param.ty for param in training.function.params}
    labels_shape = static_shape(types[label_name])
    for images, labels in data.batches(prepared.model.batch_size, seed=request.model.seed):
        yield {image_name: images, label_name: labels.reshape(labels_shape), **settings}


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
