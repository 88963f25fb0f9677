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
    versions.write_text("libcudart.so.13 { global: cuda*; };\nfake { global: cu[A-Z]*; };\n")
    command = ["c++", "-std=c++17", "-O0", "-w", "-shared", "-fPIC", "-Wl,-soname,libcudart.so.13"]
    command += [f"-Wl,--version-script={versions}", "-o", str(folder / "libcudart.so.13")]
    subprocess.run([*command, str(_HERE / "fake_cuda.cpp"), "-ldl"], check=True)
    nothing = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c", "/dev/null"]
    subprocess.run([*nothing, "-o", str(folder / "libcuda.so.1")], check=True)
    compiler = folder / "nvcc"
    compiler.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{_HERE / "fake_nvcc.py"}" "$@"\n')
    compiler.chmod(0o755)
    return {
        **os.environ,
        # TVM's runtime looks beside itself for NVIDIA's packages before it looks in LD_LIBRARY_PATH.
        "LD_PRELOAD": f"{folder}/libcudart.so.13:{folder}/libcuda.so.1",
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "TVM_CUDA_COMPILE_MODE": "nvcc",
    }
