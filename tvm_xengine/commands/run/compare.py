"""``tvm-xengine compare``: what changed between two plans; loads no compiler."""

from __future__ import annotations

from pathlib import Path

from tvm_xengine.commands.explain_app import CompareOptions
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.explain.comparison import compare_plans
from tvm_xengine.explain.words.comparison_tables import shown
from tvm_xengine.session.plans.plan_file import read_plan_or_schedule


def run_compare(first: Path, second: Path, options: CompareOptions) -> None:
    """Read both, compare and report."""
    terminal = Terminal(options.output)
    before, after = (read_plan_or_schedule(path, options.problem) for path in (first, second))
    found = compare_plans(before.plan, after.plan, {**before.names, **after.names})
    terminal.show(*shown(found))
    terminal.write(found.document())
