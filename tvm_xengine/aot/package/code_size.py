"""Code size and stack use of a package, measured with the target's compiler."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tvm_xengine.aot.package.compiler_messages import reason
from tvm_xengine.aot.plan.kernels import Optimize
from tvm_xengine.aot.targets import EmbeddedTarget
from tvm_xengine.errors import CompilationError
from tvm_xengine.processes.tools import how_it_ended, run_tool


@dataclass(frozen=True)
class CodeSize:
    """Size of a compiled package.

    Attributes
    ----------
    text_bytes
        Machine code and read-only data of driver and kernels; constants not counted.
    stack_bytes
        The two largest frames of the driver and of the kernels together; the C library's functions
        come on top. None where kernels are object files, which do not report their frames.
    flags
        Compiler options.
    """

    text_bytes: int
    stack_bytes: int | None
    flags: str


def compile_flags(target: EmbeddedTarget, optimize: Optimize) -> tuple[str, ...]:
    """Compiler options for a package."""
    level = "-Os" if optimize is Optimize.SIZE else "-O2"
    return (*target.flags, "-std=c11", level, "-fno-strict-aliasing")


def measure_code(
    directory: Path, sources: Sequence[str], target: EmbeddedTarget, optimize: Optimize
) -> CodeSize | None:
    """Compile `sources` of `directory` (objects as they are); None without the compiler.

    Raises
    ------
    CompilationError
        If the compiler refuses them.
    """
    if not target.has_compiler:
        return None
    flags = compile_flags(target, optimize)
    compiler = target.find_compiler()
    with tempfile.TemporaryDirectory() as scratch:

        def compiled(path: Path) -> Path:
            if path.suffix != ".c":
                return path
            made = Path(scratch) / f"{path.stem}.o"
            command = [compiler, *flags, "-fstack-usage", "-c", str(path), "-o", str(made)]
            done = run_tool(command)
            if done.returncode:
                said = reason(done.stderr)
                raise CompilationError(f"{target.compiler} refuses {path.name}: {said}")
            return made

        with ThreadPoolExecutor() as together:  # each compiler is a process
            objects = list(together.map(compiled, (directory / source for source in sources)))
        text_bytes = sum(_text_bytes(compiler, path) for path in objects)
        is_known = all(source.endswith(".c") for source in sources)
        frames = [_largest_frame(path.with_suffix(".su")) for path in objects if is_known]
    return CodeSize(text_bytes, sum(frames) if is_known else None, " ".join(flags))


def _largest_frame(usage: Path) -> int:
    """The two largest frames of a file: a function and the helper that it calls."""
    lines = re.findall(rb"\t(\d+)\t[a-z,]+$", usage.read_bytes(), re.MULTILINE)  # behind any path
    return sum(sorted(map(int, lines), reverse=True)[:2])


def _text_bytes(compiler: str, path: Path) -> int:
    tool = shutil.which(f"{compiler.removesuffix('gcc')}size") or "size"
    done = run_tool([tool, str(path)])
    if done.returncode:
        raise CompilationError(f"the size of code is not known: {how_it_ended(done)}")
    return int(done.stdout.splitlines()[1].split()[0])
