"""`import tvm_xengine` gives the public names, at once and without loading anything."""

import subprocess
import sys

import tvm_xengine as xe


def test_every_public_name_is_there_and_documented() -> None:
    assert set(xe.__all__) == set(xe._PLACE)
    for name in xe.__all__:
        assert getattr(xe, name).__doc__, f"{name} has no documentation"


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, tvm_xengine; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"tvm", "torch", "onnx", "numpy", "scipy", "numba", "rich", "tvm_ffi", "xgboost"}
    assert not heavy & set(done.stdout.split())


def test_compile_is_the_function_also_once_the_stage_of_that_name_is_loaded() -> None:
    import tvm_xengine.compile.lower  # noqa: F401

    assert xe.compile.__module__ == "tvm_xengine.api"
