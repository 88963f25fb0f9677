"""``tvm-xengine plan``: everything up to the schedule; nothing is executed."""

from __future__ import annotations

from rich.console import Console

from tvm_xengine.commands.options import Request
from tvm_xengine.commands.prepare import prepare, summarize
from tvm_xengine.commands.progress import show_progress
from tvm_xengine.report.summary import as_document, write_json
from tvm_xengine.report.tables import print_report


def run_plan(request: Request, console: Console) -> None:
    """Plan and report what is predicted."""
    with show_progress(console) as reporter:
        prepared = prepare(request, reporter)
    plan = summarize(request, prepared)
    print_report(console, plan, None)
    if request.output.json is not None:
        write_json(as_document(plan, None), request.output.json)
