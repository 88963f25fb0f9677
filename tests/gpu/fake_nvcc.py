"""Compiles CUDA C++ for the fake GPU; called as `nvcc` is by TVM."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_CONSTANTS = "#define CUDART_INF_F INFINITY\n#define CUDART_NAN_F NAN\n"
_KERNEL = re.compile(r"__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(([^)]*)\)\s*\{")


def compile_cuda(source: str, library: Path) -> None:
    """Write a shared library with the kernels of `source`, their numbers of arguments and `run_launch`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(Path(__file__).with_name("emulated_threads.h"), folder / "cuda.h")
        (folder / "math_constants.h").write_text(_CONSTANTS)
        counts = [
            f'extern "C" const int {kernel}_arguments = {len(parameters.split(","))};\n'
            for kernel, parameters in _KERNEL.findall(source)
        ]
        (folder / "kernels.cpp").write_text(source + "".join(counts))
        command = ["c++", "-std=c++17", "-O0", "-ffp-contract=off", "-fno-strict-aliasing", "-w"]
        command += ["-shared", "-fPIC", f"-I{folder}", "-o", str(library), "kernels.cpp"]
        subprocess.run(command, check=True, cwd=folder)


def main(arguments: list[str]) -> None:
    """Write what `cuModuleLoadData` of the fake reads."""
    if "--version" in arguments:
        sys.stdout.write("Cuda compilation tools, release 13.0, V13.0.0\n")
        return
    image = Path(arguments[arguments.index("-o") + 1])
    source = next(Path(each) for each in arguments if each.endswith(".cu"))
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "kernels.so"
        compile_cuda(source.read_text(), library)
        code = library.read_bytes()
    image.write_bytes(b"FAKE" + len(code).to_bytes(8, "little") + code)


if __name__ == "__main__":
    main(sys.argv[1:])
