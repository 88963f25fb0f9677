"""``tvm-xengine train``: plan a training step, run it beside the keep-all step, report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from tvm_xengine.commands.options import Request
from tvm_xengine.commands.prepare import PreparedStep, prepare, summarize
from tvm_xengine.commands.progress import show_progress
from tvm_xengine.compile.build import build_step
from tvm_xengine.compile.forward import build_forward
from tvm_xengine.compile.plan import plan_keep_all
from tvm_xengine.data.arrays import Data
from tvm_xengine.data.load import Wanted, load_data
from tvm_xengine.files.atomic_write import write_bytes_atomically
from tvm_xengine.kernels.store.kernel_store import KernelStore
from tvm_xengine.relax_ir.types import static_shape
from tvm_xengine.report.summary import (
    PlanSummary,
    RunSummary,
    as_document,
    write_json,
)
from tvm_xengine.report.tables import print_report
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.runtime.trainer import Comparison, train
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.training.evaluation import evaluation_module


def run_train(request: Request, console: Console) -> None:
    """Plan, train and report; the JSON report holds the same numbers as the table."""
    with show_progress(console) as reporter:
        prepared = prepare(request, reporter)
        data = load_data(request.model.data, wanted_data(prepared))
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
            guard=request.guard,
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
    if request.output.state is not None:
        _save(prepared, trace.state, request.output.state)
        console.print(f"trained tensors written to {request.output.state}")


def test_accuracy(
    prepared: PreparedStep,
    state: Mapping[str, NDArray[np.generic]],
    data: Data,
    store: KernelStore | None = None,
) -> float | None:
    """Share of the held-out labels that the forward function, in inference mode, names rightly.

    None where nothing is held out, or the targets are no classes.
    """
    model = prepared.model
    targets = set(data.validation) - set(model.input_names)
    if len(targets) != 1 or not all(data.validation[name].dtype.kind in "iu" for name in targets):
        return None
    forward = build_forward(
        evaluation_module(model),
        len(model.input_names),
        prepared.planned.plan.problem.platform,
        store=store,
    )
    forward.write({name: state[name] for name in forward.names(Role.PARAMETER)})
    hits: list[NDArray[np.bool_]] = []
    (target,) = targets
    for batch, counted in data.validation_batches(model.batch_size):
        scores = np.asarray(
            forward.step({name: batch[name] for name in model.input_names})["output"]
        )
        labels = batch[target]
        named = scores.argmax(axis=1).reshape(labels.shape)
        hits.append((named == labels)[:counted])
    return float(np.concatenate(hits).mean())


def _save(prepared: PreparedStep, state: Mapping[str, NDArray[np.generic]], path: Path) -> None:
    """Write parameters, statistics and constants by the names of the file or module."""
    from safetensors.numpy import save

    tensors = {
        name: np.ascontiguousarray(state.get(role.variable, prepared.model.state[role.variable]))
        for role in prepared.model.roles
        for name in role.names
    }
    write_bytes_atomically(path, save(tensors))


def wanted_data(prepared: PreparedStep) -> Wanted:
    """Names, shapes and types of the inputs and targets that the step reads from a batch."""
    training = prepared.training
    types = {param.name: param.ty for param in training.function.params}
    spec = {
        name: (static_shape(types[name]), str(types[name].dtype)) for name in training.batch_names
    }
    inputs = prepared.model.input_names
    return Wanted(
        {name: spec[name] for name in spec if name in inputs},
        {name: spec[name] for name in spec if name not in inputs},
    )


def _keep_all_step(prepared: PreparedStep, store: KernelStore) -> StepExecutable | None:
    """The step that keeps everything on the home device; None where that cannot run it."""
    problem = prepared.planned.plan.problem
    home = problem.platform.home
    if not all(problem.can_run(op.name, home) for op in problem.graph.ops):
        return None
    return build_step(prepared.planned.lowered, plan_keep_all(problem, home), store=store)


def _batches(
    prepared: PreparedStep, data: Data, request: Request
) -> Iterator[Mapping[str, NDArray[np.generic]]]:
    training = prepared.training
    hyper = {"lr": np.float32(request.learning_rate)}
    settings = {name: np.asarray(hyper[name]) for name in training.hyper_names}
    for epoch in count():
        for batch in data.epoch(epoch, prepared.model.batch_size, request.model.seed):
            yield {**batch, **settings}


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
