"""``tvm-xengine export-state``: trained tensors in another form."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tvm_xengine.aot.package.checkpoint_file import (
    SUFFIX,
    Checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from tvm_xengine.aot.package.migrate import migrated, read_package_state
from tvm_xengine.checks.names import some
from tvm_xengine.commands.app import ExportStateOptions
from tvm_xengine.commands.arguments.usage import UsageError
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.runtime.inputs import nan_count
from tvm_xengine.state.state_file import (
    read_checkpoint_tensors,
    read_state,
    write_onnx_state,
    write_state,
)

_logger = logging.getLogger(__name__)


def run_export_state(path: Path, options: ExportStateOptions) -> None:
    """Convert and report."""
    output = options.output
    terminal = Terminal(options.report, (output,))
    _check_output(options)
    if options.package is not None:
        written = _write_for_package(path, options.package, options, terminal)
    else:
        written = read_state(path)
        if options.onnx is not None:
            write_onnx_state(written, options.onnx, output)
        else:
            write_state(written, output)
    _warn_of_nan(written)
    size_bytes = sum(tensor.nbytes for tensor in written.values())
    terminal.note(f"{len(written)} tensors written to {output}")
    terminal.write({"file": str(output), "tensors": len(written), "state_bytes": size_bytes})


def _warn_of_nan(written: Mapping[str, Array]) -> None:
    """What a run that diverged has left is converted, because one may want to look at it."""
    for name, value in written.items():
        if count := nan_count(value):
            _logger.warning(
                "%s of the state has a NaN in %d of %d elements", *(name, count, value.size)
            )


def _check_output(options: ExportStateOptions) -> None:
    """Check that the suffix of the output fits the options."""
    suffix = options.output.suffix.lower()
    needed = {
        ".onnx": ("--onnx MODEL.onnx", "the model that the tensors are of", options.onnx),
        SUFFIX: ("--package DIR", "the package that is to load it", options.package),
    }
    for wanted, (option, what, given) in needed.items():
        if suffix == wanted and given is None:
            raise UsageError(f"an {wanted} file needs {what}: give {option}")
        if suffix != wanted and given is not None:
            raise UsageError(
                f"{option.split()[0]} writes an {wanted} file, but --output is {options.output}"
            )
    if options.sequence is not None and options.package is None:
        raise UsageError("--sequence is the number of a checkpoint: give --package DIR, too")


def _write_for_package(
    path: Path, package: Path, options: ExportStateOptions, terminal: Terminal
) -> Mapping[str, Array]:
    is_device = path.suffix.lower() == SUFFIX
    given = read_checkpoint(path) if is_device else Checkpoint(read_checkpoint_tensors(path))
    if options.sequence is not None:
        given = replace(given, sequence=options.sequence)
    made = migrated(given, read_package_state(package), of_package=is_device)
    write_checkpoint(options.output, made.checkpoint)
    if made.absent:
        terminal.note(f"absent, so the package initialises them: {some(made.absent)}")
    if made.ignored:
        terminal.note(f"not taken, because the package does not keep them: {some(made.ignored)}")
    return made.checkpoint.tensors
