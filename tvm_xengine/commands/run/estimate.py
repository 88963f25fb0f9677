"""``tvm-xengine estimate``: memory by category; nothing runs."""

from __future__ import annotations

import sys

from rich.table import Table

from tvm_xengine import api
from tvm_xengine.commands.app import EstimateOptions
from tvm_xengine.commands.arguments.usage import UsageError, refusing_values
from tvm_xengine.commands.run.steps import model_arguments, platform_of, training_arguments
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.scheduling.sizes import format_bytes
from tvm_xengine.session.estimate import Estimate

_DOES_NOT_FIT = 1
"""Exit code of ``--fits`` where no schedule is known."""


def run_estimate(model: str, options: EstimateOptions) -> None:
    """Estimate and report; with ``--fits`` the exit code is the answer."""
    terminal = Terminal(options.output)
    if options.step.frozen.frozen != "float32":
        raise UsageError("estimate takes no --frozen; plan and export do")
    arguments = training_arguments(options.step) | model_arguments(options.step.model)
    with terminal.reporting() as reporter:
        reporter.status("estimating")
        found = api.estimate(
            model,
            platform=platform_of(options.platform),
            cache=options.cache.cache,
            **arguments,
        )
        largest = None
        if options.largest_batch is not None:
            reporter.status("looking for the largest batch")
            with refusing_values():
                largest = found.largest_batch(options.largest_batch)
        reporter.status("")
    fits = None if options.fits is None else found.fits(options.fits)
    terminal.show(_table(model, found))
    if fits is not None and options.fits is not None:
        terminal.note(_fit_in_words(found, options.fits, fits))
    if largest is not None and options.largest_batch is not None:
        terminal.note(f"largest batch in {format_bytes(options.largest_batch)}: {largest}")
    terminal.write(
        {
            "model": model,
            "device": found.device,
            "batch": found.batch_size,
            "keep_all_bytes": found.keep_all_bytes,
            "smallest_bytes": found.smallest_bytes,
            "least_bytes": found.least_bytes,
            "peak_bytes": dict(found.peak_bytes),
            "fits": fits,
            "largest_batch": largest,
        }
    )
    if fits is False:
        sys.exit(_DOES_NOT_FIT)


def _fit_in_words(found: Estimate, asked_bytes: int, fits: bool) -> str:
    """The answer to ``--fits``, and how far it is known."""
    batch, asked = f"a batch of {found.batch_size}", format_bytes(asked_bytes)
    if fits and asked_bytes >= found.smallest_bytes:
        return f"{batch} fits in {asked}"
    if fits:
        return (
            f"{batch} fits in {asked}, by a search of some seconds, which planning may need again"
        )
    if asked_bytes < found.least_bytes:
        least = format_bytes(found.least_bytes)
        return f"{batch} does not fit in {asked}: no schedule needs less than {least}"
    return f"{batch} does not fit in {asked}, as far as a search of some seconds has found"


def _table(model: str, found: Estimate) -> Table:
    table = Table(
        title=f"{model}, batch {found.batch_size}, on {found.device}",
        title_justify="left",
        show_header=False,
        box=None,
        padding=(0, 2, 0, 0),
    )
    table.add_column()
    table.add_column(justify="right")
    for name, size in found.peak_bytes.items():
        table.add_row(name, format_bytes(size))
    table.add_row("keeping all tensors", format_bytes(found.keep_all_bytes))
    table.add_row("smallest known schedule", format_bytes(found.smallest_bytes))
    return table
