"""``tvm-xengine export-state``: trained tensors in another form."""

from __future__ import annotations

from pathlib import Path

from tvm_xengine.commands.app import ExportStateOptions
from tvm_xengine.commands.arguments.usage import UsageError
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.state.state_file import read_state, write_onnx_state, write_state


def run_export_state(path: Path, options: ExportStateOptions) -> None:
    """Convert and report."""
    terminal = Terminal(options.report)
    is_onnx = options.output.suffix.lower() == ".onnx"
    if is_onnx and options.onnx is None:
        raise UsageError(
            "an .onnx file needs the model that the tensors are of: give --onnx MODEL.onnx"
        )
    if options.onnx is not None and not is_onnx:
        raise UsageError(f"--onnx writes an .onnx file, but --output is {options.output}")
    state = read_state(path)
    if options.onnx is not None:
        write_onnx_state(state, options.onnx, options.output)
    else:
        write_state(state, options.output)
    size_bytes = sum(tensor.nbytes for tensor in state.values())
    terminal.note(f"{len(state)} tensors written to {options.output}")
    terminal.write({"file": str(options.output), "tensors": len(state), "state_bytes": size_bytes})
