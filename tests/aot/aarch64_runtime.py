"""TVM's runtime for aarch64, out of its wheels."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

_PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_24_aarch64")


def aarch64_runtime(folder: Path) -> Path:
    """A folder with ``tvm/lib`` and ``tvm_ffi`` for aarch64; skips where there is no package index."""
    unpacked = folder / "unpacked"
    if unpacked.is_dir():
        return unpacked
    wheels = folder / "wheels"
    names = [f"{name}=={version(name)}" for name in ("apache-tvm", "apache-tvm-ffi")]
    platforms = [f"--platform={platform}" for platform in _PLATFORMS]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *platforms]
    done = subprocess.run(
        [*command, "--only-binary=:all:", "-d", str(wheels), *names],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"the wheels {names} for aarch64 cannot be had: {done.stderr.strip()[-200:]}")
    temporary = folder / "partly"
    for wheel in wheels.iterdir():
        with zipfile.ZipFile(wheel) as archive:
            wanted = [n for n in archive.namelist() if "/lib/" in n or n.endswith(".h")]
            archive.extractall(temporary, [n for n in wanted if "compiler" not in n])
        wheel.unlink()
    temporary.rename(unpacked)
    return unpacked
