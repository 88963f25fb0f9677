"""`import tvm_xengine` gives the public names, at once and without loading anything."""

import pkgutil
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


def test_no_public_name_is_also_a_module_of_the_package() -> None:
    modules = {found.name for found in pkgutil.iter_modules(xe.__path__)}
    assert not modules & set(xe.__all__)
