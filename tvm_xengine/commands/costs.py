"""``tvm-xengine costs``: measure kernels, learn from them, judge what was learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from tvm_xengine.commands.costs_dataset import (
    collect_kernels,
    dataset_path,
    export_dataset,
    import_dataset,
    inspect_dataset,
    refresh_dataset,
)
from tvm_xengine.commands.costs_options import CostsRequest
from tvm_xengine.commands.options import BudgetOptions, ModelOptions
from tvm_xengine.commands.prepare import requested_model, requested_platform
from tvm_xengine.commands.progress import show_progress
from tvm_xengine.compile.costs import note_transferred
from tvm_xengine.compile.lower import LoweredStep, lower_step
from tvm_xengine.cost_models.dataset.dataset import Dataset, DatasetFolder
from tvm_xengine.cost_models.dataset.quantities import QUANTITIES
from tvm_xengine.cost_models.measure.measure import measure_kernels
from tvm_xengine.cost_models.measure.measurements import (
    MeasurementCache,
    default_cache_path,
    typical_us,
)
from tvm_xengine.cost_models.measure.rpc_timer import RpcTimer
from tvm_xengine.cost_models.measure.timers import (
    IsolatedTimer,
    passing_libraries,
    timer_for,
)
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.cost_models.models.baselines import LogLinear, NearestNeighbours, Roofline
from tvm_xengine.cost_models.models.boosted_trees import BoostedTrees
from tvm_xengine.cost_models.models.card import make_card
from tvm_xengine.cost_models.models.evaluate import hold_out
from tvm_xengine.cost_models.models.metrics import Metrics, noise_floor
from tvm_xengine.cost_models.models.model import CostModel
from tvm_xengine.cost_models.models.model_file import ModelFile, read_model, write_model
from tvm_xengine.cost_models.prediction.predict import (
    SHIPPED_MODEL,
    architecture_of,
    default_model,
    predict_costs,
)
from tvm_xengine.cost_models.prediction.transfer import (
    device_names,
    evaluate_correction,
    evaluate_transfer,
    other_devices,
)
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.kernels.store.kernel_store import KernelStore
from tvm_xengine.report.costs import (
    NOISE,
    print_costs,
    print_facts,
    print_families,
    print_metrics,
)
from tvm_xengine.report.summary import write_json
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import CostSource, OpCost
from tvm_xengine.training.build import build_training_step


def run_costs(request: CostsRequest, console: Console) -> None:
    """Do what the verb says; the JSON file holds what the table shows."""
    document = _VERBS[request.verb](request, console)
    if request.json is not None:
        write_json(document, request.json)


def _noise(request: CostsRequest, console: Console) -> dict[str, Any]:
    """Measure the kernels of a network anew, and compare the rounds."""
    platform = Platform(
        tuple(
            Device(f"target{k}", target, kernels=("tir",))
            for k, target in enumerate(request.targets)
        )
    )
    step = _lowered(request, platform, console)
    kernels = step.distinct
    with TemporaryDirectory() as scratch, show_progress(console) as reporter:
        cache = MeasurementCache(Path(scratch) / "measurements.jsonl")
        measured = measure_kernels(
            kernels,
            cache,
            effort=Effort(rounds=request.rounds),
            on_progress=reporter.stage("measuring kernels"),
            timer=IsolatedTimer(passing_libraries(Path(scratch))),
            on_compiled=reporter.stage("compiling kernels"),
        )
    rounds = [
        tuple(typical_us(batches, m.clock) for batches in m.rounds_us) for m in measured.values()
    ]
    limits = {"all": 0.0, "above 20 us": 20.0, "above 500 us": 500.0}
    rows = {}
    for name, limit_us in limits.items():
        kept = [r for r in rounds if r[0] >= limit_us]
        if kept:
            rows[name] = noise_floor(kept, [("all",)] * len(kept))
    print_metrics(console, "first against last round", rows)
    return {name: asdict(metrics) for name, metrics in rows.items()}


def _measure(request: CostsRequest, console: Console) -> dict[str, Any]:
    platform = requested_platform(BudgetOptions(request.platform, {}, None))
    if request.rpc is not None:
        platform = _generated(platform)
    step = _lowered(request, platform, console)
    cache_path = request.cache or default_cache_path()
    cache = MeasurementCache(cache_path)
    timer = (
        RpcTimer(request.rpc)
        if request.rpc is not None
        else timer_for(KernelStore(cache_path.parent / "kernels"))
    )
    with show_progress(console) as reporter:
        measured = measure_kernels(
            step.distinct,
            cache,
            effort=Effort(rounds=request.rounds),
            on_progress=reporter.stage("measuring kernels"),
            timer=timer,
            on_compiled=reporter.stage("compiling kernels"),
        )
    costs = {
        symbol: OpCost(m.compute_us, interval_us=(m.lo_us, m.hi_us), source=CostSource.MEASURED)
        for symbol, m in measured.items()
    }
    return _report_costs(request, console, step, costs)


def _train(request: CostsRequest, console: Console) -> dict[str, Any]:
    data = DatasetFolder(dataset_path(request)).load()
    architectures = tuple(sorted({architecture_of(target) for target in set(data.targets)}))
    model = BoostedTrees(seed=request.seed)
    with console.status("learning, and holding out one family after the other"):
        predictor = model.fit(data)
        card = make_card(model, data, predictor)
    sources = tuple(sorted(set(data.sources)))
    write_model(ModelFile(predictor, architectures, sources, card), _required(request.output))
    print_facts(console, f"learned from {len(data)} kernels", _summary(card))
    return card


def _eval(request: CostsRequest, console: Console) -> dict[str, Any]:
    data = QUANTITIES[request.quantity](DatasetFolder(dataset_path(request)).load())
    trees = BoostedTrees()
    models: list[CostModel] = [trees.sketched() if request.is_sketch else trees]
    if request.with_baselines:
        models += [Roofline(), NearestNeighbours(), LogLinear()]
    document: dict[str, Any] = {}
    for split in request.splits:
        rows: dict[str, Metrics] = {NOISE: noise_floor(data.rounds_us, data.families)}
        for model in models:
            with show_progress(console) as reporter:
                held_out = hold_out(model, data, split, reporter.stage(f"{split}: {model.name}"))
            rows[model.name] = held_out.metrics()
            rows |= {f"{model.name}, {name}": m for name, m in held_out.by_source().items()}
            if split == "family" and model is models[0]:
                families = held_out.by_family()
                print_families(console, f"{model.name}, each family held out", families)
                document["families"] = _as_document(families)
        print_metrics(console, f"split by {split}", rows)
        document[split] = _as_document(rows)
    return document


def _as_document(rows: Mapping[str, Metrics]) -> dict[str, Any]:
    return {name: asdict(metrics) for name, metrics in rows.items()}


def _predict(request: CostsRequest, console: Console) -> dict[str, Any]:
    step = _lowered(request, requested_platform(BudgetOptions(request.platform, {}, None)), console)
    model = default_model() if request.model is None else read_model(request.model)
    costs = predict_costs(step.distinct, model)
    if model is not None:
        note_transferred(step.distinct, costs, model, console.print)
    return _report_costs(request, console, step, costs)


def _transfer(request: CostsRequest, console: Console) -> dict[str, Any]:
    data = DatasetFolder(dataset_path(request)).load()
    if request.model is not None:
        path = SHIPPED_MODEL if request.model == Path("shipped") else request.model
        return _transfer_model(read_model(path), data, request, console)
    document: dict[str, Any] = {}
    for name in sorted(set(device_names(data))):
        source, target = other_devices(data, name)
        if not len(source) or len(target) < 2 * max(request.measurements):
            continue
        rows = evaluate_transfer(BoostedTrees(), source, target, request.measurements)
        title = f"to {name}"
        print_metrics(console, title, rows)
        document[title] = _as_document(rows)
    if not document:
        raise InvalidDatasetError(
            f"{request.dataset}: expected two devices with at least"
            f" {2 * max(request.measurements)} kernels each, found"
            f" {dict(Counter(device_names(data)))}; collect more, or ask for fewer measurements"
        )
    return document


def _transfer_model(
    model: ModelFile, data: Dataset, request: CostsRequest, console: Console
) -> dict[str, Any]:
    """From a model to the kernels of a dataset that its predictions are corrected with."""
    if len(data) < 2 * max(request.measurements):
        raise InvalidDatasetError(
            f"{request.dataset}: expected at least {2 * max(request.measurements)} kernels, found"
            f" {len(data)}; collect more, or ask for fewer measurements"
        )
    rows = evaluate_correction(model, data, request.measurements)
    title = f"from {request.model}"
    print_metrics(console, title, rows)
    return {title: _as_document(rows)}


def _inspect(request: CostsRequest, console: Console) -> dict[str, Any]:
    path = Path(request.subject) if request.subject else SHIPPED_MODEL
    if path.is_dir():
        return inspect_dataset(path, console)
    model = read_model(path)
    facts: dict[str, Any] = {
        "features": model.predictor.feature_set,
        "architectures": list(model.architectures),
    }
    print_facts(console, path.name, facts | _summary(model.card))
    return facts | dict(model.card)


_VERBS: Mapping[str, Callable[[CostsRequest, Console], dict[str, Any]]] = {
    "noise": _noise,
    "collect": collect_kernels,
    "refresh": refresh_dataset,
    "export": export_dataset,
    "import": import_dataset,
    "measure": _measure,
    "train": _train,
    "eval": _eval,
    "predict": _predict,
    "transfer": _transfer,
    "inspect": _inspect,
}


def _report_costs(
    request: CostsRequest, console: Console, step: LoweredStep, costs: Mapping[str, OpCost]
) -> dict[str, Any]:
    calls = Counter(step.extraction.kernels[op.name] for op in step.extraction.graph.ops)
    rows = [
        (name, device, kernel.source, calls[name], costs[kernel.symbol])
        for (name, device), kernel in step.kernels.items()
        if kernel.symbol in costs
    ]
    print_costs(console, f"kernels of {request.subject}", rows)
    return {
        "kernels": [
            {
                "kernel": name,
                "device": device,
                "computed_by": computed_by,
                "calls": count,
                **{key: getattr(cost, key) for key in ("compute_us", "lo_us", "hi_us")},
                "source": cost.source.value,
            }
            for name, device, computed_by, count, cost in rows
        ]
    }


def _lowered(request: CostsRequest, platform: Platform, console: Console) -> LoweredStep:
    model = requested_model(
        ModelOptions(request.subject, data="", batch_size=request.batch_size, seed=request.seed)
    )
    training = build_training_step(model, seed=request.seed)
    with show_progress(console) as reporter:
        return lower_step(training.mod, platform, reporter.stage("lowering kernels"))


def _generated(platform: Platform) -> Platform:
    """The platform without libraries, which boards behind RPC do not have."""
    return replace(
        platform, devices=tuple(replace(device, kernels=("tir",)) for device in platform.devices)
    )


def _summary(card: Mapping[str, Any]) -> dict[str, Any]:
    errors = card.get("held_out_families", {})
    return {
        "kernels": card.get("kernels"),
        "families": card.get("families"),
        "median error on held-out families": errors.get("median_error_ratio"),
        "Kendall on held-out families": errors.get("kendall"),
        "median error of measuring again": card.get("noise_floor", {}).get("median_error_ratio"),
    }


def _required(path: Path | None) -> Path:
    assert path is not None  # the parser requires it
    return path
