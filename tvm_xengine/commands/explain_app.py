"""The commands that explain and compare plans, and look at the installation, with their options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from tvm_xengine.commands.arguments.options import OUTPUT, PLAN, OutputOptions
from tvm_xengine.commands.arguments.parameter import shown_as
from tvm_xengine.commands.arguments.values import File, Folder, NotNegative, PageFile

PlanFile = Annotated[
    File, Parameter(help="Plan that --save-plan wrote, or a schedule with --problem.")
]
_ABOUT = (
    "Tensor, op, layer or device to explain, by a name of the model or of the step, or a pattern;"
    " by default the whole plan."
)


@Parameter(name="*")
@dataclass(frozen=True)
class ExplainOptions:
    """Options of ``explain``.

    Attributes
    ----------
    problem
        Problem of a schedule file, as --save-problem wrote it.
    solve_again
        Seconds for solving again with 10 % more memory, for each device: the price of memory. With
        --report, twice as long for other budgets. 0 leaves both out.
    report
        Write a page with pictures of the plan (.html), complete in one file.
    figures
        Write pictures for papers into this folder: memory over time, arenas, timeline (.pdf, .png, .svg).
    trace
        Write the planned timeline as JSON, which Perfetto opens.
    memory_snapshot
        Write the planned memory as a pickle, which PyTorch's memory viewer opens.
    """

    problem: Annotated[File | None, Parameter(group=PLAN)] = None
    solve_again: Annotated[NotNegative, shown_as("S", group=PLAN)] = 3.0
    report: Annotated[PageFile | None, Parameter(group=OUTPUT)] = None
    figures: Annotated[Folder | None, Parameter(group=OUTPUT)] = None
    trace: Annotated[File | None, Parameter(group=OUTPUT)] = None
    memory_snapshot: Annotated[File | None, Parameter(group=OUTPUT)] = None
    output: OutputOptions = OutputOptions()


def explain(
    plan: PlanFile,
    about: Annotated[str | None, Parameter(help=_ABOUT)] = None,
    /,
    *,
    options: ExplainOptions = ExplainOptions(),
) -> None:
    """Explain a plan: what happens to each tensor and why, what binds, what would help."""
    from tvm_xengine.commands.run.explain import run_explain

    run_explain(plan, about, options)


@Parameter(name="*")
@dataclass(frozen=True)
class CompareOptions:
    """Options of ``compare``.

    Attributes
    ----------
    problem
        Problem of the schedule files among the two, as --save-problem wrote it.
    """

    problem: Annotated[File | None, Parameter(group=PLAN)] = None
    output: OutputOptions = OutputOptions()


def compare(
    first: PlanFile,
    second: PlanFile,
    /,
    *,
    options: CompareOptions = CompareOptions(),
) -> None:
    """Compare two plans: budgets, times, peaks, and what is treated differently."""
    from tvm_xengine.commands.run.compare import run_compare

    run_compare(first, second, options)


@Parameter(name="*")
@dataclass(frozen=True)
class DoctorOptions:
    """Options of ``doctor``."""

    output: OutputOptions = OutputOptions()


def doctor(*, options: DoctorOptions = DoctorOptions()) -> None:
    """Look at the installation: what works, what is missing, and the command that gets it."""
    from tvm_xengine.commands.run.doctor import run_doctor

    run_doctor(options.output)
