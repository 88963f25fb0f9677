"""Groups of command-line options, as frozen dataclasses that commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from tvm_xengine.commands.arguments.names import (
    BACKEND_NAMES,
    COST_NAMES,
    NETWORK_NAMES,
    OBJECTIVE_NAMES,
    SOLVER_NAMES,
)
from tvm_xengine.commands.arguments.parameter import shown_as
from tvm_xengine.commands.arguments.values import (
    Count,
    DeviceBytes,
    File,
    Flag,
    Folder,
    Natural,
    PageFile,
    Patterns,
    Pins,
    Positive,
    Ratio,
    Replicas,
    Share,
    choice,
    converted,
    model,
)
from tvm_xengine.commands.completion import offered

MODEL, TRAINING, MACHINE, PLAN, OUTPUT = (
    Group(name, sort_key=position)
    for position, name in enumerate(("Model", "Training", "Machine", "Plan", "Output"), 1)
)

Model = Annotated[
    str,
    shown_as(
        "MODEL",
        help="Zoo name, .onnx file or .pt2 file.",
        completer=offered(*NETWORK_NAMES),
        converter=converted(model),
    ),
]
Models = Annotated[
    str,
    shown_as(
        "MODEL",
        help="Zoo name, .onnx file or .pt2 file; several, or a .toml file of workloads, are trained"
        " together.",
        completer=offered(*NETWORK_NAMES),
        converter=converted(model),
    ),
]


@Parameter(name="*", group=MODEL)
@dataclass(frozen=True)
class ModelOptions:
    """Which model, and in which size.

    Attributes
    ----------
    batch
        Batch size; by default that of the file, or 16.
    size
        Height and width of images, or length of sequences, of a zoo network.
    classes
        Number of classes, or of tokens, of a zoo network.
    output_index
        Which output of a model with several is trained, counted from 0.
    draw_weights
        Draw random weights, for a model file without trained ones.
    seed
        Seed of initial weights, of the order of the data and of the solver.
    """

    batch: Count | None = None
    size: Count | None = None
    classes: Count | None = None
    output_index: Natural | None = None
    draw_weights: Flag = False
    seed: Natural = 0


@Parameter(name="*", group=MACHINE)
@dataclass(frozen=True)
class PlatformOptions:
    """On which machine.

    Attributes
    ----------
    platform
        Platform file (TOML); by default two CPU devices of this machine.
    """

    platform: File | None = None


@Parameter(name="*", group=MACHINE)
@dataclass(frozen=True)
class BudgetOptions:
    """Within which memory.

    Attributes
    ----------
    budget
        Memory of a device's arena, e.g. cpu=2MiB; takes precedence over --budget-ratio.
    budget_ratio
        Budget of each computing device: its resident state plus R times the rest of what keep-all
        needs.
    """

    budget: DeviceBytes = ()
    budget_ratio: Ratio | None = None


@Parameter(name="*", group=MACHINE)
@dataclass(frozen=True)
class CacheOptions:
    """What is kept between runs.

    Attributes
    ----------
    cache
        File of measurements; compiled kernels are stored in its folder.
    database
        Folder of schedules that `tune` found for generated kernels.
    """

    cache: File | None = None
    database: Folder | None = None


@Parameter(name="*", group=PLAN)
@dataclass(frozen=True)
class CostOptions:
    """Where the costs of kernels come from.

    Attributes
    ----------
    costs
        active (predicted, and measured where the plan relies on them), measured, predicted or
        roofline.
    """

    costs: Annotated[str, choice(COST_NAMES)] = "active"


@Parameter(name="*", group=PLAN)
@dataclass(frozen=True)
class SolverOptions:
    """How a schedule is searched for.

    Attributes
    ----------
    solver
        Solver of the scheduling problem; docs/solvers.md explains each.
    backend
        Backend that solves the programs of solvers such as tight or checkmate.
    objective
        What is minimised: cost (the sum of all times), makespan (the end of the last step) or energy.
    time_limit
        Seconds for planning: search, address layouts, leaner kernels, slices of the batch. Compiling and
        measuring kernels do not count.
    work_limit
        Plan by counted work in place of time, in units of about a second: the same plan in every run, however
        busy the machine is. For solvers auto, local-search, astar and the baselines.
    gap
        Stop at this relative gap between value and bound; 0 asks for an optimality proof.
    """

    solver: Annotated[str, choice(SOLVER_NAMES)] = "auto"
    backend: Annotated[
        str | None, choice(BACKEND_NAMES), Parameter(name=("--backend", "--solver-backend"))
    ] = None
    objective: Annotated[str, choice(OBJECTIVE_NAMES)] = "cost"
    time_limit: Annotated[Positive, shown_as("S")] = 60.0
    work_limit: Annotated[Positive | None, shown_as("UNITS")] = None
    gap: Share = 0.0


@Parameter(name="*", group=PLAN)
@dataclass(frozen=True)
class ReplicaOptions:
    """How the batch is divided over devices.

    Attributes
    ----------
    replicas
        Divide the batch over N devices, which work side by side on shares that the plan chooses (auto: over
        all devices, where that is faster), or over those named, each with its number of samples. Minimises
        the makespan.
    """

    replicas: Replicas | None = None


@Parameter(name="*", group=PLAN)
@dataclass(frozen=True)
class ExportSolverOptions(SolverOptions):
    """How `export` searches for a schedule; its --backend compiles kernels."""

    backend: Annotated[str | None, choice(BACKEND_NAMES), Parameter(name="--solver-backend")] = None


@Parameter(name="*", group=PLAN)
@dataclass(frozen=True)
class ExportScheduleOptions:
    """A schedule that `export` runs or saves.

    Attributes
    ----------
    schedule
        Run this schedule, saved by an export for the same memory or hand-edited, instead of
        planning one.
    save_schedule
        Write the schedule of the training step as JSON.
    """

    schedule: File | None = None
    save_schedule: File | None = None


@Parameter(name="*", group=PLAN)
@dataclass(frozen=True)
class ConstraintOptions:
    """What every schedule must respect.

    Patterns match an op by its name, or by the name of a parameter that it reads.

    Attributes
    ----------
    pin
        Run the matching ops on this device only, e.g. 'fc1*=cpu'.
    keep
        Compute the matching ops once, and keep their results until their last use.
    recompute
        Drop the results of the matching ops before the loss, and compute them again after it.
    """

    pin: Pins = ()
    keep: Annotated[Patterns, Parameter(name=("--keep", "--forbid-recompute"))] = ()
    recompute: Patterns = ()


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True)
class OutputOptions:
    """What is written and shown.

    Attributes
    ----------
    json
        Write the report as JSON; - writes it to standard output, and nothing else.
    quiet
        Show errors only.
    """

    json: Annotated[File | None, shown_as("FILE|-", allow_leading_hyphen=True)] = None
    quiet: Flag = False


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True)
class SaveOptions:
    """What is saved of a plan.

    Attributes
    ----------
    save_schedule
        Write the schedule as JSON, which `train --schedule` runs.
    save_problem
        Write the problem as JSON, which `solve` takes.
    save_plan
        Write the whole plan as JSON, which `explain` and `compare` take.
    report
        Write a page with pictures of the plan (.html), complete in one file.
    """

    save_schedule: File | None = None
    save_problem: File | None = None
    save_plan: File | None = None
    report: PageFile | None = None

    @property
    def paths(self) -> tuple[Path | None, ...]:
        """The files, None for those that are not asked for."""
        return (self.save_schedule, self.save_problem, self.save_plan, self.report)
