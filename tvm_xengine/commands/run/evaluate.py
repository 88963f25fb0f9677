"""``tvm-xengine eval``: loss and accuracy of a saved state."""

from __future__ import annotations

from rich.table import Table

from tvm_xengine import api
from tvm_xengine.commands.app import EvalOptions
from tvm_xengine.commands.run.steps import loaded, parsed_loss_of, platform_of
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.compiler.options import CompileOptions
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.session.loop.evaluate_state import evaluate_state
from tvm_xengine.session.training_data import training_data
from tvm_xengine.state.state_file import check_state_file, read_state_of


def run_eval(model: str, options: EvalOptions) -> None:
    """Evaluate and report."""
    terminal = Terminal(options.output)
    check_state_file(options.state)
    source = loaded(model, options.model)
    state = read_state_of(options.state, source.evaluation.state.values())
    training = api.training_step(source, loss=parsed_loss_of(options.loss))
    data = training_data(training, options.data)
    data.check_finite()
    with terminal.reporting() as reporter:
        reporter.status("evaluating")
        stores = Stores.open(CompileOptions(measurements=options.cache.cache))
        found = evaluate_state(training, state, data, platform_of(options.platform), stores)
        reporter.status("")
    part = data.validation or data.train
    samples = len(next(iter(part.values())))
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("samples", f"{samples} ({'held out' if data.validation else 'all'})")
    for name, value in found.items():
        table.add_row(name, f"{100 * value:.1f} %" if name == "accuracy" else f"{value:.6g}")
    terminal.show(table)
    terminal.write({"model": model, "state": str(options.state), "samples": samples, **found})
