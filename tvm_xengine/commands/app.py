"""The commands of ``tvm-xengine``: options and one function each; bodies load when they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import App, Parameter

from tvm_xengine.commands.arguments.export_options import (
    RegionOptions,
    TargetOptions,
    TrainBudgetOptions,
)
from tvm_xengine.commands.arguments.names import COST_NAMES
from tvm_xengine.commands.arguments.options import (
    MACHINE,
    MODEL,
    OUTPUT,
    PLAN,
    TRAINING,
    BudgetOptions,
    CacheOptions,
    ConstraintOptions,
    CostOptions,
    ExportScheduleOptions,
    ExportSolverOptions,
    Model,
    ModelOptions,
    Models,
    OutputOptions,
    PlatformOptions,
    ReplicaOptions,
    SaveOptions,
    SolverOptions,
)
from tvm_xengine.commands.arguments.parameter import FilledHelp, shown_as
from tvm_xengine.commands.arguments.step_options import MachineOptions, StepOptions
from tvm_xengine.commands.arguments.training_options import (
    DataOptions,
    LoopOptions,
    LossOptions,
    StateOptions,
)
from tvm_xengine.commands.arguments.values import (
    ByteSize,
    Count,
    DeviceBytes,
    File,
    Flag,
    Folder,
    Natural,
    Positive,
    Ratios,
    Source,
    Texts,
    choice,
    listed,
)
from tvm_xengine.commands.completion import SHELLS
from tvm_xengine.commands.costs_app import costs
from tvm_xengine.commands.explain_app import compare, doctor, explain
from tvm_xengine.commands.version import version_text
from tvm_xengine.processes.loading import loading

FLAT = Parameter(name="*")

_RATIOS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
"""From keep-all's memory down to where most networks have no schedule."""
_SHELL = "Name of the shell; by default that of this session."
_INSTALL = "Write the script to the home folder, and have the shell load it when it starts."
_COMMAND = "The command, with a platform file whose devices have ranks or hosts."
_RANK_TIMEOUT = (
    "Seconds after which a process that does not answer is given up; options of launch come first."
)
_RESTARTS = "How many times a run that has lost processes goes on without their devices, from its checkpoint."
_SIMULATE = (
    "Plan for many equal machines without having them: a platform file with a table [replicas] of count,"
    " latency_us and bandwidth_gb_s. Costs are predicted or roofline; --batch is that of all machines."
)
_DATA = "Source of data; its validation samples are used where it has any."

app = App(
    name="tvm-xengine",
    help="Plan and run training steps that fit the memory of every device.",
    help_epilogue=(
        "Exit codes: 0 success, 2 refused input, 70 a fault of this program (its report is kept in"
        " a file; --debug shows the traceback), 130 and 143 interrupted by SIGINT and SIGTERM."
    ),
    help_format="plaintext",
    help_formatter=FilledHelp(),
    suppress_keyboard_interrupt=False,
    version=version_text,
)
app.command(costs)
app.command(explain)
app.command(compare)
app.command(doctor)


@FLAT
@dataclass(frozen=True)
class PlanOptions:
    """Options of ``plan``."""

    step: StepOptions = StepOptions()
    machine: MachineOptions = MachineOptions()
    budget: BudgetOptions = BudgetOptions()
    costs: CostOptions = CostOptions()
    solver: SolverOptions = SolverOptions()
    division: ReplicaOptions = ReplicaOptions()
    save: SaveOptions = SaveOptions()
    output: OutputOptions = OutputOptions()


@app.command
def plan(
    model: Model,
    /,
    *,
    simulate: Annotated[File | None, Parameter(help=_SIMULATE, group=MACHINE)] = None,
    options: PlanOptions = PlanOptions(),
) -> None:
    """Plan a training step under memory budgets; nothing is executed."""
    if simulate is not None:
        with loading():
            from tvm_xengine.commands.run.simulate import run_simulated

        run_simulated(model, options, simulate)
        return
    with loading():
        from tvm_xengine.commands.run.plan import run_plan

    run_plan(model, options)


@FLAT
@dataclass(frozen=True)
class ParetoOptions:
    """Options of ``pareto``.

    Attributes
    ----------
    costs
        measured, active (predicted, and measured where a plan for the smallest budget relies on
        them), predicted or roofline.
    budget
        Memory of a device in all points, e.g. ssd=1GiB.
    ratios
        Budgets as in `plan --budget-ratio`.
    plot
        Draw the front (.svg, .png).
    save_problem
        Write the problem as JSON, which `solve` takes.
    """

    step: StepOptions = StepOptions()
    machine: MachineOptions = MachineOptions()
    solver: SolverOptions = SolverOptions()
    budget: Annotated[DeviceBytes, Parameter(group=MACHINE)] = ()
    costs: Annotated[str, choice(COST_NAMES), Parameter(group=PLAN)] = "measured"
    ratios: Annotated[Ratios, Parameter(group=PLAN, show_default=listed)] = _RATIOS
    plot: Annotated[File | None, Parameter(group=OUTPUT)] = None
    save_problem: Annotated[File | None, Parameter(group=OUTPUT)] = None
    output: OutputOptions = OutputOptions()


@app.command
def pareto(model: Model, /, *, options: ParetoOptions = ParetoOptions()) -> None:
    """Show time against budget, over a range of budgets."""
    with loading():
        from tvm_xengine.commands.run.pareto import run_pareto

    run_pareto(model, options)


@FLAT
@dataclass(frozen=True)
class TrainOptions:
    """Options of ``train``."""

    plan: PlanOptions = PlanOptions()
    data: DataOptions = DataOptions()
    loop: LoopOptions = LoopOptions()
    state: StateOptions = StateOptions()


@app.command(usage="Usage: tvm-xengine train [OPTIONS] MODEL...")
def train(*models: Models, options: TrainOptions = TrainOptions()) -> None:
    """Plan a training step, train with it, compare it with keep-all and report.

    Several models are planned under one budget per device, and take their steps in turns.
    """
    with loading():
        from tvm_xengine.commands.run.together.workloads import workloads_of

    wanted = workloads_of(models, options)
    if len(wanted) == 1:
        with loading():
            from tvm_xengine.commands.run.train import run_train

        run_train(wanted[0].model, wanted[0].options)
        return
    with loading():
        from tvm_xengine.commands.run.together.train import run_train_together

    run_train_together(wanted, options)


@app.command
def launch(
    *command: Annotated[
        str, shown_as("train MODEL [OPTIONS]", allow_leading_hyphen=True, help=_COMMAND)
    ],
    rank_timeout: Annotated[Positive, Parameter(help=_RANK_TIMEOUT)] = 60.0,
    restarts: Annotated[Natural, Parameter(help=_RESTARTS)] = 0,
) -> None:
    """Train in several processes of this machine, one for each rank or host of the platform file."""
    from tvm_xengine.commands.run.processes.launch import run_launch

    run_launch(command, rank_timeout, restarts)


@FLAT
@dataclass(frozen=True)
class SolveOptions:
    """Options of ``solve``.

    Attributes
    ----------
    seed
        Seed of the solver.
    save_schedule
        Write the schedule as JSON.
    save_plan
        Write the whole plan as JSON, which `explain` and `compare` take.
    """

    budget: BudgetOptions = BudgetOptions()
    solver: SolverOptions = SolverOptions()
    seed: Annotated[Natural, Parameter(group=PLAN)] = 0
    save_schedule: Annotated[File | None, Parameter(group=OUTPUT)] = None
    save_plan: Annotated[File | None, Parameter(group=OUTPUT)] = None
    output: OutputOptions = OutputOptions()


@app.command
def solve(
    problem: Annotated[File, Parameter(help="Problem that --save-problem wrote (JSON).")],
    /,
    *,
    options: SolveOptions = SolveOptions(),
) -> None:
    """Solve a saved problem; loads no compiler."""
    with loading():
        from tvm_xengine.commands.run.solve import run_solve

    run_solve(problem, options)


@FLAT
@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Options of ``eval``.

    Attributes
    ----------
    state
        Tensors that `train --save` or --checkpoint wrote (.safetensors, .pt, .npz).
    """

    model: ModelOptions = ModelOptions()
    state: Annotated[File, Parameter(group=MODEL)]
    loss: LossOptions = LossOptions()
    data: Annotated[Source, Parameter(group=TRAINING, help=_DATA)] = "digits"
    platform: PlatformOptions = PlatformOptions()
    cache: CacheOptions = CacheOptions()
    output: OutputOptions = OutputOptions()


@app.command(name="eval")
def evaluate(model: Model, /, *, options: EvalOptions) -> None:
    """Evaluate the loss and accuracy of a saved state on data."""
    with loading():
        from tvm_xengine.commands.run.evaluate import run_eval

    run_eval(model, options)


@FLAT
@dataclass(frozen=True)
class EstimateOptions:
    """Options of ``estimate``.

    Attributes
    ----------
    fits
        Say whether a schedule within this memory is known; exit code 1 where none is.
    largest_batch
        Look for the largest batch with a schedule within this memory.
    """

    step: StepOptions = StepOptions()
    platform: PlatformOptions = PlatformOptions()
    cache: CacheOptions = CacheOptions()
    fits: Annotated[ByteSize | None, Parameter(group=MACHINE)] = None
    largest_batch: Annotated[ByteSize | None, Parameter(group=MACHINE)] = None
    output: OutputOptions = OutputOptions()


@app.command
def estimate(model: Model, /, *, options: EstimateOptions = EstimateOptions()) -> None:
    """Estimate the memory of a training step by category; runs nothing."""
    with loading():
        from tvm_xengine.commands.run.estimate import run_estimate

    run_estimate(model, options)


@FLAT
@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of ``export``."""

    target: TargetOptions
    regions: RegionOptions = RegionOptions()
    layers: TrainBudgetOptions = TrainBudgetOptions()
    step: StepOptions = StepOptions()
    constraints: ConstraintOptions = ConstraintOptions()
    schedule: ExportScheduleOptions = ExportScheduleOptions()
    solver: ExportSolverOptions = ExportSolverOptions()
    output: OutputOptions = OutputOptions()


@app.command
def export(model: Model, /, *, options: ExportOptions) -> None:
    """Write the training step as plain C for a small machine."""
    with loading():
        from tvm_xengine.commands.run.export.package import run_export

    run_export(model, options)


@FLAT
@dataclass(frozen=True, kw_only=True)
class ExportStateOptions:
    """Options of ``export-state``.

    Attributes
    ----------
    output
        File to write: .safetensors, .pt (a state_dict), .npz, with --onnx .onnx, or with --package
        .xecp (a checkpoint for that package).
    onnx
        The ONNX file that the model came from; its initializers take the trained values.
    package
        Folder of the package that is to load the checkpoint.
    sequence
        Number of the checkpoint in the slots of the package.
    """

    output: Annotated[File, Parameter(name=("--output", "-o"), group=OUTPUT)]
    onnx: Annotated[File | None, Parameter(group=OUTPUT)] = None
    package: Annotated[Folder | None, Parameter(group=OUTPUT)] = None
    sequence: Annotated[Count | None, Parameter(group=OUTPUT)] = None
    report: OutputOptions = OutputOptions()


@app.command(name="export-state")
def export_state(
    state: Annotated[File, Parameter(help="Trained tensors, or a checkpoint.")],
    /,
    *,
    options: ExportStateOptions,
) -> None:
    """Convert trained tensors: to safetensors, a state_dict, an ONNX file or for a package."""
    with loading():
        from tvm_xengine.commands.run.export.state import run_export_state

    run_export_state(state, options)


@FLAT
@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """Options of ``tune``.

    Attributes
    ----------
    database
        Folder that stores the schedules found.
    trials
        Total number of schedules to try.
    cache
        File of measurements; compiled kernels are stored in its folder.
    rpc
        Boards behind TVM's RPC, all of one kind, that time schedules at once: servers HOST:PORT, trackers
        HOST:PORT/KEY.
    """

    database: Annotated[Folder, Parameter(group=MACHINE)]
    step: StepOptions = StepOptions()
    platform: PlatformOptions = PlatformOptions()
    rpc: Annotated[Texts, Parameter(group=MACHINE)] = ()
    cache: Annotated[File | None, Parameter(group=MACHINE)] = None
    trials: Annotated[Count, Parameter(group=PLAN)] = 500
    output: OutputOptions = OutputOptions()


@app.command
def tune(model: Model, /, *, options: TuneOptions) -> None:
    """Search for faster loop schedules of the generated kernels."""
    with loading():
        from tvm_xengine.commands.run.tune import run_tune

    run_tune(model, options)


@app.command
def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"] | None, choice(SHELLS), Parameter(help=_SHELL)
    ] = None,
    /,
    *,
    install: Annotated[Flag, Parameter(help=_INSTALL)] = False,
) -> None:
    """Print the completion script of a shell, or install it."""
    from tvm_xengine.commands.run.completion import run_completion

    run_completion(app, shell, is_installed=install)
