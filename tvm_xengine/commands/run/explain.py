"""``tvm-xengine explain``: why a plan is as it is; loads no compiler."""

from __future__ import annotations

from pathlib import Path

from tvm_xengine.commands.explain_app import ExplainOptions
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.explain import explanation
from tvm_xengine.explain.memory import Memory
from tvm_xengine.explain.names import Names
from tvm_xengine.explain.words.tables import shown
from tvm_xengine.files.atomic_write import write_atomically, write_bytes_atomically
from tvm_xengine.report.figures.memory_snapshot import memory_snapshot
from tvm_xengine.report.figures.trace import trace
from tvm_xengine.report.figures.write import TIMELINE, check_matplotlib, write_figures
from tvm_xengine.report.html.page import FRONT_SHARE, Page
from tvm_xengine.report.html.story import Story
from tvm_xengine.session.plans.plan_file import read_plan_or_schedule


def run_explain(path: Path, about: str | None, options: ExplainOptions) -> None:
    """Read, explain and report."""
    figures = None if options.figures is None else options.figures / TIMELINE
    written = (options.report, options.trace, options.memory_snapshot, figures)
    terminal = Terminal(options.output, written)
    if options.figures is not None:
        check_matplotlib()
    saved = read_plan_or_schedule(path, options.problem)
    # A question about single tensors or ops is answered by simulation alone.
    devices = saved.plan.problem.platform.index
    price_s = options.solve_again if about is None or about in devices else 0.0
    is_drawn = about is None and options.report is not None
    wanted = explanation.ExplainOptions(about, price_s, FRONT_SHARE * price_s if is_drawn else 0.0)
    with terminal.reporting() as reporter:
        reporter.status("explaining")
        found = explanation.explain_plan(saved.plan, wanted, saved.names)
        reporter.status("")
    if options.report is not None:
        every = explanation.ExplainOptions(
            None, options.solve_again, FRONT_SHARE * options.solve_again
        )
        whole = found if about is None else explanation.explain_plan(saved.plan, every, saved.names)
        names = Names(saved.plan.problem.graph, saved.names)
        with terminal.writing():
            Page(path.stem, saved.plan, names, whole).write(options.report)
    story = Story(Memory(saved.plan, Names(saved.plan.problem.graph, saved.names)))
    _draw(story, options, terminal)
    terminal.show(*shown(found))
    terminal.write(found.document())


def _draw(story: Story, options: ExplainOptions, terminal: Terminal) -> None:
    """Write the pictures that are asked for."""
    if options.figures is not None:
        with terminal.writing():
            write_figures(story, options.figures)
    if options.trace is not None:
        with terminal.writing():
            write_atomically(options.trace, trace(story))
    if options.memory_snapshot is not None:
        with terminal.writing():
            write_bytes_atomically(options.memory_snapshot, memory_snapshot(story))
