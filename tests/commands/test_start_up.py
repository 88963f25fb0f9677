"""What is loaded when, and how the threads that compute are set up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.kernels.onednn.onednn_twins import needs_onednn

LOADS_SLOWLY = {"xgboost", "sklearn", "pandas", "scipy.optimize"}


WITHOUT_TORCH = "import sys; sys.modules['torch'] = None"
"""TVM imports it where it is there, for two seconds; nothing here needs it."""


def run(program: str, **environment: str) -> str:
    """What a new process without PyTorch prints; nobody has said how many threads there are."""
    given = {k: v for k, v in os.environ.items() if not k.startswith(("TVM_", "OMP_", "GOMP_"))}
    finished = subprocess.run(
        [sys.executable, "-c", f"{WITHOUT_TORCH}\n{textwrap.dedent(program)}"],
        env=given | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def loaded_by(statement: str) -> set[str]:
    program = f"{statement}\nprint(*(name for name, module in sys.modules.items() if module))"
    return set(run(program).split())


WITHOUT_HOME = """
    import os, pwd
    os.environ.pop("HOME", None)
    os.environ.pop("XDG_CACHE_HOME", None)
    os.environ.pop("NUMBA_CACHE_DIR", None)
    def nobody(_):
        raise KeyError
    pwd.getpwuid = nobody
"""


def test_a_user_without_a_home_compiles_without_a_cache(tmp_path: Path) -> None:
    """No folder called ``~`` appears, and what is written is gone with the process."""
    program = f"""
        import os
        os.chdir({str(tmp_path)!r})
        {textwrap.indent(textwrap.dedent(WITHOUT_HOME), " " * 8).strip()}
        from tvm_xengine.solvers.compiled import entry
        from tvm_xengine.cost_models.measure.measurements import default_cache_path
        print(entry(lambda x: x + 1)(1), default_cache_path())
    """
    answer, path = run(program).split()
    assert answer == "2"
    assert Path(path).is_absolute() and not Path(path).parents[1].exists()
    assert not list(tmp_path.iterdir())


def test_a_cache_that_nobody_may_write_stops_nothing() -> None:
    program = """
        from numba.core import caching
        for locator in caching.CacheImpl._locator_classes:
            locator.from_function = classmethod(lambda cls, function, path: None)
        from tvm_xengine.solvers.compiled import entry, inner
        one = inner(lambda x: x + 1)
        print(entry(lambda x: one(x) + 1)(1))
    """
    assert run(program).split() == ["3"]


def test_compiler_loads_what_predicts_when_it_predicts() -> None:
    loaded = loaded_by("import tvm_xengine.compiler.plan")
    assert "tvm" in loaded
    assert not LOADS_SLOWLY & loaded


def test_help_loads_no_compiler() -> None:
    loaded = loaded_by("import tvm_xengine.commands.dispatch")
    assert not {"tvm", "torch", "numpy", "scipy", "numba", "rich"} & loaded


PRODUCTS_AND_PAUSES = """
    import json, os, time
    import numpy as np, tvm
    from tvm import relax
    from tvm_xengine.compiler.forward import build_forward
    from tvm_xengine.scheduling.platform import Device, Platform

    square = relax.TensorType((256, 256), "float32")
    x, w = relax.Var("x", square), relax.Var("w", square)
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            product = builder.emit_output(relax.op.matmul(x, w))
        builder.emit_func_output(product)
    device = Device("cpu", "llvm -mcpu=native -num-cores=native", kernels=SOURCES)
    executable = build_forward(builder.get(), 1, Platform((device,)))
    executable.write({"x": np.ones((256, 256)), "w": np.ones((256, 256))})

    def cpu_s(pause_s):
        before_s = time.process_time()
        for _ in range(5):
            executable.run()
            time.sleep(pause_s)
        return time.process_time() - before_s

    cpu_s(0.0)
    print(json.dumps({
        "threads": int(tvm.get_global_func("runtime.NumThreads")()),
        "cores": len(os.sched_getaffinity(0)),
        "cpu_s": cpu_s(0.2),
    }))
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux's scheduler")
@pytest.mark.parametrize(
    "sources",
    [("tir",), pytest.param(("onednn", "tir"), marks=(needs_onednn, pytest.mark.slow))],
    ids=lambda s: s[0],
)
def test_threads_of_kernels_leave_the_cores_when_they_have_nothing_to_do(
    sources: tuple[str, ...],
) -> None:
    """They spin in 5 pauses of 200 ms for some 10 ms each, so that the next kernel begins at once."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # TVM may have bound this thread to one
    cores = len(os.sched_getaffinity(0))
    if cores == 1:
        pytest.skip("one core has one thread")
    found = json.loads(run(PRODUCTS_AND_PAUSES.replace("SOURCES", repr(sources))))
    assert found["threads"] == cores
    assert found["cores"] == cores
    assert found["cpu_s"] < 0.3


def test_lowering_leaves_the_environment_as_it_was() -> None:
    program = """
        import os, json
        before = dict(os.environ)
        from tvm_xengine.kernels.threads.pool import thread_pool_size
        from tvm_xengine.kernels.threads.settings import usable_cores
        threads = thread_pool_size()
        bound = [len(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")]
        changed = {n: v for n, v in os.environ.items() if before.get(n) != v}
        print(json.dumps([threads, usable_cores(), min(bound), changed]))
    """
    threads, cores, least_affinity, changed = json.loads(run(program))
    assert threads == cores == least_affinity
    assert not [name for name in changed if name.startswith(("TVM_", "OMP_"))]


def test_every_thread_that_runs_kernels_has_such_a_pool() -> None:
    program = """
        from threading import Thread
        import tvm
        from tvm_xengine.kernels.threads.pool import thread_pool_size
        from tvm_xengine.kernels.threads.settings import usable_cores
        found = []
        thread = Thread(target=lambda: found.append(thread_pool_size()))
        thread.start()
        thread.join()
        print(found[0], usable_cores())
    """
    threads, cores = run(program).split()
    assert threads == cores


def test_the_environment_has_the_last_word() -> None:
    names = ("TVM_NUM_THREADS", "TVM_BIND_THREADS", "TVM_THREAD_POOL_SPIN_COUNT")
    program = f"""
        import os
        from tvm_xengine.kernels.threads.settings import sharing_cores
        with sharing_cores():
            print(*(os.environ[name] for name in {names}))
        print(*(os.environ.get(name) for name in {names}))
    """
    given = {"TVM_NUM_THREADS": "7", "TVM_BIND_THREADS": "1"}
    assert run(program, **given).split() == ["7", "1", "0", "7", "1", "None"]
