"""A GPU that is none, for processes that are started with its environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent


def build_fake_gpu(folder: Path) -> dict[str, str]:
    """Build CUDA's libraries and compiler of the fake in `folder`; the environment that leads to them."""
    folder.mkdir(parents=True, exist_ok=True)
    versions = folder / "versions"
    versions.write_text(
        "libcudart.so.13 { global: cuda*; };\nfake { global: cu[A-Z]*; fake_*; };\n"
    )
    names = []
    for source, name, options in (
        ("fake_cuda.cpp", "libcudart.so.13", (f"-Wl,--version-script={versions}",)),
        ("/dev/null", "libcuda.so.1", ("-x", "c++")),
        ("fake_cudnn.cpp", "libcudnn.so.9", ()),
        ("fake_cublas.cpp", "libcublasLt.so.13", ()),
    ):
        command = ["c++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-Wl,-soname,{name}"]
        command += [*options, "-o", str(folder / name), str(_HERE / source), "-ldl"]
        subprocess.run(command, check=True)
        names.append(str(folder / name))
    compiler = folder / "nvcc"
    compiler.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{_HERE / "fake_nvcc.py"}" "$@"\n')
    compiler.chmod(0o755)
    return {
        **os.environ,
        # TVM's runtime looks beside itself for NVIDIA's packages before it looks in LD_LIBRARY_PATH.
        "LD_PRELOAD": ":".join(names),
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "TVM_CUDA_COMPILE_MODE": "nvcc",
    }
