"""What can be said on the command line, as frozen options."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tvm_xengine.commands.costs_options import (
    CostsRequest,
    add_costs_arguments,
    costs_request,
    seed,
)
from tvm_xengine.commands.export_options import (
    ExportRequest,
    add_export_arguments,
    export_request,
)
from tvm_xengine.compile.options import CostChoice
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.scheduling.sizes import parse_bytes
from tvm_xengine.solvers.backends.worker import MODULES
from tvm_xengine.solvers.result import Limits, Objective
from tvm_xengine.solvers.solve import SOLVERS, backend_for

_NO_COUNT = 2**31
"""Steps, batches and sizes are 32-bit numbers in kernels."""


@dataclass(frozen=True)
class ModelOptions:
    """Which training step is meant.

    Attributes
    ----------
    model
        Name of a zoo network, or a ``.onnx`` or ``.pt2`` file.
    batch_size
        None takes the file's own, or the default of `load_model`.
    size, num_classes
        Of a zoo network; None takes its usual ones.
    draw_weights
        Draw the weights of a file anew.
    output
        Position of the output that is trained; None where there is only one.
    train, freeze
        Patterns of the names of parameters that are trained, and that are not.
    """

    model: str
    data: str
    batch_size: int | None
    seed: int
    size: int | None = None
    num_classes: int | None = None
    draw_weights: bool = False
    output: int | None = None
    train: tuple[str, ...] | None = None
    freeze: tuple[str, ...] = ()


@dataclass(frozen=True)
class BudgetOptions:
    """On which machine, and within which memory.

    Attributes
    ----------
    platform
        TOML file; None means the two CPU devices of `default_platform`.
    budgets
        Bytes of single devices; they win over `ratio`.
    ratio
        Budget of every computing device as in `tvm_xengine.planning.planner.budgets_for_ratio`; None
        keeps the platform's.
    """

    platform: Path | None
    budgets: Mapping[str, int]
    ratio: float | None


@dataclass(frozen=True)
class OutputOptions:
    """Files to write."""

    json: Path | None
    schedule: Path | None
    problem: Path | None
    plot: Path | None
    state: Path | None = None


@dataclass(frozen=True)
class Request:
    """A parsed command line.

    Attributes
    ----------
    cache
        File of measurements; None means the user's cache folder.
    costs
        Where the costs of kernels come from.
    database
        Folder of tuned schedules; None means our rules alone.
    trials
        How many schedules `tune` tries.
    guard
        Whether training stops at values that are not finite.
    """

    command: str
    model: ModelOptions
    budget: BudgetOptions
    plan: PlanOptions
    output: OutputOptions
    cache: Path | None
    steps: int
    learning_rate: float
    ratios: tuple[float, ...]
    costs: CostChoice = CostChoice.ACTIVE
    export: ExportRequest | None = None
    costs_request: CostsRequest | None = None
    database: Path | None = None
    trials: int = 0
    guard: bool = True


def parse(arguments: Sequence[str] | None) -> Request:
    """The request that `arguments` (default: those of the process) make; exits with 2 on bad ones."""
    parser = argparse.ArgumentParser(
        prog="tvm-xengine",
        description="Plan and run training steps that fit the memory of every device.",
    )
    parser.add_argument("--version", action="version", version=version("tvm-xengine"))
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train", help="plan a training step, run it, compare, report")
    plan = commands.add_parser("plan", help="the same up to the schedule; nothing is executed")
    pareto = commands.add_parser("pareto", help="time against budget, over a range of budgets")
    export = commands.add_parser("export", help="the training step as plain C for a small machine")
    tune = commands.add_parser("tune", help="search for faster loops of the generated kernels")
    for command in (train, plan, pareto):
        _add_common(command)
        _add_database(command)
    _add_tune(tune)
    _add_model(export)
    _add_solver(export, ["--solver-backend"])
    export.add_argument("--lr", type=_positive_float, default=0.01, help="learning rate (0.01)")
    add_export_arguments(export, _size)
    for command in (train, plan):
        _add_budget_ratio(command)
        command.add_argument(
            "--costs",
            choices=[choice.value for choice in CostChoice],
            default=CostChoice.ACTIVE.value,
            help="where the costs of kernels come from (active: predicted, and measured where the"
            " plan relies on them)",
        )
    pareto.add_argument(
        "--ratios",
        type=_ratio,
        metavar="R",
        nargs="+",
        default=[1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3],
        help="budgets as in --budget-ratio (1.0 down to 0.3)",
    )
    pareto.add_argument("--plot", type=Path, metavar="FILE", help="draw the front (.svg, .png)")
    train.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="write the trained tensors to a .safetensors file, by the model's own names",
    )
    train.add_argument("--steps", type=_positive_int, default=600, help="training steps (600)")
    train.add_argument("--lr", type=_positive_float, default=0.01, help="learning rate (0.01)")
    train.add_argument(
        "--no-guard",
        action="store_true",
        help="train on when values are not finite (default: stop, and restore the step before)",
    )
    costs = commands.add_parser("costs", help="measure kernels, learn from them, judge that")
    add_costs_arguments(costs)
    options = parser.parse_args(arguments)
    if options.command == "costs":
        return _costs_only(costs_request(options))
    if options.command == "tune":
        return _tune_only(options)
    try:
        backend_for(options.solver, options.solver_backend)
    except ValueError as error:
        parser.error(str(error))
    return Request(
        command=options.command,
        model=_model_options(options),
        budget=BudgetOptions(
            options.platform,
            dict(getattr(options, "budget", ())),
            getattr(options, "budget_ratio", None),
        ),
        plan=PlanOptions(
            solver=options.solver,
            backend=options.solver_backend,
            objective=Objective(options.objective),
            limits=Limits(options.time_limit, options.gap),
            seed=options.seed,
        ),
        output=OutputOptions(
            json=getattr(options, "json", None),
            schedule=getattr(options, "save_schedule", None),
            problem=getattr(options, "save_problem", None),
            plot=getattr(options, "plot", None),
            state=getattr(options, "save", None),
        ),
        cache=getattr(options, "cache", None),
        steps=getattr(options, "steps", 1),
        learning_rate=getattr(options, "lr", 0.0),
        ratios=tuple(getattr(options, "ratios", ())),
        costs=CostChoice(getattr(options, "costs", CostChoice.MEASURED.value)),
        export=export_request(options) if options.command == "export" else None,
        database=getattr(options, "database", None),
        guard=not getattr(options, "no_guard", False),
    )


def _model_options(options: argparse.Namespace) -> ModelOptions:
    return ModelOptions(
        model=options.model,
        data=getattr(options, "data", ""),
        batch_size=options.batch,
        seed=options.seed,
        size=options.size,
        num_classes=options.classes,
        draw_weights=options.draw_weights,
        output=options.output_index,
        train=None if getattr(options, "train", None) is None else tuple(options.train),
        freeze=tuple(getattr(options, "freeze", ())),
    )


def _tune_only(options: argparse.Namespace) -> Request:
    return Request(
        command="tune",
        model=_model_options(options),
        budget=BudgetOptions(options.platform, {}, None),
        plan=PlanOptions(seed=options.seed),
        output=OutputOptions(options.json, None, None, None),
        cache=options.cache,
        steps=1,
        learning_rate=0.0,
        ratios=(),
        costs=CostChoice.MEASURED,
        database=options.database,
        trials=options.trials,
    )


def _costs_only(request: CostsRequest) -> Request:
    return Request(
        command="costs",
        model=ModelOptions(request.subject, "", request.batch_size, request.seed),
        budget=BudgetOptions(request.platform, {}, None),
        plan=PlanOptions(),
        output=OutputOptions(request.json, None, None, None),
        cache=request.cache,
        steps=1,
        learning_rate=0.0,
        ratios=(),
        costs_request=request,
    )


def _add_database(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--database",
        type=Path,
        metavar="DIR",
        help="generated kernels take the loops that `tune` has kept there where they are faster",
    )


def _add_tune(command: argparse.ArgumentParser) -> None:
    _add_model(command)
    command.add_argument("--platform", type=Path, metavar="FILE", help="platform TOML file")
    command.add_argument(
        "--trials", type=_positive_int, default=500, metavar="N", help="loops to try in all (500)"
    )
    command.add_argument(
        "--database", type=Path, metavar="DIR", required=True, help="where to keep what is found"
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    command.add_argument("--cache", type=Path, metavar="FILE", help="file of measurements")


def _add_common(command: argparse.ArgumentParser) -> None:
    _add_model(command)
    command.add_argument(
        "--data",
        default="digits",
        metavar="SOURCE",
        help="digits, a .npz file with arrays x and y, a folder of images with a subfolder per class,"
        " or package.module:function (digits)",
    )
    command.add_argument(
        "--train",
        nargs="+",
        default=None,
        metavar="PATTERN",
        help="train only the parameters whose names match, e.g. 'fc*'",
    )
    command.add_argument(
        "--freeze",
        nargs="+",
        default=[],
        metavar="PATTERN",
        help="do not train the parameters whose names match",
    )
    command.add_argument("--platform", type=Path, metavar="FILE", help="platform TOML file")
    command.add_argument(
        "--budget",
        type=_device_budget,
        metavar="DEVICE=BYTES",
        nargs="+",
        action="extend",
        default=[],
        help="memory of a device's arena, e.g. cpu=2MiB",
    )
    _add_solver(command)
    command.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    command.add_argument("--save-problem", type=Path, metavar="FILE")
    command.add_argument("--cache", type=Path, metavar="FILE", help="file of measurements")


def _add_model(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help="zoo name, .onnx file or .pt2 file")
    command.add_argument("--batch", type=_positive_int, help="batch size (the file's, or 16)")
    command.add_argument(
        "--size",
        type=_positive_int,
        help="height and width of the images, or length of the sequences, of a zoo network",
    )
    command.add_argument(
        "--classes", type=_positive_int, help="classes, or different tokens, of a zoo network"
    )
    command.add_argument(
        "--output-index",
        type=int,
        metavar="N",
        help="which output of a model is trained, counted from 0, where it has several",
    )
    command.add_argument(
        "--draw-weights",
        action="store_true",
        help="draw the weights of a file at random, where it holds none worth keeping",
    )
    command.add_argument("--seed", type=seed, default=0)


def _add_solver(
    command: argparse.ArgumentParser, names: Sequence[str] = ("--backend", "--solver-backend")
) -> None:
    """The options of a solve; `names` are those of the backend, which `export` has one of its own."""
    command.add_argument(
        "--objective", choices=[o.value for o in Objective], default=Objective.COST.value
    )
    command.add_argument(
        "--solver",
        choices=list(SOLVERS),
        default="auto",
        metavar="NAME",
        help=f"how to look for schedules: {', '.join(SOLVERS)} (auto)",
    )
    command.add_argument(
        *names,
        dest="solver_backend",
        choices=list(MODULES),
        default=None,
        help="what solves a solver's programs (the first that suits the solver)",
    )
    command.add_argument(
        "--time-limit", type=_positive_float, metavar="S", default=60.0, help="seconds (60)"
    )
    command.add_argument(
        "--gap", type=_gap, default=0.0, help="stop at this relative gap (0: prove it)"
    )


def _add_budget_ratio(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--budget-ratio",
        type=_ratio,
        metavar="R",
        help="budget of every computing device: state + R times the rest of keeping everything",
    )
    command.add_argument("--save-schedule", type=Path, metavar="FILE")


def _device_budget(text: str) -> tuple[str, int]:
    device, equals, size = text.partition("=")
    if not (device and equals):
        raise argparse.ArgumentTypeError(f"expected DEVICE=BYTES such as cpu=2MiB, got {text!r}")
    try:
        size_bytes = parse_bytes(size)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{device}: {error}") from error
    if size_bytes == 0:
        raise argparse.ArgumentTypeError(f"{device}: expected more than 0 bytes")
    return device, size_bytes


def _size(text: str) -> int:
    try:
        size_bytes = parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if size_bytes == 0:
        raise argparse.ArgumentTypeError("expected more than 0 bytes")
    return size_bytes


def _positive_int(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value < _NO_COUNT:
        raise argparse.ArgumentTypeError(
            f"expected a whole number of at least 1 and below 2^31, got {text[:40]!r}"
        )
    return value


def _positive_float(text: str) -> float:
    value = _number(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def _ratio(text: str) -> float:
    value = _number(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text!r}")
    return value


def _gap(text: str) -> float:
    value = _number(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(
            f"expected a relative gap of at least 0 and below 1, got {text!r}"
        )
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
